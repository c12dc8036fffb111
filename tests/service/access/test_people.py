"""The users whom an identity provider signs in, in every store and with several processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cuebook.gate.identity import Identity
from cuebook.gate.roles import Role
from cuebook.kernel.errors import BadInput, Conflict
from cuebook.kernel.ports import Store
from cuebook.service.access.people import GROUPS, NameTaken, NoRole, user_name
from cuebook.service.service import Principal, Service

ISSUER = "https://login.example.com"
BY = Principal()


def identity(
    name: str = "ann",
    subject: str = "1",
    roles: tuple[Role, ...] = ("viewer",),
    teams: tuple[str, ...] = (),
    *,
    has_groups: bool = True,
    issued: float = 0.0,
    is_answer: bool = True,
) -> Identity:
    return Identity(ISSUER, subject, name, roles, teams, has_groups, issued=issued, is_answer=is_answer)


@pytest.fixture
async def service(store: Store) -> AsyncIterator[Service]:
    made = Service(store, {})
    yield made
    await made._engine.close()


async def test_two_first_sign_ins_at_once_make_one_user(service: Service) -> None:
    found = await asyncio.gather(*(service.people.sign_in(identity(), BY) for _ in range(8)))
    assert {(one.name, one.roles) for one in found} == {("ann", frozenset({"viewer"}))}
    assert [one.name for one in await service.users()] == ["ann"]
    added = [one for one in await service.admin_audit.acts() if one.act.what == "user.add"]
    assert len(added) == 1


async def test_two_people_of_one_name_at_once_get_one_user(service: Service) -> None:
    both = (service.people.sign_in(identity(subject=one), BY) for one in ("1", "2"))
    found = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(one).__name__ for one in found) == ["NameTaken", "Principal"]


async def test_what_an_admin_gave_stays_when_groups_change(service: Service) -> None:
    await service.people.sign_in(identity(teams=("sales",)), BY)
    await service.grant("ann", ["approver"])
    await service.join("ann", ["board"])
    who = await service.people.sign_in(identity(roles=("runner",)), BY)
    assert who.roles == {"runner", "approver"}
    (ann,) = await service.users()
    assert (ann.all_teams, ann.roles) == (("board",), ("approver",))
    with pytest.raises(BadInput, match="because of a group"):
        await service.revoke("ann", ["runner"])
    who = await service.people.sign_in(identity(roles=("admin",), has_groups=False), BY)
    assert who.roles == {"runner", "approver"}, "a token without groups says nothing about them"
    assert (await service.revoke("ann", ["approver"])).all_roles == ("runner",)
    with pytest.raises(NoRole):
        await service.people.sign_in(identity(roles=()), BY)
    assert (await service.principal("ann")).roles == frozenset()


async def test_groups_are_those_of_the_newest_token(service: Service) -> None:
    def token(at: float, role: Role, *, is_answer: bool = False) -> Identity:
        return identity(roles=(role,), issued=at, is_answer=is_answer)

    sign_in = service.people.sign_in
    for found, role in (
        (token(20, "viewer", is_answer=True), "viewer"),
        (token(10, "admin"), "viewer"),
        (token(30, "runner"), "runner"),
        (token(40, "runner"), "runner"),
        (token(35, "admin"), "runner"),
        (token(25, "approver", is_answer=True), "approver"),  # the clock of the provider was set back
        (token(26, "viewer"), "viewer"),
    ):
        assert (await sign_in(found, BY)).roles == {role}
    await service.people.link("ann", "", "", BY)
    await service.people.link("ann", ISSUER, "2", BY)
    assert (await sign_in(identity(subject="2", issued=5.0, is_answer=False), BY)).roles == {"viewer"}
    await service.remove_user("ann")
    assert await service.kept("local", GROUPS) == {}


async def test_links_are_one_to_one(service: Service) -> None:
    await service.add_user("bob", ["runner"])
    await service.people.sign_in(identity(), BY)
    with pytest.raises(NameTaken, match="cuebook users link"):
        await service.people.sign_in(identity(name="bob", subject="2"), BY)
    with pytest.raises(Conflict, match="already signs in as ann"):
        await service.people.link("bob", ISSUER, "1", BY)
    await service.people.link("bob", ISSUER, "2", BY)
    who = await service.people.sign_in(identity(name="bob", subject="2"), BY)
    assert (who.name, who.roles) == ("bob", frozenset({"viewer", "runner"}))
    with pytest.raises(Conflict, match="already signs in as the subject 2"):
        await service.people.link("bob", ISSUER, "4", BY)
    assert (await service.people.link("bob", ISSUER, "2", BY)).all_roles == ("viewer", "runner"), "nothing changes"
    assert (await service.people.link("bob", "", "", BY)).all_roles == ("runner",), "its groups go with the link"
    with pytest.raises(BadInput, match="no user"):
        await service.people.link("eve", ISSUER, "3", BY)
    what = [one.act.what for one in await service.admin_audit.acts() if one.act.subject == "bob"]
    assert what == ["user.add", "user.link", "user.groups", "user.unlink"]


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("ann@example.com", "ann@example.com"),
        ("Ann Smith", "Ann-Smith"),
        ("local", "user-1"),
        ("trigger.x", "user-1"),
        ("--", "user-1"),
        ("ünal", "nal"),
        ("x" * 100, "x" * 64),
    ],
)
def test_a_name_becomes_one_that_journals_may_have(name: str, known_as: str) -> None:
    assert user_name(identity(name=name)) == known_as

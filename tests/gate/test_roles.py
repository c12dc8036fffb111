"""Who may do what: users, roles, tokens and tenants, over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cuebook.gate.roles import ROLES, NotAllowed, Principal
from cuebook.kernel.effects import CallTool
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.gate.harness import bytes_below
from tests.support.programs import LineTool, everything

BOOK = "# T\n\n## STEP 1: A\n\nDo it.\n"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(
        SqliteStore(tmp_path / "runs.db", synchronous="NORMAL"),
        {CallTool: LineTool(tmp_path / "lines")},
        programs=lambda row, text, inputs, options: everything(inputs),
        key_file=tmp_path / "key",
    )
    yield made
    await made.close()


def someone(*roles: str, tenant: str = "local") -> Principal:
    return Principal("sam", tenant, frozenset(roles))


def test_the_person_at_the_terminal_is_everyone() -> None:
    assert all(Principal().may(role) for role in ROLES)


def test_an_admin_may_do_everything_and_a_user_without_a_role_nothing() -> None:
    assert all(someone("admin").may(role) for role in ROLES)
    assert not any(someone().may(role) for role in ROLES)


def test_everyone_with_a_role_may_view() -> None:
    for role in ROLES:
        assert someone(role).may("viewer")
    assert not someone("viewer").may("runner")
    assert not someone("runner").may("approver")
    assert not someone("approver").may("runner")
    assert not someone("approver").may("admin")


async def test_a_viewer_starts_answers_and_ends_nothing(service: Service) -> None:
    viewer = someone("viewer")
    with pytest.raises(NotAllowed):
        await service.start_program(BOOK, "t.md", {}, Settings(), viewer)
    row = await service.start_program(BOOK, "t.md", {}, Settings())
    assert (await service.get(row.id, viewer)).id == row.id
    for refused in (
        service.cancel(row.id, "", viewer),
        service.retry(row.id, who=viewer),
        service.resume(row.id, viewer),
        service.send(row.id, "news", 1, viewer),
        service.restart(row.id, "1", who=viewer),
        service.fork(row.id, "1", who=viewer),
        service.add_user("eve", ["admin"], viewer),
        service.grant("sam", ["admin"], viewer),
        service.revoke("sam", ["viewer"], viewer),
        service.renew_token("sam", viewer),
        service.add_secret("eve", "env:HOME_TOKEN", viewer),
        service.add_override("tool", "x", None, viewer),
        service.trust("x", "y", viewer),
        service.untrust("x", viewer),
        service.remove_user("eve", viewer),
        service.remove_secret("eve", viewer),
        service.revoke_override("o1", viewer),
    ):
        with pytest.raises(NotAllowed) as error:
            await refused
        assert error.value.exit_code == 5
        assert "role" in str(error.value)
    assert await service.users() == []


async def test_a_runner_runs_and_an_approver_does_not(service: Service) -> None:
    row = await service.start_program(BOOK, "t.md", {}, Settings(), someone("runner"))
    assert row.owner == "sam"
    with pytest.raises(NotAllowed):
        await service.start_program(BOOK, "t.md", {}, Settings(), someone("approver"))


async def test_someone_without_a_role_sees_nothing(service: Service) -> None:
    row = await service.start_program(BOOK, "t.md", {}, Settings())
    for refused in (service.get(row.id, someone()), service.runs(who=someone()), service.inbox(someone())):
        with pytest.raises(NotAllowed):
            await refused


async def test_a_tenant_sees_nothing_of_another(service: Service) -> None:
    row = await service.start_program(BOOK, "t.md", {}, Settings(), Principal("a", "one"))
    other = Principal("b", "two")
    assert [run.id for run in await service.runs(who=Principal("a", "one"))] == [row.id]
    assert await service.runs(who=other) == []
    for refused in (
        service.get(row.id, other),
        service.get(row.id[:4], other),
        service.view(row.id, other),
        service.cancel(row.id, "", other),
        service.retry(row.id, who=other),
        service.fork(row.id, "1", who=other),
        service.verify(row.id, other),
        service.replay(row.id, other),
    ):
        with pytest.raises(NotFound):
            await refused
    with pytest.raises(NotFound):
        async for _ in service.events(row.id, follow=False, who=other):
            pass


async def test_users_of_a_tenant_are_not_those_of_another(service: Service) -> None:
    await service.add_user("ann", ["approver"], Principal("a", "one"))
    assert await service.users(Principal("b", "two")) == []
    with pytest.raises(NotFound):
        await service.principal("ann", "two")


async def test_a_user_has_the_roles_that_were_given(service: Service) -> None:
    await service.add_user("ann", ["approver", "viewer"])
    ann = await service.principal("ann")
    assert ann.roles == {"approver", "viewer"}
    await service.revoke("ann", ["approver"])
    assert (await service.principal("ann")).roles == {"viewer"}
    await service.grant("ann", ["runner", "viewer"])
    assert (await service.principal("ann")).roles == {"runner", "viewer"}
    for wrong in (
        service.revoke("ann", ["admin"]),
        service.revoke("ann", ["runner", "viewer"]),
        service.grant("ann", []),
    ):
        with pytest.raises(BadInput):
            await wrong
    for unknown in (service.grant("bob", ["viewer"]), service.revoke("bob", ["viewer"]), service.renew_token("bob")):
        with pytest.raises(NotFound):
            await unknown
    assert (await service.principal("ann")).roles == {"runner", "viewer"}
    await service.remove_user("ann")
    with pytest.raises(NotFound):
        await service.principal("ann")
    with pytest.raises(NotFound):
        await service.remove_user("ann")


async def test_a_token_identifies_its_user_and_is_stored_only_as_a_digest(service: Service, tmp_path: Path) -> None:
    _, token = await service.add_user("ann", ["approver"])
    _, other = await service.add_user("bob", ["viewer"])
    found = await service.principal_with(token)
    assert found == Principal("ann", "local", frozenset({"approver"}))
    assert await service.principal_with(other + "x") is None
    assert await service.principal_with("") is None
    with pytest.raises(BadInput, match="users grant ann --role ROLE"):
        await service.add_user("ann", ["viewer"])
    await service.grant("ann", ["viewer"])
    assert await service.principal_with(token) == Principal("ann", "local", frozenset({"approver", "viewer"}))
    _, new = await service.renew_token("ann")
    assert await service.principal_with(token) is None
    assert await service.principal_with(new) == Principal("ann", "local", frozenset({"approver", "viewer"}))
    written = bytes_below(tmp_path)
    assert token.encode() not in written
    assert other.encode() not in written


@pytest.mark.parametrize(("name", "roles"), [("", ["viewer"]), ("a b", ["viewer"]), ("a\n", ["viewer"]), ("ann", [])])
async def test_a_user_that_makes_no_sense_is_refused(service: Service, name: str, roles: list[str]) -> None:
    with pytest.raises(BadInput):
        await service.add_user(name, roles)
    with pytest.raises(BadInput):
        await service.add_user("ann", ["emperor"])
    assert await service.users() == []


@pytest.mark.parametrize(
    "name", ["local", "Local", "assistant", "nobody", "Cuebook", "trigger", "trigger.note", "Trigger.x"]
)
async def test_a_name_that_journals_use_themselves_is_refused(service: Service, name: str) -> None:
    with pytest.raises(BadInput, match="Cuebook uses it"):
        await service.add_user(name, ["viewer"])
    assert await service.users() == []


async def test_a_user_of_an_older_store_with_a_reserved_name_cannot_come_in(service: Service) -> None:
    user, token = await service.add_user("ann", ["admin"])
    await service.keep("local", "user", "local", {**msgspec.to_builtins(user), "name": "local"})
    await service.forget("local", "user", "ann")
    assert await service.principal_with(token) is None
    with pytest.raises(NotAllowed, match="cuebook users remove local"):
        await service.principal("local")
    await service.remove_user("local")

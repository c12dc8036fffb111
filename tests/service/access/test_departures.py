"""What is bound to the name of a user who is removed does not pass to a later user of the same name, in every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cuebook.gate.standing_permissions import STANDING, Standing
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Job, Store
from cuebook.service.access.people import FORMER, NameTaken
from cuebook.service.notifications.message import MESSAGE
from cuebook.service.notifications.people import LINK, PREFERENCES, SlackLink
from cuebook.service.service import Principal, Service
from cuebook.service.triggers.schedules import Schedule
from cuebook.service.triggers.trigger import Firing, Target
from tests.service.access.test_people import BY, ISSUER, identity
from tests.service.access.test_visibility import run_of
from tests.support.programs import performers, program_of


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(store, performers(tmp_path), programs=program_of, key_file=tmp_path / "key")
    made.notifies = True
    yield made
    await made._engine.close()


async def add_schedule(service: Service, name: str, owner: str) -> None:
    requested = Firing("key", 1.0, "requested", by=owner)
    one = Schedule(
        tenant="local", name=name, owner=owner, target=Target("/tea.md", "tea.md"), created=1.0,
        cron="0 * * * *", zone="UTC", next=4e9, requested=(requested,),
    )  # fmt: skip
    assert await service._store.put_job(one.job(1.0)) is not None


async def schedule(service: Service, name: str) -> Schedule:
    job = await service._store.job("local", Schedule.KIND, name)
    assert job is not None
    return Schedule.of(job)


async def bind(service: Service, name: str) -> None:
    """Gives a user everything that is found by their name."""
    await add_schedule(service, f"of-{name}", name)
    await service.keep("local", PREFERENCES, name, {"events": ["failed"]})
    link = SlackLink(f"T1.U{name}", name, "team", 1.0)
    await service.keep("local", LINK, link.account, msgspec.to_builtins(link))
    given = Standing(f"schedule:allowed-by-{name}", "p", "q", (), name, 1.0, 9e9)
    await service.keep("local", STANDING, given.trigger, msgspec.to_builtins(given))
    await service._store.put_job(Job(tenant="local", kind=MESSAGE, name=f"to-{name}", due=9e9, body={"to": name}))


async def test_removing_a_user_ends_what_is_bound_to_their_name_and_nothing_of_others(service: Service) -> None:
    for name in ("zed", "bob"):
        await service.add_user(name, ["runner", "approver"])
        await bind(service, name)
    ended = await service.remove_user("zed")
    assert (ended.suspended, ended.withdrawn, ended.accounts) == (
        ("schedule:of-zed",), ("schedule:allowed-by-zed",), 1,
    )  # fmt: skip
    for kind, left in ((PREFERENCES, "bob"), (LINK, "T1.Ubob"), (STANDING, "schedule:allowed-by-bob")):
        assert list(await service.kept("local", kind)) == [left]
    assert [job.name for job in await service._store.jobs(MESSAGE)] == ["to-bob"]
    stopped, going = await schedule(service, "of-zed"), await schedule(service, "of-bob")
    assert (stopped.suspended, stopped.requested) == ("Its owner, zed, was removed.", ())
    assert [one.state for one in stopped.history] == ["skipped"]
    assert (going.suspended, len(going.requested)) == ("", 1)
    (act,) = [one.act for one in await service.admin_audit.acts() if one.act.what == "user.remove"]
    assert act.details["suspended"] == ["schedule:of-zed"]


async def test_the_name_of_an_earlier_user_is_only_for_the_same_person(service: Service) -> None:
    await service.add_user("zed", ["viewer"])
    await run_of(service, Principal("zed"))
    await service.remove_user("zed")
    with pytest.raises(BadInput, match="An earlier user named 'zed' was removed") as refused:
        await service.add_user("zed", ["viewer"])
    assert "--same-person" in refused.value.fix
    assert await service.users() == []
    _, token = await service.add_user("zed", ["viewer"], same_person=True)
    assert await service.principal_with(token) is not None
    assert await service.kept("local", FORMER) == {}
    (act,) = [one.act for one in await service.admin_audit.acts() if "same_person" in one.act.details]
    assert (act.what, act.subject) == ("user.add", "zed")


async def test_a_name_that_owns_something_is_refused_even_if_no_removal_is_known(service: Service) -> None:
    run = await run_of(service, Principal("zed"))
    with pytest.raises(BadInput, match="has runs here"):
        await service.add_user("zed", ["viewer"])
    await service.cancel(run)
    await service.take_up(run)
    await service.retention.erase(owner="zed")
    await add_schedule(service, "tea", "zed")
    with pytest.raises(BadInput, match="has schedules or other triggers here"):
        await service.add_user("zed", ["viewer"])
    await service.keep("local", PREFERENCES, "yan", {"events": ["failed"]})
    await service.add_user("yan", ["viewer"])
    assert await service.kept("local", PREFERENCES) == {}, "what an older version left"


async def test_erasing_what_was_theirs_frees_the_name(service: Service) -> None:
    await service.add_user("zed", ["viewer"])
    await service.remove_user("zed")
    await service.retention.erase(owner="zed")
    await service.add_user("zed", ["viewer"])


async def test_a_first_sign_in_does_not_get_what_an_earlier_user_left(service: Service) -> None:
    await service.people.sign_in(identity("zed", "1"), BY)
    await service.remove_user("zed")
    with pytest.raises(NameTaken, match="An earlier user named zed was removed") as refused:
        await service.people.sign_in(identity("zed", "2"), BY)
    assert "`cuebook users link zed --subject 2`" in refused.value.fix
    assert await service.users() == []
    assert (await service.people.sign_in(identity("zed", "1"), BY)).name == "zed", "a subject is always the same person"
    await run_of(service, Principal("yan"))
    with pytest.raises(NameTaken, match="has runs here"):
        await service.people.sign_in(identity("yan", "3"), BY)
    await service.add_user("yan", ["viewer"], same_person=True)
    await service.people.link("yan", ISSUER, "3", BY)
    assert (await service.people.sign_in(identity("yan", "3"), BY)).name == "yan"

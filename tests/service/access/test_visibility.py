"""Who sees which runs: `[access] runs` is enforced by the service, in every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import NotFound
from cuebook.kernel.ports import RunFilter, Store
from cuebook.kernel.run import Settings
from cuebook.service.access.visibility import Rule
from cuebook.service.service import Principal, Service
from tests.support.programs import performers, program_of

ANN = Principal("ann", roles=frozenset({"runner", "approver"}))
BOB = Principal("bob", roles=frozenset({"runner", "approver"}))
EVE = Principal("eve", roles=frozenset({"viewer"}))
ROOT = Principal("root", roles=frozenset({"admin"}))
PEOPLE = (ANN, BOB, EVE, ROOT)

ASKS = """name: Asks
steps:
  - id: one
    input: {text: Which?}
"""
NAMES = """name: Names
steps:
  - id: one
    input: {text: Which?, by: [bob]}
"""

Make = Callable[[Rule], Awaitable[Service]]


@pytest.fixture
async def make(store: Store, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Service] = []

    async def service(rule: Rule) -> Service:
        one = Service(store, performers(tmp_path), programs=program_of, key_file=tmp_path / "key", visible=rule)
        made.append(one)
        for who in PEOPLE:
            await one.add_user(who.name, sorted(who.roles))
        return one

    yield service
    for one in made:
        await one._engine.close()


async def run_of(service: Service, who: Principal, text: str = ASKS) -> str:
    """A run of this user that waits for an answer."""
    row = await service.start(Playbook.from_text(text, "asks.yml"), {}, Settings(), who)
    assert (await service.drive(row.id)).status == "awaiting_input"
    return row.id


async def seen(service: Service, who: Principal) -> list[str]:
    return [row.id for row in await service.runs(who=who)]


async def test_everyone_sees_all_runs_unless_configured(make: Make) -> None:
    service = await make("all")
    run = await run_of(service, ANN)
    assert [await seen(service, who) for who in PEOPLE] == [[run]] * 4


async def test_owners_see_their_own_runs_and_admins_all(make: Make) -> None:
    service = await make("owner")
    ours, theirs = await run_of(service, ANN), await run_of(service, BOB)
    assert await seen(service, ANN) == [ours]
    assert await seen(service, BOB) == [theirs]
    assert await seen(service, EVE) == []
    assert await seen(service, ROOT) == [theirs, ours]
    assert await seen(service, Principal()) == [theirs, ours], "the person at the terminal"


async def test_teams_share_their_runs_until_someone_leaves(make: Make) -> None:
    service = await make("team")
    await service.join("ann", ["sales"])
    await service.join("bob", ["sales", "support"])
    await service.join("eve", ["support"])
    ours, theirs = await run_of(service, ANN), await run_of(service, BOB)
    assert await seen(service, ANN) == [theirs, ours]
    assert await seen(service, EVE) == [theirs], "teams do not chain"
    await service.leave("bob", ["support"])
    assert await seen(service, EVE) == []
    with pytest.raises(NotFound):
        await service.get(theirs, EVE)


def reads(service: Service, run: str, wait: str) -> dict[str, Callable[[Principal], Awaitable[Any]]]:
    """Everything that reads or changes one run."""

    async def events(who: Principal) -> None:
        async for _ in service.events(run, follow=False, who=who):
            pass

    async def export(who: Principal) -> None:
        await service.export_runs([run], Path("never.jsonl"), who)

    return {
        "get": lambda who: service.get(run, who),
        "get by a prefix": lambda who: service.get(run[:-1], who),
        "view": lambda who: service.view(run, who),
        "children": lambda who: service.children(run, who),
        "settings": lambda who: service.settings(run, who),
        "sent": lambda who: service.sent(run, 1, who),
        "overrides": lambda who: service.run_overrides(run, who),
        "files": lambda who: service.files(run, who),
        "file": lambda who: service.file(run, "0" * 64, who),
        "audit": lambda who: service.audit(run, who),
        "export": lambda who: service.export(run, who),
        "export_runs": export,
        "verify": lambda who: service.verify(run, who),
        "replay": lambda who: service.replay(run, who),
        "events": events,
        "waiting": lambda who: service.waiting(wait, who),
        "waiting by a prefix": lambda who: service.waiting(wait[:-1], who),
        "answer": lambda who: service.answer(wait, "x", who),
        "decide": lambda who: service.decide(wait, "approve", who),
        "resume": lambda who: service.resume(run, who),
        "cancel": lambda who: service.cancel(run, "", who),
        "retry": lambda who: service.retry(run, who=who),
        "send": lambda who: service.send(run, "a", 1, who),
        "fork": lambda who: service.fork(run, "one", who=who),
        "move": lambda who: service.move(run, "/tmp", who=who),
        "edit": lambda who: service.edit_plan(run, Playbook.from_text(NAMES, "asks.yml"), who),
    }


async def test_what_someone_does_not_see_is_not_found_and_nothing_says_more(make: Make) -> None:
    service = await make("owner")
    run = await run_of(service, ANN)
    (wait,) = await service.inbox(ANN)
    missing = "r" + "0" * (len(run) - 1)
    for name, read in reads(service, run, wait.id).items():
        with pytest.raises(NotFound) as error:
            await read(BOB)
        assert "ann" not in str(error.value), name
    with pytest.raises(NotFound) as hidden:
        await service.get(run, BOB)
    with pytest.raises(NotFound) as unknown:
        await service.get(missing, BOB)
    assert str(hidden.value).replace(run, "ID") == str(unknown.value).replace(missing, "ID"), "an id reveals nothing"
    assert await service.inbox(BOB) == []
    assert await service.inbox_ids(BOB) == []
    assert await service.runs_called(run[:6], BOB) == []
    assert await service.all_runs(BOB) == []
    assert await service.interrupted(BOB) == []
    assert await service.runs(among=[run], who=BOB) == []
    assert (await service.get(run[:-1], ANN)).id == run
    assert await service.inbox_ids(ROOT) == [wait.id]


async def test_whom_a_question_names_sees_its_run_before_and_after_answering(make: Make) -> None:
    service = await make("owner")
    other, run = await run_of(service, ANN), await run_of(service, ANN, NAMES)
    assert await seen(service, BOB) == [run]
    assert await service.runs(name="elsewhere.yml", who=BOB) == []
    (wait,) = await service.inbox(BOB)
    assert (wait.run, await service.inbox_ids(EVE)) == (run, [])
    assert (await service.view(run, BOB)).run.owner == "ann"
    await service.answer(wait.id, "this", BOB)
    assert (await service.drive(run)).status == "completed"
    assert (await service.view(run, BOB)).run.status == "completed", "the outcome of what was decided"
    assert (await service.waiting(wait.id, BOB)).by == "bob"
    for hidden in (other, run):
        with pytest.raises(NotFound):
            await service.get(hidden, EVE)
    with pytest.raises(NotFound):
        await service.get(other, BOB)


async def test_the_number_in_an_inbox_is_that_of_its_pages_and_reads_no_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await make("owner")
    for who, text in ((ANN, ASKS), (BOB, ASKS), (ANN, NAMES), (BOB, NAMES), (ANN, ASKS)):
        await run_of(service, who, text)
    for who, count in ((ANN, 3), (BOB, 3), (EVE, 0), (ROOT, 5)):
        whole = [wait.id for wait in await service.inbox(who)]
        pages = [await service.inbox(who, limit=2, offset=offset) for offset in (0, 2, 4)]
        assert [wait.id for page in pages for wait in page] == whole
        assert (await service.inbox_ids(who), len(whole)) == (whole, count)

    async def read(**given: Any) -> Any:
        raise AssertionError("whole waits were read to count them")

    monkeypatch.setattr(service._store, "waits", read)
    assert len(await service.inbox_ids(ANN)) == len(await service.inbox_ids(BOB)) == 3
    assert len(await seen(service, BOB)) == 3


async def test_a_deleted_run_is_unknown_to_those_who_do_not_see_all(make: Make) -> None:
    service = await make("owner")
    run = await run_of(service, ANN)
    await service.cancel(run, "", ANN)
    await service.drive(run)
    await service.retention.delete(run, ROOT)
    with pytest.raises(NotFound, match="was deleted"):
        await service.get(run, ROOT)
    with pytest.raises(NotFound) as error:
        await service.get(run, BOB)
    assert "deleted" not in str(error.value)
    assert await service.retention.removals(BOB) == []


async def test_lists_pages_and_acts_on_many_concern_only_what_is_seen(make: Make) -> None:
    service = await make("owner")
    first, _ = await run_of(service, ANN), await run_of(service, BOB)
    second, asks_bob = await run_of(service, ANN), await run_of(service, ANN, NAMES)
    which = RunFilter(name="asks.yml", status=["awaiting_input"])
    page = await service.page(which, limit=2, who=ANN)
    assert [row.id for row in page.rows] == [asks_bob, second]
    last = await service.page(which, limit=2, cursor=page.next, who=ANN)
    assert ([row.id for row in last.rows], last.next) == ([first], "")
    assert len((await service.page(which, who=BOB)).rows) == 2, "his own run, and the one that asks him"
    other = await service.bulk.act("cancel", RunFilter(among=[first, second]), BOB, dry_run=True)
    assert (other.done, {one.code for one in other.refused}) == ([], {"not_found"})
    assert (await service.bulk.act("cancel", RunFilter(owner="bob"), ANN)).done == []
    assert (await service.bulk.act("cancel", which, ANN)).done == [asks_bob, second, first]

"""A journal is complete and belongs to its run: problems that the chain alone does not show are detected too."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cuebook.kernel.events import AnyEvent, Driven, Forked, RunStarted
from cuebook.kernel.fold.verify import belongs
from cuebook.kernel.journal import GENESIS, Codec, Place, Record, purged, seal, verify
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Signal
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin, engine_on, new_row

SAID = {"run": "run", "tenant": "here", "owner": "me", "name": "tea.md"}
BEGUN = RunStarted({}, run="run", tenant="here", owner="me", name="tea.md")


def records(*events: AnyEvent, run: str = "run") -> list[Record]:
    made: list[Record] = []
    for seq, event in enumerate(events, start=1):
        body = Codec(str).encode(event, {})
        before = made[-1].chain if made else GENESIS
        made.append(seal(run, seq, float(seq), 0, Place(), type(event).__name__, body, before))
    return made


def problem_of(journal: list[Record], **said: str) -> str:
    verdict = belongs(journal, verify(journal), {**SAID, **said})
    assert (verdict.broken_at is None) == (verdict.problem == "")
    return verdict.problem


# --- its owner ------------------------------------------------------------------------------------------------------


def test_a_journal_belongs_to_the_run_it_names() -> None:
    assert problem_of(records(BEGUN, Driven("a"))) == ""


@pytest.mark.parametrize("field", ["run", "tenant", "owner", "name"])
def test_a_false_identity_is_detected(field: str) -> None:
    expected = f"the journal says {field} '{SAID[field]}', not 'mallory'"
    assert problem_of(records(BEGUN, Driven("a")), **{field: "mallory"}) == expected


def test_a_record_of_another_run_is_detected() -> None:
    first, second = records(BEGUN, Driven("a"))
    verdict = belongs([first, msgspec.structs.replace(second, run="other")], verify([first, second]), SAID)
    assert (verdict.broken_at, verdict.problem) == (2, "the record belongs to another run")


def test_a_fork_is_a_separate_run_and_may_have_another_owner() -> None:
    fork = Forked("run", "", "", "2", 1, run="child", tenant="here", owner="ada", name="tea.md")
    inherited, began, driven = records(BEGUN, fork, Driven("a"))
    journal = [inherited, *(msgspec.structs.replace(one, run="child") for one in (began, driven))]
    assert problem_of(journal, run="child", owner="ada") == ""
    assert "owner 'ada'" in problem_of(journal, run="child", owner="me")


@pytest.mark.parametrize("journal", [[], records(Driven("a"))])
def test_a_journal_without_a_beginning_is_invalid(journal: list[Record]) -> None:
    assert problem_of(journal) == "the beginning of the run is missing"


def test_a_journal_without_an_identity_is_not_compared() -> None:
    """A journal that an older version wrote, or whose beginning was purged."""
    first, second = records(BEGUN, Driven("a"))
    assert problem_of(records(RunStarted({}), Driven("a")), owner="mallory") == ""
    assert problem_of([purged(first), second], owner="mallory") == ""


# --- its completeness ----------------------------------------------------------------------------------------------


async def ended(store: Store, folder: Path, *, waits: bool = False) -> None:
    """A run that has ended or waits, and a fork of it."""
    engine = engine_on(store, folder)
    row = await engine.drive(await begin(engine, "everything"))
    while not waits and row.status != "completed":
        for wait in await store.waits(run="run"):
            await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
        row = await engine.drive("run")
    if not waits:
        step = next(step for step in await store.steps("run") if step.label == "3")
        child = new_row("everything", "child")
        child.parent = "run"
        await engine.fork(child, step, {}, {})
        assert (await engine.drive("child")).status == "completed"
    await engine.close()


async def verified(store: SqliteStore, folder: Path, change: str, run: str = "run") -> str:
    with closing(sqlite3.connect(store.path)) as other, other:
        assert other.execute(change).rowcount
    again = SqliteStore(store.path)
    verdict = await engine_on(again, folder).verify(run)
    await again.close()
    return verdict.problem


CHILD = "(SELECT key FROM runs WHERE id = 'child')"


@pytest.mark.parametrize(
    ("run", "change", "problem"),
    [
        ("run", "UPDATE runs SET owner = 'mallory'", "owner"),
        ("run", "UPDATE runs SET name = 'other'", "name"),
        ("run", "UPDATE runs SET tenant = 'other'", "tenant"),
        ("run", "UPDATE runs SET trigger = 'mcp'", "trigger"),
        ("run", "UPDATE runs SET playbook = 'other'", "playbook"),
        ("run", "DELETE FROM records", "the beginning of the run is missing"),
        ("run", "DELETE FROM records WHERE seq > 10", "records are missing at the end"),
        ("run", "DELETE FROM records WHERE kind = 'RunFinished'", "records are missing at the end"),
        ("run", "UPDATE runs SET status = 'failed'", "the run is marked as failed, but no record says so"),
        ("child", "UPDATE runs SET owner = 'mallory' WHERE id = 'child'", "owner"),
        ("child", f"DELETE FROM records WHERE run = {CHILD}", "run 'run', not 'child'"),
        ("child", f"DELETE FROM records WHERE run = {CHILD} AND kind = 'RunFinished'", "missing at the end"),
    ],
)
async def test_a_change_outside_the_chain_is_detected(
    run: str, change: str, problem: str, file_store: SqliteStore, tmp_path: Path
) -> None:
    await ended(file_store, tmp_path)
    assert (await engine_on(file_store, tmp_path).verify(run)).problem == ""
    assert problem in await verified(file_store, tmp_path, change, run)


async def test_missing_records_of_a_waiting_run_are_detected_too(file_store: SqliteStore, tmp_path: Path) -> None:
    await ended(file_store, tmp_path, waits=True)
    found = await verified(file_store, tmp_path, "DELETE FROM records WHERE kind = 'Suspended'")
    assert "records are missing at the end" in found


async def test_a_run_that_was_cut_back_to_an_earlier_failure_is_detected(
    file_store: SqliteStore, tmp_path: Path
) -> None:
    engine = engine_on(file_store, tmp_path)
    await engine.drive(await begin(engine, "failing"))
    first = [record async for record in file_store.records("run")]
    await file_store.signal(Signal("run", "retry", {}, "me"))
    await engine.drive("run")
    await engine.close()
    found = await verified(file_store, tmp_path, f"DELETE FROM records WHERE seq > {len(first)}")
    assert "records are missing at the end" in found


async def test_a_fork_of_a_fork_at_an_earlier_step_is_complete(store: Store, tmp_path: Path) -> None:
    await ended(store, tmp_path)
    engine = engine_on(store, tmp_path)
    step = next(step for step in await store.steps("child") if step.label == "2")
    grandchild = new_row("everything", "grandchild")
    grandchild.parent = "child"
    await engine.fork(grandchild, step, {}, {})
    assert (await engine.verify("grandchild")).problem == ""
    await engine.drive("grandchild")
    assert (await engine.verify("grandchild")).problem == ""
    await engine.close()

"""Programs of every shape run, wait, resume, fail, retry, fork, cancel and replay."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import AskModel, CallTool, Program
from cuebook.kernel.engine.engine import Engine, Seen
from cuebook.kernel.errors import AlreadyAnswered, Busy, NonDeterminism, Refused, WaitExpired
from cuebook.kernel.errors import WaitClosed as WaitClosedError
from cuebook.kernel.events import Performed, RunFinished, StepStarted, TextChunk, WaitClosed
from cuebook.kernel.fold.state import RunState
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Budget, Settings, Signal
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import PROGRAMS, Held, append, begin, engine_on, eventually, lines, new_row, performers
from tests.support.records import killed
from tests.support.sampling import many


async def answer(engine: Engine, run: str, value: Any = "yes") -> None:
    for wait in await engine.store.waits(run=run):
        await engine.store.complete_wait(wait.id, {"value": value}, "me", engine.clock())


async def result_of(engine: Engine, run: str) -> Any:
    return [e async for e in engine.entries(run) if isinstance(e.event, RunFinished)][-1].event.result  # type: ignore[union-attr]


async def kinds_of(engine: Engine, run: str, kind: type) -> list[Entry]:
    return [entry async for entry in engine.entries(run) if isinstance(entry.event, kind)]


async def to_the_end(engine: Engine, run: str) -> Any:
    row = await engine.drive(run)
    while row.status in ("awaiting_input", "paused"):
        await answer(engine, run)
        row = await engine.drive(run)
    assert row.status == "completed", row.error
    return await result_of(engine, run)


@pytest.mark.parametrize("name", ["counting", "everything", "concurrent", "checkpointed", "nested", "catching"])
async def test_each_shape_runs_to_its_end_and_replays(name: str, store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    result = await to_the_end(engine, await begin(engine, name))
    written = lines(tmp_path)
    rehearsal = await engine.replay("run")
    assert rehearsal.complete
    assert rehearsal.result == result
    assert lines(tmp_path) == written, "a replay performs nothing"
    verdict = await engine.verify("run")
    assert verdict.broken_at is None
    assert verdict.records == len([r async for r in store.records("run")])
    await engine.close()


async def test_thousands_of_effects(store: Store, tmp_path: Path) -> None:
    """More than Python calls within each other."""
    engine, most = engine_on(store, tmp_path), many(2_000, 10_000)
    assert await to_the_end(engine, await begin(engine, "counting", n=most)) == most
    assert (await engine.replay("run")).effects == most
    await engine.close()


async def test_a_waiting_run_is_only_a_row(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "everything"))
    assert (row.status, row.driver) == ("awaiting_input", "")
    (wait,) = await store.waits(run="run")
    assert (wait.prompt, wait.type, wait.tenant, wait.owner) == ("Go on?", "confirm", "local", "me")
    await engine.close()
    later = engine_on(store, tmp_path)
    assert (await to_the_end(later, "run"))["final"] == "echo final"
    assert lines(tmp_path) == ["one", "two", "three"]
    assert lines(tmp_path, "asked") == ["draft", "final"]
    await later.close()


async def test_steps_and_totals_are_a_fold_of_the_journal(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await to_the_end(engine, await begin(engine, "everything"))
    row, steps = await store.run("run"), await store.steps("run")
    assert [(s.label, s.status) for s in steps] == [
        ("1", "completed"),
        ("2", "completed"),
        ("3", "completed"),
        ("4", "skipped"),
    ]
    assert (row.totals.steps, row.totals.steps_done, row.totals.calls) == (4, 3, 2)
    assert row.totals.cost == pytest.approx(0.002)
    assert row.totals.unknown_costs == 0
    state = RunState(new_row("everything"))
    async for entry in engine.entries("run"):
        state.apply(entry)
    folded, folded_steps, _ = state.take_changes()
    assert folded is not None
    assert (folded.status, folded.totals, folded.step) == (row.status, row.totals, row.step)
    assert {s.key: s for s in folded_steps} == {s.key: s for s in steps}
    await engine.close()


async def test_answers_reach_branches_one_by_one(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "concurrent"))
    assert row.status == "awaiting_input"
    first, second = await store.waits(run="run")
    await store.complete_wait(second.id, {"value": "second"}, "me", engine.clock())
    assert (await engine.drive("run")).status == "awaiting_input"
    await store.complete_wait(first.id, {"value": "first"}, "me", engine.clock())
    assert (await engine.drive("run")).status == "completed"
    assert await result_of(engine, "run") == [["a", "first"], "bare", ["b", "-"], ["c", "second"]]
    assert sorted(lines(tmp_path)) == sorted(["a one", "a two", "b one", "b two", "bare", "c one", "c two", "end"])
    await engine.close()


async def test_an_answer_is_heard_while_another_branch_is_busy(store: Store, tmp_path: Path) -> None:
    held = Held()

    def start(state: Any) -> Program[Any]:
        from cuebook.kernel.effects import All, AskHuman

        outcomes = yield All((CallTool("hold"), AskHuman("Well?")))
        return outcomes[1].value

    PROGRAMS["busy"] = lambda inputs: start
    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "busy")))
    await held.entered.wait()
    await eventually(lambda: store.waits(run="run"))
    await answer(engine, "run", "fine")
    await eventually(lambda: kinds_of(engine, "run", Performed))
    held.go.set()
    assert (await driving).status == "completed"
    assert await result_of(engine, "run") == "fine"
    await engine.close()


async def test_a_checkpoint_avoids_replaying_earlier_records(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "checkpointed", rounds=5))
    claim = await store.claim("run", engine.driver, engine.clock())
    kinds = [record.kind for record in claim.records]
    assert kinds[0] == "RunStarted"
    assert kinds[1] == "Checkpointed"
    assert await to_the_end(engine, "run") == 10
    assert lines(tmp_path) == [f"round {n}" for n in range(5)]
    await engine.close()


async def test_a_breakpoint_pauses_and_takes_overrides(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "everything", settings=Settings(breakpoints=("1",))))
    assert row.status == "paused"
    assert [s.status for s in await store.steps("run")][:2] == ["completed", "pending"]
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"overrides": {"draft": "mine"}}, "me", engine.clock())
    row = await engine.drive("run")
    assert row.status == "awaiting_input"
    resumed = [e.event.outcome async for e in engine.entries("run") if isinstance(e.event, Performed)]
    assert any(getattr(outcome, "overrides", None) == {"draft": "mine"} for outcome in resumed)
    await engine.close()


# --- failure, retry, fork -------------------------------------------------------------------------------


async def test_a_failed_effect_fails_the_run_and_skips_the_rest(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "failing", tool="fail"))
    assert row.status == "failed"
    assert row.error is not None
    assert "refused fragile" in row.error.message
    assert [s.status for s in await store.steps("run")] == ["completed", "failed", "skipped"]
    await engine.close()


async def test_retry_continues_at_the_effect_that_failed(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "failing"))
    await store.signal(Signal("run", "retry", {}, "me"))
    row = await engine.drive("run")
    assert row.status == "completed"
    assert lines(tmp_path) == ["step 1", "step 2", "fragile", "fragile", "step 3"]
    assert [s.status for s in await store.steps("run")] == ["completed"] * 3
    assert (await engine.verify("run")).broken_at is None
    assert (await engine.replay("run")).complete
    await engine.close()


async def test_retry_of_the_whole_step_does_it_all_again(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "failing"))
    await store.signal(Signal("run", "retry", {"whole_step": True}, "me"))
    assert (await engine.drive("run")).status == "completed"
    assert lines(tmp_path) == ["step 1", "step 2", "fragile", "step 2", "fragile", "step 3"]
    await engine.close()


async def test_only_a_failed_run_can_be_retried_and_only_once(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await begin(engine, "failing")
    with pytest.raises(Refused, match="is pending"):
        await store.signal(Signal("run", "retry", {}, "me"))
    await engine.drive("run")
    await store.signal(Signal("run", "retry", {}, "me"))
    await store.claim("run", engine.driver, 0.0)
    with pytest.raises(Refused, match="already"):
        await store.signal(Signal("run", "retry", {}, "me"))
    await engine.close()
    await store.signal(Signal("run", "retry", {}, "me"))
    other = engine_on(store, tmp_path)
    assert (await other.drive("run")).status == "completed"
    await other.close()


async def test_a_fork_keeps_what_came_before_its_step(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await to_the_end(engine, await begin(engine, "everything"))
    step = next(s for s in await store.steps("run") if s.label == "3")
    child = new_row("everything", "child")
    child.parent = "run"
    await engine.fork(child, step, {}, {"model": "other/model"})
    row = await engine.drive("child")
    assert (row.status, row.parent, row.model) == ("completed", "run", "other/model")
    assert lines(tmp_path) == ["one", "two", "three", "two", "three"]
    assert lines(tmp_path, "asked") == ["draft", "final", "final"]
    assert [s.status for s in await store.steps("child")] == ["completed", "completed", "completed", "skipped"]
    assert row.totals.calls == 1, "what the parent paid is not paid again"
    assert (await engine.verify("child")).broken_at is None
    assert (await engine.replay("child")).complete
    await engine.close()


async def test_a_fork_of_a_fork_and_one_inside_all(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await to_the_end(engine, await begin(engine, "concurrent"))
    step = next(s for s in await store.steps("run") if s.label == "wb")
    child = new_row("concurrent", "child")
    child.parent = "run"
    await engine.fork(child, step, {}, {})
    await to_the_end(engine, "child")
    assert sorted((await result_of(engine, "child"))[2]) == ["-", "b"]
    last = next(s for s in await store.steps("child") if s.label == "2")
    grandchild = new_row("concurrent", "grandchild")
    grandchild.parent = "child"
    await engine.fork(grandchild, last, {}, {})
    before = len(lines(tmp_path))
    await to_the_end(engine, "grandchild")
    assert lines(tmp_path)[before:] == ["end"]
    assert (await engine.verify("grandchild")).broken_at is None
    await engine.close()


async def test_a_fork_hands_edited_values_to_its_step(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        seen = []
        for label in ("1", "2", "3"):
            seen.append((yield StepStarted(label)))
            yield append(label)
        return seen

    PROGRAMS["edited"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    await to_the_end(engine, await begin(engine, "edited"))
    step = next(s for s in await store.steps("run") if s.label == "2")
    child = new_row("edited", "child")
    child.parent = "run"
    await engine.fork(child, step, {"tone": "kind"}, {})
    assert await to_the_end(engine, "child") == [{}, {"tone": "kind"}, {}]
    await engine.close()


# --- cancel, expiry, races ------------------------------------------------------------------------------


async def test_cancel_lets_the_program_undo(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "undoing"))
    (wait,) = await store.waits(run="run")
    await store.signal(Signal("run", "cancel", {"reason": "Changed my mind."}, "me"))
    with pytest.raises(WaitClosedError):
        await store.complete_wait(wait.id, {"value": "late"}, "me", engine.clock())
    row = await engine.drive("run")
    assert row.status == "cancelled"
    assert lines(tmp_path) == ["do", "undo"]
    assert [(s.status, s.reason) for s in await store.steps("run")] == [("failed", "Cancelled. Changed my mind.")]
    assert (await engine.replay("run")).failed is not None
    with pytest.raises(Refused, match="already"):
        await store.signal(Signal("run", "cancel", {}, "me"))
    await engine.close()


async def test_cancel_interrupts_an_effect_and_leaves_its_step_in_doubt(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    row = await driving
    assert (row.status, held.interrupted, held.performed) == ("cancelled", 1, 0)
    assert lines(tmp_path) == ["do", "undo"]
    assert [s.status for s in await store.steps("run")] == ["in_doubt"]
    await engine.close()


async def test_a_cancelled_run_can_be_retried_and_its_doubt_remains(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    await driving
    await store.signal(Signal("run", "retry", {}, "me"))
    row = await engine.drive("run")
    assert row.status == "awaiting_approval"
    (wait,) = await store.waits(run="run")
    assert wait.kind == "in_doubt"
    held.go.set()
    await store.complete_wait(wait.id, {"decision": "repeat"}, "me", engine.clock())
    assert (await engine.drive("run")).status == "completed"
    await engine.close()


async def test_a_second_cancel_is_hard(store: Store, tmp_path: Path) -> None:
    held = Held()

    def start(state: Any) -> Program[Any]:
        from cuebook.kernel.outcomes import Cancelled

        try:
            yield CallTool("hold")
        except Cancelled:
            yield CallTool("hold")
            yield append("never")
            raise

    PROGRAMS["stubborn"] = lambda inputs: start
    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "stubborn")))
    await held.entered.wait()
    held.entered.clear()
    await store.signal(Signal("run", "cancel", {}, "me"))
    await held.entered.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await driving).status == "cancelled"
    assert lines(tmp_path) == []
    await engine.close()


async def test_cancel_reaches_every_branch(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "concurrent"))
    await store.signal(Signal("run", "cancel", {}, "me"))
    row = await engine.drive("run")
    assert row.status == "cancelled"
    assert "end" not in lines(tmp_path)
    assert await store.waits(run="run") == []
    await engine.close()


async def test_an_unanswered_question_expires(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = Engine(
        store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), performers(tmp_path), clock=lambda: now[0]
    )
    await engine.drive(await begin(engine, "everything", settings=Settings(pause_expiry=60)))
    (wait,) = await store.waits(run="run")
    now[0] += 60
    with pytest.raises(WaitExpired):
        await store.complete_wait(wait.id, {"value": "yes"}, "me", now[0])
    assert await store.expire(now[0]) == ["run"]
    assert await store.ready(now[0], "someone else") == ["run"]
    row = await engine.drive("run")
    assert row.status == "expired"
    assert [s.status for s in await store.steps("run")] == ["completed", "failed", "skipped", "skipped"]
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "awaiting_input", "an expired run can be asked again"
    assert await to_the_end(engine, "run")
    await engine.close()


async def test_of_two_answers_one_wins(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    (wait,) = await store.waits(run="run")
    attempts = [store.complete_wait(wait.id, {"value": v}, v, engine.clock()) for v in ("yes", "no")]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(r, AlreadyAnswered) for r in results) == 1
    await engine.drive("run")
    with pytest.raises(AlreadyAnswered):
        await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
    await engine.close()


async def test_timers_and_messages(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = Engine(
        store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), performers(tmp_path), clock=lambda: now[0]
    )
    row = await engine.drive(await begin(engine, "waiting", seconds=60))
    assert (row.status, row.reason) == ("paused", "timer")
    assert await store.next_expiry() == 1060.0
    await store.signal(Signal("run", "message", {"channel": "news", "value": 7}, "me"))
    now[0] += 61
    await store.expire(now[0])
    row = await engine.drive("run")
    assert row.status == "completed", "a message that came early waits for its wait"
    assert await result_of(engine, "run") == ["Message", 7]
    await begin(engine, "waiting", "other", seconds=1, patience=5)
    await engine.drive("other")
    now[0] += 2
    await store.expire(now[0])
    assert (await engine.drive("other")).reason == "message"
    now[0] += 6
    await store.expire(now[0])
    assert (await engine.drive("other")).status == "completed"
    assert await result_of(engine, "other") == ["Elapsed", None]
    await engine.close()


async def test_two_drivers_never_drive_one_run(store: Store, tmp_path: Path) -> None:
    held = Held()
    one, other = engine_on(store, tmp_path, hold=held), engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(one.drive(await begin(one, "undoing", hold=True)))
    await held.entered.wait()
    with pytest.raises(Busy):
        await other.drive("run")
    with pytest.raises(Busy):
        await one.drive("run")
    held.go.set()
    assert (await driving).status == "completed"
    await one.close()
    await other.close()


@pytest.mark.parametrize("asked", ["before", "after"])
async def test_a_driver_that_wakes_up_late_is_fenced_and_its_outcome_is_shown(
    store: Store, tmp_path: Path, asked: str
) -> None:
    """The question about the effect is asked either before or after the outcome arrives."""
    from cuebook.kernel.errors import Fenced

    held = Held()
    now = [1000.0]
    late = Engine(
        store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), performers(tmp_path, hold=held),
        clock=lambda: now[0], listen_every=60,
    )  # fmt: skip
    other = Engine(
        store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), performers(tmp_path, hold=held),
        clock=lambda: now[0],
    )  # fmt: skip
    driving = asyncio.create_task(late.drive(await begin(late, "undoing", hold=True)))
    await held.entered.wait()
    await killed(store, late.driver)
    if asked == "before":
        row = await other.drive("run")
        assert row.status == "awaiting_approval", "it is not known what became of the effect"
    else:
        await store.claim("run", "one that is gone", now[0])
    held.go.set()
    with pytest.raises(Fenced):
        await driving
    if asked == "after":
        assert (await other.drive("run")).status == "awaiting_approval"
    (wait,) = await store.waits(run="run")
    assert wait.details["late"] == {"is": "ToolResult", "value": "held"}
    await store.complete_wait(wait.id, {"decision": "done", "outcome": wait.details["late"]}, "me", now[0])
    assert (await other.drive("run")).status == "completed"
    assert held.performed == 1
    assert (await other.verify("run")).broken_at is None
    await late.close()
    await other.close()


# --- doubt ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "status", "performed"), [("repeat", "completed", 1), ("stop", "failed", 0), ("done", "completed", 0)]
)
async def test_a_person_decides_what_is_in_doubt(
    decision: str, status: str, performed: int, store: Store, tmp_path: Path
) -> None:
    held, asked = Held(), []

    async def clear() -> None:
        asked.append(len(await store.waits(run="run")))

    engine = engine_on(store, tmp_path, hold=held)
    engine._clear = clear
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    row = await engine.drive("run")
    assert row.status == "awaiting_approval"
    assert asked == [0], "what was left running is ended before anybody is asked"
    assert [s.status for s in await store.steps("run")] == ["in_doubt"]
    (wait,) = await store.waits(run="run")
    reply = {"decision": decision, "outcome": {"is": "ToolResult", "value": "as told"}}
    await store.complete_wait(wait.id, reply, "me", engine.clock())
    row = await engine.drive("run")
    assert (row.status, held.performed) == (status, performed)
    await engine.close()


@pytest.mark.parametrize("asked", [False, True])
async def test_a_doubt_remains_when_its_run_is_cancelled_and_retried(asked: bool, store: Store, tmp_path: Path) -> None:
    held, cleared = Held(), []

    async def clear() -> None:
        cleared.append(held.performed)

    engine = engine_on(store, tmp_path, hold=held)
    engine._clear = clear
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    if asked:
        assert (await engine.drive("run")).status == "awaiting_approval"
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await engine.drive("run")).status == "cancelled"
    assert [s.status for s in await store.steps("run")] == ["in_doubt"]
    assert cleared
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "awaiting_approval"
    (wait,) = await store.waits(run="run")
    assert (wait.kind, held.performed) == ("in_doubt", 0)
    await engine.close()


async def test_a_doubt_remains_however_its_run_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()

    async def broken(*about: object) -> None:
        raise OSError("Too many open files")

    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    engine._clear = broken
    assert (await engine.drive("run")).status == "awaiting_approval"
    monkeypatch.setattr("cuebook.kernel.engine.in_doubt.settle", broken)
    await store.signal(Signal("run", "cancel", {}, "me"))
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await engine.drive("run")).status == "cancelled"
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "failed"
    assert [s.status for s in await store.steps("run")] == ["in_doubt"]
    monkeypatch.undo()
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "awaiting_approval"
    (wait,) = await store.waits(run="run")
    assert (wait.kind, held.performed) == ("in_doubt", 0)
    await engine.close()


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize(("decision", "step"), [("done", "completed"), ("repeat", "in_doubt"), ("stop", "in_doubt")])
async def test_a_decision_about_a_doubt_counts_even_if_its_run_is_cancelled(
    decision: str, step: str, cancels: int, store: Store, tmp_path: Path
) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "undoing", hold=True)))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await engine.drive("run")
    (wait,) = await store.waits(run="run")
    reply = {"decision": decision, "outcome": {"is": "ToolResult", "value": "as told"}}
    await store.complete_wait(wait.id, reply, "ada", engine.clock())
    for _ in range(cancels):
        await store.signal(Signal("run", "cancel", {}, "me"))
    row = await engine.drive("run")
    closed = [entry.event async for entry in engine.entries("run") if isinstance(entry.event, WaitClosed)]
    assert [(one.how, one.by, one.answer["decision"]) for one in closed] == [("answered", "ada", decision)]
    if cancels == 2 and decision == "done":
        step = "failed"  # its outcome is known, and its run was cut off at once
    assert (held.performed, [s.status for s in await store.steps("run")]) == (0, [step]), row
    if row.status == "completed":
        return await engine.close()
    held.go.set()
    await store.signal(Signal("run", "retry", {}, "me"))
    row = await engine.drive("run")
    assert (row.status, held.performed) == ("completed" if decision == "done" else "awaiting_approval", 0)
    await engine.close()


async def test_an_idempotent_effect_is_repeated(store: Store, tmp_path: Path) -> None:
    held, cleared = Held(), []

    async def clear() -> None:
        cleared.append(held.performed)

    def start(state: Any) -> Program[Any]:
        return (yield CallTool("hold", idempotent=True)).value

    PROGRAMS["idempotent"] = lambda inputs: start
    engine = engine_on(store, tmp_path, hold=held)
    engine._clear = clear
    driving = asyncio.create_task(engine.drive(await begin(engine, "idempotent")))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    assert (await engine.drive("run")).status == "completed"
    attempts = [e.place.attempt async for e in engine.entries("run") if e.event.__class__.__name__ == "Performing"]
    assert attempts == [1, 2]
    assert cleared == [0], "what is repeated must not run beside what it repeats"
    await engine.close()


# --- determinism ----------------------------------------------------------------------------------------


async def test_a_program_that_deviates_from_its_journal_is_reported(store: Store, tmp_path: Path) -> None:
    tools = ["first"]

    def start(state: Any) -> Program[Any]:
        from cuebook.kernel.effects import AskHuman

        yield StepStarted("1")
        if tools[0] != "skip":
            yield append("x") if tools[0] == "first" else CallTool("other")
        yield AskHuman("Well?")

    PROGRAMS["fickle"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "fickle"))
    for change in ("second", "skip"):
        tools[0] = change
        await answer(engine, "run")
        with pytest.raises(NonDeterminism, match="step 1"):
            await engine.drive("run")
        row = await store.run("run")
        assert (row.status, row.reason, row.driver) == ("paused", "non_determinism", "")
    tools[0] = "first"
    assert (await engine.drive("run")).status == "completed"
    await engine.close()


async def test_a_defect_in_a_program_fails_its_run_with_a_place(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        raise ValueError("oops")

    PROGRAMS["defective"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "defective"))
    assert row.error is not None
    assert "ValueError: oops (test_engine.py:" in row.error.message
    await engine.close()


async def test_an_outcome_that_cannot_be_stored_fails_its_effect(store: Store, tmp_path: Path) -> None:
    class Odd:
        async def perform(self, effect: Any, call: Any) -> Any:
            return ToolResult(object())

    def start(state: Any) -> Program[Any]:
        yield CallTool("odd")

    PROGRAMS["odd"] = lambda inputs: start
    engine = engine_on(store, tmp_path, odd=Odd())
    row = await engine.drive(await begin(engine, "odd"))
    assert row.error is not None
    assert row.error.code == "not_storable"
    await engine.close()


# --- observers, watches, budgets ------------------------------------------------------------------------


async def test_observers_see_records_after_they_are_durable_and_never_harm(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    seen: list[Any] = []

    def broken(event: Any) -> None:
        raise RuntimeError("observer")

    engine.observe(broken)
    engine.observe(seen.append)
    await to_the_end(engine, await begin(engine, "everything"))
    published = [e.seq for e in seen if isinstance(e, Entry)]
    assert published == sorted(published) == [r.seq async for r in store.records("run")]
    chunks = [e for e in seen if isinstance(e, TextChunk) and e.step == "1"]
    assert "".join(c.text for c in chunks) == "echo draft"
    assert [c.id.split(".")[1] for c in chunks] == ["0", "4"]
    await engine.close()


class UpTo:
    """Stops a reply at a word; holds back the last characters while they may be the beginning of that word."""

    def __init__(self, word: str) -> None:
        self.word, self.held = word, ""

    def feed(self, text: str) -> Seen:
        self.held += text
        before, found, _ = self.held.partition(self.word)
        if found:
            return Seen(before, stop=True)
        keep = len(self.word)
        release, self.held = self.held[:-keep], self.held[-keep:]
        return Seen(release)

    def finish(self) -> str:
        return self.held


async def test_a_watch_releases_text_and_stops_a_reply(store: Store, tmp_path: Path) -> None:
    from cuebook.kernel.effects import Watch

    def start(state: Any) -> Program[Any]:
        first = yield AskModel("one two STOP three", watch=Watch("up_to", {"word": "STOP"}))
        second = yield AskModel("all of it", watch=Watch("up_to", {"word": "STOP"}))
        return [first.finish, first.released, second.finish, second.released]

    PROGRAMS["watched"] = lambda inputs: start
    engine = Engine(
        store,
        lambda row, text, inputs, options: PROGRAMS[row.name](inputs),
        performers(tmp_path),
        watches={"up_to": UpTo},
    )
    seen: list[str] = []
    engine.observe(lambda event: seen.append(event.text) if isinstance(event, TextChunk) else None)
    assert await to_the_end(engine, await begin(engine, "watched")) == ["watch", 13, "stop", 14]
    assert "".join(seen) == "echo one two echo all of it"
    await engine.close()


class Priced:
    """An echo that can estimate its cost in advance."""

    def __init__(self, cost: float | None) -> None:
        self.cost = cost

    async def perform(self, effect: AskModel, call: Any) -> Any:
        from tests.support.programs import EchoModel

        return await EchoModel(cost=self.cost).perform(effect, call)

    def estimate(self, effect: AskModel, settings: Settings) -> Any:
        from cuebook.kernel.ports import Estimate

        return Estimate(10, 100, self.cost)


@pytest.mark.parametrize(
    ("budget", "cost", "raised"),
    [
        (Budget(money=1.5), 1.0, {"budget": {"money": 5}}),
        (Budget(tokens=100), 1.0, {"budget": {"tokens": 10_000}}),
        (Budget(steps=1), 1.0, {"budget": {"steps": 9}}),
        (Budget(money=10), None, {"unknown_cost": True}),
    ],
)
async def test_a_spent_budget_pauses_until_it_is_raised(
    budget: Budget, cost: float | None, raised: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    def start(state: Any) -> Program[Any]:
        from cuebook.kernel.events import StepFinished

        for label in ("1", "2", "3"):
            yield StepStarted(label)
            yield AskModel(label)
            yield StepFinished(label)
        return "done"

    PROGRAMS["spending"] = lambda inputs: start
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: Priced(cost)})
    row = await engine.drive(await begin(engine, "spending", settings=Settings(budget=budget)))
    assert (row.status, row.reason) == ("paused", "budget")
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"settings": {}}, "me", engine.clock())
    assert (await engine.drive("run")).reason == "budget", "going on without raising it pauses again"
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"settings": raised}, "me", engine.clock())
    assert (await engine.drive("run")).status == "completed"
    await engine.close()


async def test_a_model_call_lost_in_a_crash_is_asked_again_and_its_cost_is_unknown(
    store: Store, tmp_path: Path
) -> None:
    class Stuck:
        def __init__(self) -> None:
            self.entered = asyncio.Event()
            self.calls = 0

        async def perform(self, effect: AskModel, call: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                self.entered.set()
                await asyncio.Event().wait()
            return await Priced(0.5).perform(effect, call)

    def start(state: Any) -> Program[Any]:
        return (yield AskModel("hello")).text

    PROGRAMS["asking"] = lambda inputs: start
    model = Stuck()
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: model})
    driving = asyncio.create_task(engine.drive(await begin(engine, "asking")))
    await model.entered.wait()
    await asyncio.sleep(0.05)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    row = await engine.drive("run")
    assert (row.status, row.totals.calls, row.totals.cost, row.totals.unknown_costs) == ("completed", 1, 0.5, 1)
    await engine.close()


async def test_an_effect_without_a_performer_fails_clearly(store: Store, tmp_path: Path) -> None:
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs))
    row = await engine.drive(await begin(engine, "failing"))
    assert row.error == Failed("no_performer", "Nothing here can perform 'CallTool'.", fix="Configure it first.")
    await engine.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE playbooks SET body = 'another'",
        "UPDATE texts SET body = 'another'",
        "UPDATE texts SET body = 'Be long.' WHERE body = 'Be brief.'",
        "UPDATE records SET body = replace(body, 'echo', 'ECHO') WHERE kind = 'Performed'",
        "UPDATE records SET kind = 'Driven' WHERE seq = 4",
        "DELETE FROM records WHERE seq = 5",
        *(
            f"UPDATE runs SET {change}"
            for change in (
                "status = 'failed'", "reason = 'budget'", "step = '1'", "model = 'other/model'", "created = created - 60",
                "updated = updated - 60", "totals = json_set(totals, '$.cost', 7.5)", "error = '{\"code\":\"x\",\"message\":\"y\"}'",
                "totals = json_set(totals, '$.steps_done', 1)", "owner = 'other'", "dialect = 'other'",
            )
        ),
        *(
            f"UPDATE steps SET {change} WHERE label = '2'"
            for change in (
                "body = json_set(body, '$.status', 'failed')", "body = json_set(body, '$.title', 'Another')",
                "body = json_set(body, '$.totals.cost', 7.5)", "body = json_set(body, '$.finished', 1.0)",
                "body = json_set(body, '$.reason', 'Because.')", "status = 'failed'", "seq = 1",
            )
        ),
        "DELETE FROM steps WHERE label = '2'",
        "INSERT INTO steps SELECT run, path, label, 9, seq, status, json_set(body, '$.visit', 9) FROM steps WHERE label = '2'",
        *(
            f"UPDATE waits SET {change}"
            for change in (
                "state = 'open'", "body = json_set(body, '$.prompt', 'Another?')", "body = json_set(body, '$.expires', 9.0)",
                "answer = '{\"value\":\"no\"}'", "decider = 'other'", "tenant = 'other'", "kind = 'timer'",
                "body = json_set(body, '$.details', json('{\"rules\":[1]}'))", "expires = 5.0", "opened = 5.0",
            )
        ),
        "DELETE FROM waits",
        "INSERT INTO waits SELECT 'w1', run, tenant, owner, state, expires, opened, json_set(body, '$.id', 'w1'), answer, decider, kind"
        " FROM waits",
    ],
)  # fmt: skip
async def test_verify_finds_every_change(change: str, file_store: SqliteStore, tmp_path: Path) -> None:
    engine = engine_on(file_store, tmp_path)
    await to_the_end(engine, await begin(engine, "everything"))
    assert (await engine.verify("run")).broken_at is None
    await engine.close()
    with closing(sqlite3.connect(file_store.path)) as other, other:
        assert other.execute(change).rowcount > 0
    again = SqliteStore(file_store.path)
    assert (await engine_on(again, tmp_path).verify("run")).broken_at is not None
    await again.close()


@pytest.mark.parametrize("shape", ["concurrent", "nested", "checkpointed", "failing", "undoing", "catching"])
async def test_the_rows_match_the_journal_whenever_the_run_rests(shape: str, store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await begin(engine, shape)
    assert (await engine.verify("run")).problem == ""
    for _ in range(6):
        row = await engine.drive("run")
        assert (await engine.verify("run")).problem == ""
        if row.status == "failed":
            await store.signal(Signal("run", "retry", {}, "me"))
        elif row.status == "completed":
            break
        for wait in await store.waits(run="run"):
            await store.complete_wait(wait.id, {"value": "yes", "decision": "stop"}, "me", engine.clock())
        assert (await engine.verify("run")).problem == ""
    await engine.close()

"""A dry replay runs a program on its journal alone and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import Program
from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import StepStarted
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings, Signal
from tests.support.programs import PROGRAMS, append, begin, engine_on, lines


async def test_a_waiting_run_is_rehearsed_to_where_it_waits(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    before = [record.seq async for record in store.records("run")]
    rehearsal = await engine.replay("run")
    assert (rehearsal.complete, rehearsal.effects, rehearsal.failed) == (False, 2, None)
    assert [event.label for event in rehearsal.events if isinstance(event, StepStarted)] == ["1", "2"]
    assert [record.seq async for record in store.records("run")] == before
    await engine.close()


async def test_a_failed_run_fails_again_in_the_same_way(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "failing", tool="fail"))
    rehearsal = await engine.replay("run")
    assert rehearsal.failed == row.error
    assert lines(tmp_path) == ["step 1", "step 2"]
    await engine.close()


async def test_a_cancelled_run_shows_its_rollback(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "undoing"))
    await store.signal(Signal("run", "cancel", {}, "me"))
    await engine.drive("run")
    rehearsal = await engine.replay("run")
    assert rehearsal.failed is not None
    assert (rehearsal.failed.code, rehearsal.effects) == ("cancelled", 3)
    await engine.close()


async def test_a_run_that_was_retried_is_rehearsed_as_it_ended(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "failing"))
    await store.signal(Signal("run", "retry", {}, "me"))
    await engine.drive("run")
    rehearsal = await engine.replay("run")
    assert (rehearsal.complete, rehearsal.result, rehearsal.effects) == (True, "done", 4)
    await engine.close()


async def test_a_pause_with_overrides_is_rehearsed_with_them(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything", settings=Settings(breakpoints=("1",))))
    for answer in ({"overrides": {"draft": "mine"}}, {"value": "no"}):
        (wait,) = await store.waits(run="run")
        await store.complete_wait(wait.id, answer, "me", engine.clock())
        await engine.drive("run")
    assert (await engine.replay("run")).result["final"] == "echo apology"
    await engine.close()


@pytest.mark.parametrize("change", ["result", "way", "early end", "failure"])
async def test_a_changed_program_is_detected(change: str, store: Store, tmp_path: Path) -> None:
    changed: list[str] = []

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield append("one")
        if "early end" in changed:
            return "done"
        if "failure" in changed:
            raise ValueError("a defect")
        yield append("other") if "way" not in changed else StepStarted("2")
        yield append("two")
        return "otherwise" if "result" in changed else "done"

    PROGRAMS["changing"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "changing"))
    assert (await engine.replay("run")).complete
    changed.append(change)
    with pytest.raises(NonDeterminism):
        await engine.replay("run")
    await engine.close()

"""A process that is about to stop hands its runs over between two effects: nothing is repeated, nothing is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AskHuman, AskModel, Branch, CallTool, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Refused
from cuebook.kernel.events import ModelAsked, Performing, StepStarted
from cuebook.kernel.outcomes import AnyOutcome
from cuebook.kernel.ports import Call, Store
from tests.support.programs import PROGRAMS, Held, LineTool, append, begin, engine_on, lines


def branching(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """One branch is inside an effect, one is between two, one waits for a person."""

    def acting(state: Any) -> Program[Any]:
        yield CallTool("hold")
        yield append("after the hold")

    def asking(state: Any) -> Program[Any]:
        yield append("before the question")
        return (yield AskHuman("Well?")).value

    def quick(state: Any) -> Program[Any]:
        for number in range(3):
            yield append(f"quick {number}")
        yield AskModel("think")

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield All((Branch(acting), Branch(asking), Branch(quick)))
        yield append("end")

    return start


class Stopping(LineTool):
    """A tool whose process is asked to stop while it works."""

    engine: Engine

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        self.engine.hand_over()
        return await super().perform(effect, call)


async def held_up(engine: Engine, held: Held, name: str, **inputs: Any) -> asyncio.Task[Any]:
    """Drives a run until it is inside the held effect."""
    driving = asyncio.create_task(engine.drive(await begin(engine, name, **inputs)))
    await asyncio.wait_for(held.entered.wait(), 30)
    return driving


async def test_an_effect_in_progress_finishes_and_the_next_one_is_performed_elsewhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROGRAMS, "branching", branching)
    held = Held()
    first = engine_on(store, tmp_path, hold=held)
    driving = await held_up(first, held, "branching")
    while "quick 2" not in lines(tmp_path):
        await asyncio.sleep(0.01)
    first.hand_over()
    await asyncio.sleep(0.05)
    assert not driving.done()  # it is still inside an effect
    held.go.set()
    row = await driving
    assert (row.status, row.driver, held.performed, held.interrupted) == ("running", "", 1, 0)
    assert "after the hold" not in lines(tmp_path)
    with pytest.raises(Refused, match="shutting down"):
        await first.drive("run")

    second = engine_on(store, tmp_path, hold=held)
    assert "run" in await store.ready(second.clock(), second.driver)
    assert (await second.drive("run")).status == "awaiting_input"
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"value": "yes"}, "me", second.clock())
    assert (await second.drive("run")).status == "completed"
    written = lines(tmp_path)
    assert (len(written), len(set(written)), held.performed) == (6, 6, 1)
    began = [e.event async for e in second.entries("run") if isinstance(e.event, Performing | ModelAsked)]
    assert len(began) == 8  # each effect once
    assert (await second.verify("run")).broken_at is None
    assert (await second.replay("run")).complete
    await first.close()
    await second.close()


async def test_a_run_that_ends_with_its_effect_is_not_handed_over(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    driving = await held_up(engine, held, "undoing", hold=True)
    engine.hand_over()
    held.go.set()
    assert (await driving).status == "completed"
    await engine.close()


@pytest.mark.parametrize("name", ["everything", "concurrent", "checkpointed", "nested", "catching"])
async def test_a_run_may_change_hands_before_every_effect(name: str, store: Store, tmp_path: Path) -> None:
    """Each engine is about to stop during its first side effect, and the run ends as if one engine had driven it."""
    calm = tmp_path / "calm"
    calm.mkdir()
    engine = engine_on(store, calm)
    await _to_the_end(engine, await begin(engine, name, "calm"))
    await engine.close()
    owner = engine_on(store, tmp_path)
    run = await begin(owner, name)
    await owner.close()
    hands = 0
    while (await store.run(run)).status != "completed":
        stopping = Stopping(tmp_path / "lines")
        one = stopping.engine = engine_on(store, tmp_path, append=stopping)
        hands += (await one.drive(run)).status == "running"
        await _answer(store, run)
        await one.close()
    assert hands or name == "catching"  # its branches are all inside an effect at that moment
    last = engine_on(store, tmp_path)
    assert sorted(lines(tmp_path)) == sorted(lines(calm))
    assert (await last.verify(run)).broken_at is None
    await last.close()


async def _answer(store: Store, run: str) -> None:
    for wait in await store.waits(run=run):
        await store.complete_wait(wait.id, {"value": "yes"}, "me", store.now())


async def _to_the_end(engine: Engine, run: str) -> None:
    row = await engine.store.run(run)
    while row.status != "completed":
        await _answer(engine.store, run)
        row = await engine.drive(run)
        assert row.status in ("completed", "awaiting_input", "paused"), row.error

"""Edge cases of driving: checkpoints within steps, crashes during rollback, misbehaving performers, changed programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, AskHuman, AskModel, Branch, Breakpoint, CallTool, Checkpoint, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import StepFinished, StepStarted, ValueSet
from cuebook.kernel.outcomes import Cancelled, EffectFailed, Failed, Reply, ToolResult, Usage
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings, Signal
from tests.support.programs import PROGRAMS, Held, append, begin, engine_on, lines


def program(name: str, start: Callable[[Any], Program[Any]]) -> str:
    PROGRAMS[name] = lambda inputs: start
    return name


async def answer(engine: Engine) -> None:
    for wait in await engine.store.waits(run="run"):
        await engine.store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())


class Doing:
    """A tool that runs a function of the test."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self.what = what

    async def perform(self, effect: Any, call: Any) -> Any:
        return await self.what()


async def test_a_checkpoint_within_a_step_repeats_nothing_and_hides_no_breakpoint(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        if state is None:
            yield StepStarted("1")
            yield ValueSet("a", 1)
            yield Checkpoint("here")
        yield AskHuman("Go on?")
        yield StepFinished("1")
        yield Breakpoint("1")

    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, program("within", start), settings=Settings(breakpoints=("1",))))
    await engine.drive("run")
    await answer(engine)
    assert (await engine.drive("run")).status == "paused"
    assert [e.seq async for e in engine.entries("run") if isinstance(e.event, ValueSet)] == [4]
    await engine.close()


async def test_rollback_continues_after_a_crash_and_after_a_checkpoint(store: Store, tmp_path: Path) -> None:
    held = Held()

    def start(state: Any) -> Program[Any]:
        if state is None:
            try:
                yield All((AskHuman("One?"), AskHuman("Two?")))
            except Cancelled:
                yield append("undo one")
                yield Checkpoint("undoing")
        yield CallTool("hold", idempotent=True)
        yield append("undo two")

    engine = engine_on(store, tmp_path, hold=held)
    await engine.drive(await begin(engine, program("rollback", start)))
    await store.signal(Signal("run", "cancel", {}, "me"))
    driving = asyncio.create_task(engine.drive("run"))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    assert (await engine.drive("run")).status == "cancelled"
    assert lines(tmp_path) == ["undo one", "undo two"]
    await engine.close()


async def test_a_performer_that_does_not_stop_changes_nothing_after_a_hard_cancel(store: Store, tmp_path: Path) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def stubborn() -> Any:
        entered.set()
        while not go.is_set():
            try:
                await asyncio.wait_for(asyncio.shield(go.wait()), 0.2)
            except (TimeoutError, asyncio.CancelledError):
                go.set()
        return ToolResult("late")

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        try:
            yield AskHuman("Well?")
        except Cancelled:
            yield CallTool("stubborn")
            yield append("never")

    engine = engine_on(store, tmp_path, stubborn=Doing(stubborn))
    await engine.drive(await begin(engine, program("hard", start)))
    await store.signal(Signal("run", "cancel", {}, "me"))
    driving = asyncio.create_task(engine.drive("run"))
    await entered.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    row = await driving
    last = [record.kind async for record in store.records("run")][-1]
    assert (row.status, last, lines(tmp_path)) == ("cancelled", "RunFinished", [])
    assert [step.status for step in await store.steps("run")] == ["in_doubt"]
    await engine.close()


async def test_a_performer_that_cancels_itself_fails_its_effect(store: Store, tmp_path: Path) -> None:
    async def odd() -> Any:
        raise asyncio.CancelledError

    def start(state: Any) -> Program[Any]:
        yield CallTool("odd")

    engine = engine_on(store, tmp_path, odd=Doing(odd))
    row = await engine.drive(await begin(engine, program("cancels itself", start)))
    assert row.error is not None
    assert (row.status, row.error.code) == ("failed", "performer_error")
    await engine.close()


@pytest.mark.parametrize("code", ["cancelled", "expired", "in_doubt"])
async def test_only_the_engine_reports_cancelled_and_expired(code: str, store: Store, tmp_path: Path) -> None:
    async def odd() -> Any:
        return Failed(code, "Said the tool.")

    def start(state: Any) -> Program[Any]:
        try:
            yield CallTool("odd")
        except EffectFailed as error:
            return error.failed.code

    engine = engine_on(store, tmp_path, odd=Doing(odd))
    row = await engine.drive(await begin(engine, program("speaks", start)))
    assert row.status == "completed"
    assert (await engine.replay("run")).result == f"effect_{code}"
    await engine.close()


async def test_nan_does_not_reach_the_rows(store: Store) -> None:
    async def odd() -> Any:
        return Reply(Text("x"), usage=Usage(1, 1, cost=float("inf")))

    def start(state: Any) -> Program[Any]:
        yield AskModel("?")

    PROGRAMS["no number"] = lambda inputs: start
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: Doing(odd)})
    row = await engine.drive(await begin(engine, "no number"))
    assert (row.status, row.totals.unknown_costs) == ("completed", 1)
    assert len(await store.runs()) == 1
    await engine.close()


async def test_a_different_path_is_detected_while_a_sibling_waits(store: Store, tmp_path: Path) -> None:
    tool = ["append"]

    def working(state: Any) -> Program[Any]:
        yield CallTool(tool[0], {"line": "x"})
        yield AskHuman("Two?")

    def start(state: Any) -> Program[Any]:
        yield All((AskHuman("One?"), Branch(working)))

    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, program("hidden", start)))
    tool[0] = "other"
    with pytest.raises(NonDeterminism, match="CallTool other"):
        await engine.drive("run")
    await engine.close()


@pytest.mark.parametrize("change", ["ends", "an All", "another effect"])
async def test_an_effect_in_doubt_is_not_skipped(change: str, store: Store, tmp_path: Path) -> None:
    held, now = Held(), ["as it was"]

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        if now[0] == "as it was":
            yield CallTool("hold")
        elif now[0] == "an All":
            yield All((append("x"),))
        elif now[0] == "another effect":
            yield append("x")

    engine = engine_on(store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, program("doubtful", start))))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    now[0] = change
    with pytest.raises(NonDeterminism, match="step 1"):
        await engine.drive("run")
    assert lines(tmp_path) == []
    await engine.close()

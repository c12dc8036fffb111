"""A retried run continues at the failed effect; earlier outcomes and decisions are kept."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AskHuman, Bound, Branch, CallTool, Checkpoint, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Refused
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import AnyOutcome, EffectFailed, Failed, ToolResult
from cuebook.kernel.ports import Call, Store
from cuebook.kernel.run import RunRow, Signal
from tests.support.programs import PROGRAMS, append, begin, engine_on, lines


async def answer(engine: Engine, value: str = "yes") -> None:
    for wait in await engine.store.waits(run="run"):
        await engine.store.complete_wait(wait.id, {"value": value}, "me", engine.clock())


async def retry(engine: Engine, **payload: Any) -> RunRow:
    await engine.store.signal(Signal("run", "retry", payload, "me"))
    return await engine.drive("run")


async def test_a_retry_passes_only_the_bound_that_failed(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        for number in range(2):
            yield StepStarted(str(number))
            yield append(f"before {number}")
            yield Bound("most", Failed("too_much", f"No more at {number}."))
        return "done"

    PROGRAMS["bounded"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "bounded"))
    for number in range(2):
        assert (row.status, str(row.error)) == ("failed", f"No more at {number}.")
        row = await retry(engine)
    assert (row.status, lines(tmp_path)) == ("completed", ["before 0", "before 1"])
    assert (await engine.replay(row.id)).result == "done"
    await engine.close()


async def test_each_failed_branch_continues_and_finished_ones_are_kept(store: Store, tmp_path: Path) -> None:
    def worker(name: str, tool: str) -> Branch:
        def start(state: Any) -> Program[Any]:
            yield append(f"{name} begins")
            yield CallTool(tool, {"line": f"{name} acts"})
            return name

        return Branch(start)

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        outcomes = yield All((worker("a", "fail_once"), worker("b", "append"), worker("c", "fail_once")))
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise EffectFailed(outcome)
        return list(outcomes)

    PROGRAMS["partly failing"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    assert (await engine.drive(await begin(engine, "partly failing"))).status == "failed"
    row = await retry(engine)
    assert (row.status, (await engine.replay("run")).result) == ("completed", ["a", "b", "c"])
    written = lines(tmp_path)
    assert [written.count(f"{name} begins") for name in "abc"] == [1, 1, 1]
    assert [written.count(f"{name} acts") for name in "abc"] == [2, 1, 2]
    await engine.close()


def rounds(inputs: dict[str, Any]) -> Any:
    """Asks in each round, and checkpoints after it."""

    def start(state: Any) -> Program[Any]:
        for number in range(state or 0, 3):
            yield append(f"round {number}")
            yield AskHuman("Go on?")
            yield Checkpoint(number + 1)
        return "done"

    return start


PROGRAMS["rounds"] = rounds


async def test_a_voided_cancel_does_not_return_after_a_checkpoint(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "rounds"))
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await engine.drive("run")).status == "cancelled"
    assert (await retry(engine)).status == "awaiting_input"
    for status in ("awaiting_input", "awaiting_input", "completed"):
        await answer(engine)
        assert (await engine.drive("run")).status == status
    assert lines(tmp_path) == ["round 0", "round 1", "round 2"]
    assert (await engine.replay("run")).complete
    await engine.close()


async def test_a_cancel_that_came_too_late_does_not_wait_for_the_retry(store: Store, tmp_path: Path) -> None:
    class Failing:
        def __init__(self) -> None:
            self.entered, self.go, self.calls = asyncio.Event(), asyncio.Event(), 0

        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            self.calls += 1
            self.entered.set()
            await self.go.wait()
            return Failed("no", "It failed.") if self.calls == 1 else ToolResult("fine")

    def start(state: Any) -> Program[Any]:
        return (yield CallTool("fails")).value

    PROGRAMS["failing late"] = lambda inputs: start
    tool = Failing()
    engine = Engine(
        store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {CallTool: tool}, listen_every=60
    )
    driving = asyncio.create_task(engine.drive(await begin(engine, "failing late")))
    await tool.entered.wait()
    tool.go.set()
    with suppress(Refused):  # the store may know already that the run has failed
        await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await driving).status == "failed"
    assert (await retry(engine)).status == "completed"
    await engine.close()


async def test_the_whole_step_restarts_at_its_beginning_even_after_a_checkpoint(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        if state is None:
            yield StepStarted("1")
            yield append("one")
            yield StepFinished("1")
            yield StepStarted("2")
            yield append("two")
            yield AskHuman("Go on?")
            yield Checkpoint("within step 2")
        yield CallTool("fail_once", {"line": "fragile"})
        yield StepFinished("2")
        return "done"

    PROGRAMS["checkpointed within"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "checkpointed within"))
    await answer(engine)
    assert (await engine.drive("run")).status == "failed"
    row = await retry(engine, whole_step=True)
    assert row.status == "awaiting_input", row.error
    await answer(engine)
    assert (await engine.drive("run")).status == "completed"
    assert lines(tmp_path) == ["one", "two", "fragile", "two", "fragile"]
    await engine.close()


class Keys:
    """Notes the key of each effect that it performs; fails or blocks as the test requires."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}
        self.fail, self.hold = True, False
        self.entered = asyncio.Event()

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        self.seen.setdefault(effect.tool, []).append(call.key)
        if effect.tool == "first" and self.fail:
            return Failed("no", "It failed.")
        if effect.tool == "second" and self.hold:
            self.entered.set()
            await asyncio.Event().wait()
        return ToolResult("fine")


@pytest.mark.parametrize("whole_step", [False, True])
async def test_an_effects_key_stays_until_its_whole_step_is_repeated(store: Store, whole_step: bool) -> None:
    def start(state: Any) -> Program[Any]:
        if state is None:
            yield CallTool("first", idempotent=True)
            yield Checkpoint(1)
        yield CallTool("second", idempotent=True)
        return "done"

    PROGRAMS["keyed"] = lambda inputs: start
    tool = Keys()
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {CallTool: tool})
    assert (await engine.drive(await begin(engine, "keyed"))).status == "failed"
    tool.fail, tool.hold = False, True
    await store.signal(Signal("run", "retry", {"whole_step": whole_step}, "me"))
    driving = asyncio.create_task(engine.drive("run"))
    await tool.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    tool.hold = False
    assert (await engine.drive("run")).status == "completed"
    assert len(tool.seen["first"]) == 2
    assert len(set(tool.seen["first"])) == 1 + whole_step, (
        "what failed may have happened: it is tried as the same request"
    )
    assert len(tool.seen["second"]) == 2
    assert len(set(tool.seen["second"])) == 1, "what is repeated after a crash is the same request"
    await engine.close()


@pytest.mark.parametrize("whole_step", [False, True])
async def test_a_run_that_failed_without_an_effect_continues_at_its_step(
    whole_step: bool, store: Store, tmp_path: Path
) -> None:
    fixed: list[str] = []

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield append("one")
        yield StepFinished("1")
        yield StepStarted("2")
        yield append("two")
        if not fixed:
            raise ValueError("a defect")
        return "done"

    PROGRAMS["defective once"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    assert (await engine.drive(await begin(engine, "defective once"))).status == "failed"
    fixed.append("yes")
    assert (await retry(engine, whole_step=whole_step)).status == "completed"
    assert lines(tmp_path) == ["one", "two", "two"]
    await engine.close()

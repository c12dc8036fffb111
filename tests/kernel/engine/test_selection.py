"""An `All` with a limit: so many branches at once, and an early end by the first failure or the first success."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, AskHuman, Branch, CallTool, Program, WithTexts
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import BranchFinished, Performed, StepFinished, StepStarted, WaitClosed
from cuebook.kernel.fold.dry_replay import rehearse
from cuebook.kernel.outcomes import EffectFailed, Failed, ToolResult
from cuebook.kernel.ports import Call, Store
from cuebook.kernel.run import Signal
from tests.support.programs import PROGRAMS, Held, append, begin, engine_on, lines, program_of


def program(name: str, start: Callable[[Any], Program[Any]]) -> str:
    PROGRAMS[name] = lambda inputs: start
    return name


def worker(name: str, effect: Any) -> Branch:
    def start(state: Any) -> Program[Any]:
        yield StepStarted(name)
        yield effect
        yield StepFinished(name)
        return name

    return Branch(start)


def codes(outcomes: Any) -> list[str]:
    return [one.code if isinstance(one, Failed) else one for one in outcomes]


async def same_on_replay(engine: Engine) -> None:
    row = await engine.store.run("run")
    entries = [entry async for entry in engine.entries("run")]
    rehearse(program_of, row, "text", entries)


class Counted:
    """A tool that knows how many of its calls were under way at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0

    async def perform(self, effect: CallTool, call: Call) -> Any:
        self.calls += 1
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(3):
            await asyncio.sleep(0)
        self.now -= 1
        return ToolResult(effect.arguments["line"])


async def test_only_so_many_branches_run_at_once(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        made = tuple(worker(str(n), CallTool("counted", {"line": str(n)})) for n in range(20))
        return codes((yield All(made, at_once=3)))

    counted = Counted()
    engine = engine_on(store, tmp_path, counted=counted)
    row = await engine.drive(await begin(engine, program("bounded", start)))
    assert row.status == "completed", row.error
    assert (counted.calls, counted.most) == (20, 3)
    await same_on_replay(engine)
    await engine.close()


async def test_a_waiting_branch_does_not_keep_the_others_from_beginning(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        made = (worker("ask", AskHuman("Well?")), *(worker(str(n), append(str(n))) for n in range(5)))
        return codes((yield All(made, at_once=2)))

    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, program("with_question", start)))
    assert row.status == "awaiting_input"
    assert lines(tmp_path) == ["0", "1", "2", "3", "4"]
    (wait,) = await engine.store.waits(run="run")
    await engine.store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
    assert (await engine.drive("run")).status == "completed"
    assert lines(tmp_path) == ["0", "1", "2", "3", "4"]
    await engine.close()


async def test_after_a_failure_no_branch_begins_and_a_retry_continues_there(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("loop")
        made = tuple(
            worker(str(n), CallTool("fail_once", {"line": "1"}) if n == 1 else append(str(n))) for n in range(6)
        )
        outcomes = yield All(made, at_once=1, until="failure")
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise EffectFailed(outcome)
        yield StepFinished("loop")
        return codes(outcomes)

    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, program("stopping", start)))
    assert row.status == "failed"
    assert lines(tmp_path) == ["0", "1"]
    await same_on_replay(engine)
    await engine.store.signal(Signal("run", "retry", {}, "me"))
    row = await engine.drive("run")
    assert row.status == "completed", row.error
    assert lines(tmp_path) == ["0", "1", "1", "2", "3", "4", "5"]
    await same_on_replay(engine)
    await engine.close()


async def test_the_first_success_interrupts_the_others_and_says_what_is_in_doubt(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("race")
        made = (
            worker("slow", CallTool("hold")),
            worker("asks", AskHuman("Well?")),
            worker("fast", CallTool("after")),
            worker("late", append("late")),
        )
        outcomes = yield All(made, at_once=3, until="success")
        yield StepFinished("race")
        return codes(outcomes)

    held = Held()

    class After:
        async def perform(self, effect: CallTool, call: Call) -> Any:
            await held.entered.wait()
            return ToolResult("fast")

    engine = engine_on(store, tmp_path, hold=held, after=After())
    row = await engine.drive(await begin(engine, program("race", start)))
    assert row.status == "completed", row.error
    assert held.interrupted == 1
    assert lines(tmp_path) == []
    entries = [entry async for entry in engine.entries("run")]
    finished = {entry.place.path: entry.event for entry in entries if isinstance(entry.event, BranchFinished)}
    assert sorted((event.failed.code if event.failed else "") for event in finished.values()) == [
        "",
        "superseded",
        "superseded",
    ]
    cut = [e.event.outcome for e in entries if isinstance(e.event, Performed) and isinstance(e.event.outcome, Failed)]
    assert sorted(outcome.details.get("in_doubt", False) for outcome in cut) == [False, True]
    assert [e.event.how for e in entries if isinstance(e.event, WaitClosed)] == ["cancelled"]
    assert {step.label: step.status for step in await engine.store.steps("run")}["slow"] == "in_doubt"
    assert not await engine.store.waits(run="run")
    await same_on_replay(engine)
    await engine.close()


async def test_a_cancelled_run_begins_no_further_branch(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        made = (worker("asks", AskHuman("Well?")), *(worker(str(n), append(str(n))) for n in range(3)))
        yield StepStarted("loop")
        outcomes = yield All(made, at_once=1)
        yield StepFinished("loop")
        return codes(outcomes)

    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, program("cancelled_loop", start)))
    await engine.store.signal(Signal("run", "cancel", {}, "me"))
    row = await engine.drive("run")
    assert row.status == "cancelled"
    assert lines(tmp_path) == []
    await engine.close()


async def test_long_texts_of_a_branch_are_stored_by_reference(store: Store, tmp_path: Path) -> None:
    long = "x" * 50_000

    def branch(state: Any) -> Program[Any]:
        yield append("one")
        return WithTexts({"length": len(long)}, (Text(long),))

    def start(state: Any) -> Program[Any]:
        ((value, texts),) = yield All((Branch(branch),), at_once=1)
        yield AskHuman("Well?")
        return [value, len(str(texts[0]))]

    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, program("long_texts", start)))
    (wait,) = await engine.store.waits(run="run")
    await engine.store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
    row = await engine.drive("run")
    assert row.status == "completed", row.error
    assert max([len(record.body) async for record in engine.store.records("run", 0)]) < 5_000
    await same_on_replay(engine)
    await engine.close()

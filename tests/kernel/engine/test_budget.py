"""Budgets are checked before a model is asked, against the maximum that the call may use, and before any other effect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AskModel, CallTool, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import AnyOutcome, Failed, ToolResult
from cuebook.kernel.ports import Call, Estimate, Store
from cuebook.kernel.run import Budget, RunRow, Settings, Signal
from tests.support.programs import PROGRAMS, EchoModel, append, begin, engine_on, lines


class Priced(EchoModel):
    """An echo that may use a hundred tokens and estimates its cost in advance."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        return Estimate(10, 90, self.cost)


def one_call(state: Any) -> Program[Any]:
    return (yield AskModel("?")).text


async def driven(store: Store, model: EchoModel, budget: Budget, **settings: Any) -> RunRow:
    PROGRAMS["one call"] = lambda inputs: one_call
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: model})
    row = await engine.drive(await begin(engine, "one call", settings=Settings(budget=budget, **settings)))
    await engine.close()
    return row


@pytest.mark.parametrize(
    ("budget", "cost"),
    [
        (Budget(), None),
        (Budget(tokens=100), 1.0),
        (Budget(money=1.0), 1.0),
        (Budget(money=0.0), 0.0),
        (Budget(tokens=100), None),
        (Budget(steps=1, seconds=1000), 1.0),
    ],
)
async def test_a_call_that_fits_is_made(budget: Budget, cost: float | None, store: Store) -> None:
    assert (await driven(store, Priced(cost=cost), budget)).status == "completed"


@pytest.mark.parametrize(
    ("budget", "cost", "code"),
    [
        (Budget(tokens=99), 1.0, "tokens"),
        (Budget(money=0.99), 1.0, "money"),
        (Budget(money=100.0), None, "unknown_price"),
        (Budget(steps=0), 1.0, "steps"),
        (Budget(seconds=0), 1.0, "seconds"),
    ],
)
async def test_a_call_that_may_exceed_the_budget_needs_approval_first(
    budget: Budget, cost: float | None, code: str, store: Store
) -> None:
    model = Priced(cost=cost)
    row = await driven(store, model, budget)
    assert (row.status, row.reason, model.calls) == ("paused", "budget", [])
    (wait,) = await store.waits(run="run")
    assert wait.details == {"code": code}


async def test_an_unknown_price_may_be_accepted_in_advance(store: Store) -> None:
    assert (await driven(store, Priced(cost=None), Budget(money=1.0), unknown_cost=True)).status == "completed"


@pytest.mark.parametrize("budget", [Budget(tokens=7), Budget(money=1.0)])
async def test_a_spent_budget_stays_spent_even_if_the_size_of_a_call_is_unknown(budget: Budget, store: Store) -> None:
    def start(state: Any) -> Program[Any]:
        yield AskModel("?")
        yield AskModel("?")

    PROGRAMS["two calls"] = lambda inputs: start
    model = EchoModel(cost=1.0)
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: model})
    settings = Settings(budget=budget, unknown_cost=True)
    row = await engine.drive(await begin(engine, "two calls", settings=settings))
    assert (row.status, row.reason, len(model.calls)) == ("paused", "budget", 1)
    await engine.close()


async def test_calls_in_progress_count_too(store: Store) -> None:
    def start(state: Any) -> Program[Any]:
        yield All(tuple(AskModel(str(number)) for number in range(5)))

    PROGRAMS["five calls"] = lambda inputs: start
    model = Priced(cost=1.0)
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: model})
    row = await engine.drive(await begin(engine, "five calls", settings=Settings(budget=Budget(money=3.0))))
    assert (row.reason, row.totals.cost, len(model.calls)) == ("budget", 3.0, 3)
    await engine.close()


async def test_the_time_of_the_current_drive_counts(store: Store, tmp_path: Path) -> None:
    class Nap:
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            await asyncio.sleep(0.02)
            return ToolResult("rested")

    def start(state: Any) -> Program[Any]:
        yield CallTool("nap")
        yield AskModel("?")

    PROGRAMS["napping"] = lambda inputs: start
    engine = engine_on(store, tmp_path, nap=Nap())
    row = await engine.drive(await begin(engine, "napping", settings=Settings(budget=Budget(seconds=0.01))))
    assert row.reason == "budget"
    await engine.close()


@pytest.mark.parametrize("budget", [Budget(seconds=0.0), Budget(steps=0)])
async def test_nothing_is_done_once_time_or_steps_are_used_up(budget: Budget, store: Store, tmp_path: Path) -> None:
    """Also without a model: a tool waits for a larger budget and is then called."""
    engine = engine_on(store, tmp_path)
    PROGRAMS["one tool"] = lambda inputs: lambda state: one_tool()
    row = await engine.drive(await begin(engine, "one tool", settings=Settings(budget=budget)))
    assert (row.status, row.reason) == ("paused", "budget")
    assert lines(tmp_path) == []
    (wait,) = await store.waits(run=row.id)
    larger = {"settings": {"budget": {"seconds": 1000, "steps": 10}}}
    await store.complete_wait(wait.id, larger, "me", engine.clock())
    assert (await engine.drive(row.id)).status == "completed"
    assert lines(tmp_path) == ["once"]
    await engine.close()


def one_tool() -> Program[Any]:
    return (yield append("once")).value


@pytest.mark.parametrize("budget", [Budget(seconds=0.0), Budget(steps=2)])
async def test_steps_that_do_nothing_outside_are_within_the_budget_too(
    budget: Budget, store: Store, tmp_path: Path
) -> None:
    def start(state: Any) -> Program[Any]:
        for number in range(5):
            yield StepStarted(str(number))
            yield StepFinished(str(number))
        return "done"

    PROGRAMS["only steps"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "only steps", settings=Settings(budget=budget)))
    for larger in ({"seconds": 1000, "steps": 4}, {"seconds": 1000, "steps": 10}):
        assert (row.status, row.reason) == ("paused", "budget")
        (wait,) = await store.waits(run=row.id)
        await store.complete_wait(wait.id, {"settings": {"budget": larger}}, "me", engine.clock())
        row = await engine.drive(row.id)
    assert (row.status, row.totals.steps_done) == ("completed", 5)
    assert (await engine.replay(row.id)).complete
    await engine.close()


async def test_a_run_that_waits_before_a_step_can_be_cancelled(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield StepFinished("1")
        yield StepStarted("2")
        yield append("once")

    PROGRAMS["a step"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "a step", settings=Settings(budget=Budget(steps=1))))
    assert (row.status, row.step) == ("paused", "2")
    await store.signal(Signal(row.id, "cancel", {}, "me"))
    assert (await engine.drive(row.id)).status == "cancelled"
    assert (lines(tmp_path), await store.waits(run=row.id)) == ([], [])
    await engine.close()


async def test_an_effect_gets_no_more_time_than_the_run_has_left(store: Store, tmp_path: Path) -> None:
    given: list[float] = []

    class Timed:
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            given.append(call.limits.seconds)
            await asyncio.sleep(min(call.limits.seconds, 0.6))
            return Failed("timeout", "It took too long.")

    engine = engine_on(store, tmp_path, append=Timed())
    PROGRAMS["one tool"] = lambda inputs: lambda state: one_tool()
    row = await engine.drive(await begin(engine, "one tool", settings=Settings(budget=Budget(seconds=0.5))))
    assert row.error is not None
    assert row.error.code == "budget_spent"
    assert "the run's budget of 0.5 s" in row.error.message
    assert 0.0 < given[0] <= 0.5
    for name, seconds in (("other", 500.0), ("ended by itself", 5.0)):
        row = await engine.drive(await begin(engine, "one tool", name, Settings(budget=Budget(seconds=seconds))))
        assert row.error is not None
        assert (row.error.code, row.error.message) == ("timeout", "It took too long.")
    await engine.close()


async def test_a_repeatable_effect_waits_for_more_time_each_time_it_runs_out(store: Store, tmp_path: Path) -> None:
    given: list[float] = []

    class Timed:
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            given.append(call.limits.seconds)
            if call.limits.seconds > 10:
                return ToolResult("done")
            await asyncio.sleep(call.limits.seconds)
            return Failed("timeout", "It took too long.")

    def start(state: Any) -> Program[Any]:
        return (yield CallTool("append", idempotent=True)).value

    PROGRAMS["repeatable"] = lambda inputs: start
    engine = engine_on(store, tmp_path, append=Timed())
    row = await engine.drive(await begin(engine, "repeatable", settings=Settings(budget=Budget(seconds=0.5))))
    for seconds in (1, 1.5, 1000):
        assert (row.status, row.reason) == ("paused", "budget")
        (wait,) = [one for one in await store.waits(run=row.id) if one.state == "open"]
        await store.complete_wait(wait.id, {"settings": {"budget": {"seconds": seconds}}}, "me", engine.clock())
        row = await engine.drive(row.id)
    assert row.status == "completed"
    assert len(given) == 4
    await engine.close()

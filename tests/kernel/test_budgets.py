"""A budget is checked before a model is asked, against the most that the call may use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AnyOutcome, AskModel, CallTool, Program, ToolResult
from cuebook.kernel.engine import Engine
from cuebook.kernel.ports import Call, Estimate, Store
from cuebook.kernel.run import Budget, RunRow, Settings
from tests.support import PROGRAMS, EchoModel, begin, engine_on


class Priced(EchoModel):
    """An echo that may use a hundred tokens, and tells beforehand what it may cost."""

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
async def test_a_call_that_may_not_fit_is_asked_about_first(
    budget: Budget, cost: float | None, code: str, store: Store
) -> None:
    model = Priced(cost=cost)
    row = await driven(store, model, budget)
    assert (row.status, row.reason, model.calls) == ("paused", "budget", [])
    (wait,) = await store.waits(run="run")
    assert wait.details == {"code": code}


async def test_an_unknown_price_may_be_accepted_beforehand(store: Store) -> None:
    assert (await driven(store, Priced(cost=None), Budget(money=1.0), unknown_cost=True)).status == "completed"


async def test_calls_under_way_count_as_well(store: Store) -> None:
    def start(state: Any) -> Program[Any]:
        yield All(tuple(AskModel(str(number)) for number in range(5)))

    PROGRAMS["five calls"] = lambda inputs: start
    model = Priced(cost=1.0)
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: model})
    row = await engine.drive(await begin(engine, "five calls", settings=Settings(budget=Budget(money=3.0))))
    assert (row.reason, row.totals.cost, len(model.calls)) == ("budget", 3.0, 3)
    await engine.close()


async def test_the_time_of_the_drive_under_way_counts(store: Store, tmp_path: Path) -> None:
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

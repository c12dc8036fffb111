"""Several workers want the same run at the same moment, or only one of them is able to drive it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from cuebook.kernel.events import Performing
from tests.service.fleet.fleet import Fleet, steps, written
from tests.support.model_server import ModelServer
from tests.support.programs import eventually
from tests.support.sampling import many

pytestmark = pytest.mark.needs("postgres")


async def test_workers_that_want_the_same_runs_at_the_same_moment(fleet: Fleet) -> None:
    """All workers find all runs at once, and each run is driven by one of them."""
    runs = many(20, 200)
    workers = [fleet.hire_elsewhere("--at-once", str(runs)), fleet.hire("--at-once", str(runs)), fleet.hire()]
    for worker in workers:
        worker.until_up()
        worker.send(signal.SIGSTOP)
    started = [await fleet.start(steps(1), n=number) for number in range(runs)]
    for worker in workers:
        worker.send(signal.SIGCONT)
    await fleet.finish(started)
    assert fleet.logged() == written(1, runs)
    drivers = Counter([driver for run in started for driver in await fleet.drivers(run)])
    assert drivers.total() == runs
    await fleet.check(started)


async def test_answers_that_race_the_suspension_of_their_runs(fleet: Fleet) -> None:
    """Each is given as soon as its question can be seen, while the worker is still about to give up the run."""
    for _ in range(2):
        fleet.hire_elsewhere().until_up()
    text = "name: A\nargs: {n: {type: string}}\nsteps:\n" + "".join(
        f"  - {{id: s{step}, command: 'cli mkdir made-${{n}}-{step}', approval: required}}\n" for step in range(2)
    )
    started = [await fleet.start(text, n=str(number)) for number in range(many(8, 60))]

    async def decide(run: str) -> None:
        decided: set[str] = set()
        while len(decided) < 2:
            for wait in await fleet.service.waits(run):
                if wait.id not in decided:
                    await fleet.service.decide(wait.id, "approve")
                    decided.add(wait.id)
            await asyncio.sleep(0)

    async with asyncio.timeout(90):
        await asyncio.gather(*map(decide, started))
    await fleet.finish(started)
    assert len(list(fleet.work.glob("made-*"))) == 2 * len(started)
    await fleet.check(started)


async def test_a_run_that_needs_a_sandbox_is_handed_over_and_survives_a_kill(fleet: Fleet, server: ModelServer) -> None:
    """The first worker has no sandbox and is killed after the hand-over, as is the second, which has one, at its step."""
    await fleet.use_model(server.url)
    server.replies = ["{}", "{}"]
    unable = fleet.hire_elsewhere(lacks=["sandbox"]).until_up()
    text = (
        "name: Needy\nargs: {n: {type: integer, default: 0}}\nsteps:\n"
        "  - {id: ask, command: llm, llm: {model: default, prompt: Say one.}, output: json}\n"
        "  - id: act\n    command: cli sh -c 'echo \"$CUEBOOK_ARG_N s0\" >> log; until test -e go; do sleep 0.05; done'\n"
    )
    runs = [await fleet.start(text, n=number) for number in range(2)]

    async def handed_over() -> bool:
        rows = [await fleet.service.row(run) for run in runs]
        return all(row.needs == ("sandbox",) and not row.driver for row in rows)

    await eventually(handed_over)
    unable.kill()
    other = fleet.hire(lacks=["sandbox"]).until_up()
    epochs = [(await fleet.service.row(run)).epoch for run in runs]
    await asyncio.sleep(0.6)
    assert [(await fleet.service.row(run)).epoch for run in runs] == epochs, (
        "a worker without a sandbox leaves it alone"
    )
    able = fleet.hire_elsewhere().until_up()
    await fleet.lines_reach(2)
    able.kill()
    fleet.hire()
    (fleet.work / "go").touch()
    doubts = await fleet.settle(runs)
    assert len(doubts) == 2
    assert fleet.logged() == written(1, 2)
    assert len(server.requests) == 2, "the model was not asked again"
    for run in runs:
        assert len([e async for e in fleet.service.entries(run) if isinstance(e.event, Performing)]) == 1
    await fleet.check(runs)
    assert other.stop() == 0

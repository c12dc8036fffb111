"""`cuebook worker` is asked to stop: what can finish soon finishes, and the rest continues on another worker at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from cuebook.kernel.events import WaitOpened
from tests.service.fleet.fleet import Fleet, Machine, steps
from tests.support.postgres import server
from tests.support.programs import eventually
from tests.support.sampling import many
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.needs("postgres")

LONG = """
name: Long
steps:
  - id: work
    command: cli sh -c 'until test -e go; do sleep 0.05; done'
    effect: read
"""
FOREVER = 600.0
"""Seconds of a lease that does not expire during a test."""


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    made = TcpProxy(server().port)
    yield made
    made.close()


async def until_held(fleet: Fleet, run: str, machine: Machine) -> None:
    async def held() -> bool:
        return await fleet.is_held_by(run, machine)

    await eventually(held)


async def test_short_runs_finish_and_a_long_one_continues_elsewhere_at_once(fleet: Fleet) -> None:
    drained = fleet.hire_elsewhere("--drain", "2", lease=FOREVER).until_up()
    long = await fleet.start(LONG)
    short = [await fleet.start(LONG.replace("test -e go", "test -e soon")) for _ in range(3)]
    for run in (long, *short):
        await until_held(fleet, run, drained)
    other = fleet.hire_elsewhere(lease=FOREVER).until_up()
    drained.send(signal.SIGTERM)
    (fleet.work / "soon").touch()
    assert drained.code() == 0
    await fleet.finish(short)
    await until_held(fleet, long, other)
    (fleet.work / "go").touch()
    await fleet.finish([long])
    assert len(await fleet.drivers(long)) == 2
    for run in (long, *short):  # an effect that finished in time is not repeated, and none is in doubt
        assert not [e async for e in fleet.service.entries(run) if isinstance(e.event, WaitOpened)]
    await fleet.check([long, *short])


async def test_a_second_signal_does_not_wait(fleet: Fleet) -> None:
    worker = fleet.hire_elsewhere("--drain", "600", lease=FOREVER).until_up()
    run = await fleet.start(LONG)
    await until_held(fleet, run, worker)
    worker.send(signal.SIGTERM)

    async def stopping() -> bool:
        return "stopping" in worker.said

    await eventually(stopping)
    assert worker.process.poll() is None
    worker.send(signal.SIGINT)
    assert worker.code() == 0
    assert (await fleet.service.row(run)).driver == "", "released, so the next worker need not wait for a lease"


async def test_a_drained_worker_takes_no_more_runs(fleet: Fleet) -> None:
    worker = fleet.hire("--drain", "600").until_up()
    run = await fleet.start(LONG)
    await until_held(fleet, run, worker)
    worker.send(signal.SIGTERM)

    async def stopping() -> bool:
        return "stopping" in worker.said

    await eventually(stopping)
    more = await fleet.start(steps(1))
    await asyncio.sleep(0.5)
    assert (await fleet.service.row(more)).status == "pending"
    (fleet.work / "go").touch()
    assert worker.code() == 0
    assert (await fleet.service.row(run)).driver == ""
    fleet.hire().until_up()
    await fleet.finish([run, more])


@pytest.mark.parametrize("how", ["frozen", "refused"][: many(1, 2)])
async def test_a_worker_can_be_stopped_while_the_database_is_away(fleet: Fleet, proxy: TcpProxy, how: str) -> None:
    url = fleet.place.replace(f":{server().port}/", f":{proxy.port}/")
    worker = fleet.hire_elsewhere("--drain", "0.2", url=url, parting=0.5).until_up()
    runs = [await fleet.start(LONG) for _ in range(3)]
    for run in runs:
        await until_held(fleet, run, worker)
    proxy.cut() if how == "refused" else proxy.freeze()
    assert worker.stop() == 1
    assert "the store cannot be reached" in worker.said
    (fleet.work / "go").touch()
    fleet.hire()
    await fleet.finish(runs)

"""The database restarts, or the network between it and a worker is cut: nothing is lost and nothing happens twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.fleet.fleet import Fleet, steps, written
from tests.support.network_namespace import Namespace
from tests.support.postgres import Server, server
from tests.support.sampling import many
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def own() -> Iterator[Server]:
    """A database server that this test may stop."""
    made = Server()
    yield made
    made.close()


@pytest.fixture
async def own_fleet(own: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path, monkeypatch, own.url())
    made.open()
    yield made
    await made.shut_down()


@pytest.fixture
def proxies() -> Iterator[list[TcpProxy]]:
    """Two ways to the database."""
    made = [TcpProxy(server().port) for _ in range(2)]
    yield made
    for proxy in made:
        proxy.close()


async def test_the_database_restarts_under_load(own: Server, own_fleet: Fleet) -> None:
    """Once it is away for longer than a lease, and no worker takes that for the death of the others."""
    fleet, lease = own_fleet, 2.0
    runs, length = many(6, 20), many(6, 20)
    workers = [fleet.hire_elsewhere("--at-once", str(runs // 2), lease=lease) for _ in range(2)]
    for worker in workers:
        worker.until_up()
    started = [await fleet.start(steps(length, sleep=0.1), n=number) for number in range(runs)]
    for number in range(many(2, 8)):
        await fleet.lines_reach((number + 1) * runs)
        own.stop(signal.SIGQUIT if number % 2 else signal.SIGINT)
        await asyncio.sleep(lease * 1.2 if number % 2 else 0.0)
        await asyncio.to_thread(own.start)
    await fleet.finish(started)
    assert fleet.logged() == written(length, runs)
    await fleet.check(started)
    for run in started:
        assert await fleet.repeats(run) == 0
    assert [worker.stop() for worker in workers] == [0, 0]


@pytest.mark.parametrize("healed", ["late", "never"][: many(1, 2)])
async def test_workers_that_are_cut_off_lose_their_runs_and_continue_with_others(
    fleet: Fleet, proxies: list[TcpProxy], healed: str
) -> None:
    """The connections of one are refused. Those of the other carry nothing; when they do again, what it had sent arrives too
    late, or they are reset.
    """
    refused, frozen = proxies

    def heal() -> None:
        if healed == "never":
            frozen.reset()
        frozen.heal()

    urls = [through(proxy, fleet.place) for proxy in proxies]
    await cut_and_heal(fleet, [{"url": url} for url in urls], [refused.cut, frozen.freeze], [refused.heal, heal])


@pytest.mark.needs("namespaces")
async def test_the_cable_of_a_worker_is_pulled(fleet: Fleet) -> None:
    namespace = Namespace()
    proxy = TcpProxy(server().port, namespace.here)
    try:
        machine = {"url": through(proxy, fleet.place), "within": namespace.argv}
        await cut_and_heal(fleet, [machine], [namespace.cut], [namespace.heal])
    finally:
        proxy.close()
        namespace.close()


def through(proxy: TcpProxy, url: str) -> str:
    """The URL of the database behind the proxy."""
    return url.replace(f"127.0.0.1:{server().port}/", f"{proxy.host}:{proxy.port}/")


async def cut_and_heal(
    fleet: Fleet, machines: list[dict[str, Any]], cut: list[Callable[[], None]], heal: list[Callable[[], None]]
) -> None:
    """Cuts workers off until another one has finished their runs. Afterwards they drive other runs."""
    runs, length = many(4, 20) * len(machines), many(5, 20)
    cut_off = [fleet.hire_elsewhere("--at-once", str(runs // len(machines)), **machine) for machine in machines]
    for worker in cut_off:
        worker.until_up()
    started = [await fleet.start(steps(length, sleep=0.1), n=number) for number in range(runs)]
    await fleet.lines_reach(runs * 2)
    for act in cut:
        act()
    other = fleet.hire().until_up()
    await fleet.settle(started)
    before = len(fleet.lines())
    for act in heal:
        act()
    assert other.stop() == 0
    more = [await fleet.start(steps(3), n=runs + number) for number in range(2)]
    await fleet.finish(more)
    assert [worker.stop() for worker in cut_off] == [0] * len(cut_off)
    assert len(fleet.lines()) == before + 6, "they have done nothing for the runs that they lost"
    assert fleet.logged() == written(length, runs) + written(3, runs + 2) - written(3, runs)
    await fleet.check(started + more)

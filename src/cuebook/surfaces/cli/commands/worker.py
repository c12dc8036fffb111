"""`cuebook worker`: drives the runs of a shared store, without a web app."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import AsyncExitStack
from typing import Protocol

import click

from cuebook.config import load
from cuebook.kernel.errors import BadInput, Fenced
from cuebook.kernel.events import UNDER_WAY, Driven
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow
from cuebook.service.readiness import Readiness
from cuebook.service.service import Service
from cuebook.service.worker import Worker
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.stop_requests import StopRequests
from cuebook.surfaces.cli.terminal.output import complain
from cuebook.surfaces.health import address_of, serve_health
from cuebook.system.logs import log_event
from cuebook.wiring.wiring import Wiring

log = logging.getLogger("cuebook.runs")

_PARTING = 8.0
"""Seconds to release the runs and to close everything."""

OPTIONS: list[click.Parameter] = [
    options.WORKSPACE,
    click.Option(
        ["--workspace-label"],
        metavar="NAME",
        help="The name of the workspace on all machines that offer it, if its path differs between them.",
    ),
    click.Option(["--at-once"], metavar="N", help="How many runs to drive at the same time; 20 by default."),
    options.DRAIN,
    click.Option(
        ["--health"], metavar="HOST:PORT", help="An address for probes, as in 0.0.0.0:8766: /healthz and /readyz."
    ),
    *options.LOGS,
    options.METRICS,
    options.SETTINGS[0],
    options.STORE,
    *options.TEMPORAL,
]


@command("worker", OPTIONS)
def worker_command(given: Given) -> int:
    """Drive the runs of a store that several machines share.

    A worker takes runs that were started or answered elsewhere, as long as it offers the workspace and the capabilities
    that they need, and continues the runs of a worker that died. It logs when it begins to drive a run, and when it
    releases it. SIGTERM and Ctrl-C drain it: it takes no more runs, lets
    steps in progress finish, and releases the runs to other workers. A second Ctrl-C does not wait.

    With --temporal, a Temporal server brings the runs to the workers. All commands on this store then need the same server,
    in the configuration or in CUEBOOK_TEMPORAL_ADDRESS.
    """
    wiring = Wiring(
        load(
            {
                "store": given["store"],
                "model": given["model"],
                "workspace": given["workspace"],
                "workspace_label": given["workspace_label"],
                "worker.at_once": given["at_once"],
                "worker.drain": given["drain"],
                "metrics.address": given["metrics"],
                **options.logs(given),
                **options.temporal(given),
            }
        )
    )
    problem = wiring.factory.workspace.problem
    if problem is not None:
        raise BadInput(problem.message, fix=problem.fix)

    health = address_of(given["health"]) if given["health"] else None

    async def work() -> int:
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(session.opened(wiring, create=True))
            metrics = await stack.enter_async_context(wiring.insight(service))
            await stack.enter_async_context(session.metrics_served(wiring, metrics))
            await stack.enter_async_context(wiring.background(service))
            readiness = Readiness(service, started=False)
            if health is not None:
                await stack.enter_async_context(serve_health(*health, readiness.reason))
            return await _work(wiring, service, readiness)

    with wiring.logging():
        return session.perform(work())


class _Draining(Protocol):
    """A worker that can be asked to stop."""

    async def open(self) -> None: ...

    async def failed(self) -> None:
        """Returns when the worker has stopped without being asked."""

    async def drain(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class _Drives:
    """Logs when the worker releases a run."""

    def __init__(self) -> None:
        self._driven: set[str] = set()

    def see(self, event: object) -> None:
        """Observes the events of this process: a run that was claimed begins with `Driven`."""
        if isinstance(event, Entry) and isinstance(event.event, Driven):
            self._driven.add(event.run)

    def release(self, run: str, task: asyncio.Task[RunRow]) -> None:
        if run in self._driven:  # otherwise it was not claimed
            self._driven.discard(run)
            log_event(log, "run.released", run=run, result=_result(task))


def _result(task: asyncio.Task[RunRow]) -> str:
    """How the drive of a run ended, in words."""
    if task.cancelled():
        return "handed over"
    error = task.exception()
    if error is not None:
        return "driven by another worker" if isinstance(error, Fenced) else "could not be continued"
    row = task.result()
    return "handed over" if row.status in UNDER_WAY else display.status_of(row)


def _worker(wiring: Wiring, service: Service, drives: _Drives) -> _Draining:
    if wiring.config.get("temporal.address") is None:
        at_once = wiring.config.get("worker.at_once")
        return Worker(service, wiring.factory.workspace.path, at_once=at_once, released=drives.release)
    return wiring.temporal_worker(service, drives.release)


async def _work(wiring: Wiring, service: Service, readiness: Readiness) -> int:
    drives = _Drives()
    config, worker, announce = wiring.config, _worker(wiring, service, drives), session.announcer(wiring)
    stops = StopRequests()
    service.observe(drives.see)
    offer = service.offer
    offered = () if offer is None else offer.names
    await worker.open()
    readiness.start()
    announce(f"worker {os.getpid()} offers {', '.join(offered)}. Press Ctrl-C to stop.")
    stopping, failing = asyncio.create_task(stops.requested(1)), asyncio.create_task(worker.failed())
    try:
        await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        failed = failing.done()
        failing.cancel()  # from here on, its parts stop because they were asked to
        readiness.drain()
        announce("stopping. Steps in progress may finish; the runs continue on another worker.")
        _exit_after(config.get("worker.drain") + _PARTING)
        draining = asyncio.create_task(worker.drain(config.get("worker.drain")))
        again = asyncio.create_task(stops.requested(2))
        await asyncio.wait([draining, again], return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        _exit_after(_PARTING)
    finally:
        stopping.cancel()
        failing.cancel()
        await worker.close()
    announce("stopped.")
    return 1 if failed else 0


def _exit_after(seconds: float) -> None:
    """Exits even if the database cannot be reached, where closing would wait for it. The leases of the runs expire."""

    def leave() -> None:
        complain(
            "cuebook: the store cannot be reached. The runs continue on another worker when their lease has expired."
        )
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()

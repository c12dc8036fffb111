"""Follows a run that a worker in another process drives, until it waits for someone or has ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from cuebook.kernel.capabilities import lasting, named
from cuebook.kernel.engine.waits import NEEDS
from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.run import RunRow

if TYPE_CHECKING:
    from cuebook.service.service import Service

_EVERY = 0.1
"""Seconds between two looks at the run."""
_FIRST, _WAKE_AGAIN = 1.0, 5.0
"""Seconds after which a run that no worker took is woken, for the first time and again: what changed it has woken it."""


async def follow_to_rest(service: Service, run: str) -> RunRow:
    """Waits until a run waits for someone or has ended, and wakes it if no worker takes it."""
    wake_at = time.monotonic() + _FIRST
    while True:
        row = await rested(service, run)
        if row is not None:
            return row
        if time.monotonic() >= wake_at and await service.is_due(run):
            wake_at = time.monotonic() + _WAKE_AGAIN
            await service.wake(run)
        await asyncio.sleep(_EVERY)


async def rested(service: Service, run: str) -> RunRow | None:
    """The run, if it waits for someone or has ended and no process drives it; otherwise None."""
    row = await service.row(run)
    if row.status not in ENDED and (row.status not in WAITING or row.reason in ("timer", "needs")):
        return None
    if await service.is_driven(run) or await service.is_due(run):
        return None
    # A worker may have claimed and released it in between.
    again = await service.row(run)
    return again if again.epoch == row.epoch else None


async def follow_server(service: Service, run: str) -> RunRow:
    """Follows a run that waits for a node, as long as the node is connected to some process, until it waits for something
    else or has ended."""
    while True:
        row = await service.row(run)
        if await service.is_driven(run):
            row = await service.follow(run)
        if row.status in ENDED or row.status not in WAITING or row.reason != NEEDS:
            return row
        if not await service.nodes.serve(row):
            return row
        await asyncio.sleep(_EVERY)


async def waits_for(service: Service, run: str) -> str:
    """What a run waits for although it has work to do: a worker, if it was left to workers, or its turn, or a process that
    is stopped. Empty if it is being driven, or waits for something else.
    """
    driver = await service.fate_of_driver(run)
    if driver.stopped:
        return f"process {driver.pid}, which is stopped: `kill -CONT {driver.pid}` continues it"
    if not await service.is_left_to_workers(run) or not await service.is_due(run):
        return ""
    row = await service.row(run)
    return await its_turn(service, run) or a_worker(named(row.workspace, lasting(row.needs)))


async def its_turn(service: Service, run: str) -> str:
    """Why a run waits, if its tenant is at its limit; otherwise empty."""
    reached = await service.limit_reached(run)
    return f"its turn: {reached}" if reached else ""


def a_worker(offers: tuple[str, ...]) -> str:
    return f"a worker that offers {', '.join(offers)}" if offers else "a worker"


async def missing_worker(service: Service, run: str) -> tuple[str, ...]:
    """What a run needs that no worker seems to offer; empty if it is being driven, or waits for something else."""
    dispatcher = service.dispatcher
    if dispatcher is None or not await service.is_due(run):
        return ()
    row = await service.row(run)
    if row.reason != "needs" and await dispatcher.has_worker(row):
        return ()
    return named(
        row.workspace, row.needs
    )  # a worker that gave it back for its needs counts more than one that has polled

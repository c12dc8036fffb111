"""The activities of a run's workflow: they drive the run in this process, or cancel it.

Temporal sees what they leave behind, but neither content nor the text of an error.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NoReturn

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import (
    AtLimit,
    Busy,
    CuebookError,
    Elsewhere,
    Fenced,
    NonDeterminism,
    NotFound,
    Refused,
    StoreError,
    TooNew,
)
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow
from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.queues import queue_of
from cuebook.service.dispatch.temporal.slots import Full, Slots
from cuebook.service.dispatch.temporal.workflow import ACTIVATE, CANCEL, Order, Rest
from cuebook.service.service import PYTHON, Service
from cuebook.service.worker import Released
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook")

WHO = "temporal"
"""The name under which a run is cancelled whose workflow was cancelled."""
_UNKNOWN = 5
"""How often a run that is not in this store is offered to other workers before its workflow ends."""
AT_LIMIT, _LONGEST = 1.0, 30.0
"""Seconds until a run whose tenant is at its limit is delivered again. The delay doubles each time, up to the second number,
because each delivery costs work; a worker that frees a slot wakes the next run of the tenant at once.
"""
_STOPPED, _SOON = "The worker was stopped.", 0.05
_FOR_A_SLOT = 2.0
"""Seconds that an activation waits for another one here to finish before another worker may have it."""


class Activities:
    """Drives runs in this process for their workflows."""

    def __init__(self, service: Service, base: str, slots: Slots, released: Released | None = None) -> None:
        self._service = service
        self._released = released
        self._base = base
        self._slots = slots
        self._draining = False
        self._drives: set[asyncio.Task[RunRow]] = set()
        self._waiting: dict[str, dict[str, int]] = {}
        """How often each run was turned away because its tenant is at its limit, by tenant, the oldest first."""

    def drain(self) -> None:
        """From now on, takes no run, and an activation that is cut off releases its run instead of finishing it."""
        self._draining = True

    async def release(self) -> None:
        """Stops all drives. Their runs can be continued at once, here or elsewhere."""
        self._draining = True
        for drive in self._drives:
            drive.cancel()
        if self._drives:
            await asyncio.wait(self._drives)

    @activity.defn(name=CANCEL)
    async def cancel(self, order: Order) -> None:
        try:
            row = await self._service.row(order.run)
            if row.status not in ENDED:
                who = Principal(WHO, row.tenant)
                await self._service.cancel(order.run, "The run's workflow was cancelled in Temporal.", who)
        except NotFound:
            return
        except StoreError as error:
            log_event(log, "run.postponed", logging.WARNING, run=order.run, code=error.code)
            _retry("The store is not available.")
        except CuebookError as error:  # it has ended in the meantime
            log_event(log, "run.postponed", logging.WARNING, run=order.run, code=error.code)

    @activity.defn(name=ACTIVATE)
    async def activate(self, order: Order) -> Rest:
        if self._draining:
            _retry(_STOPPED, _SOON)
        async with self._beating():
            try:
                async with self._slots.taken(_FOR_A_SLOT):
                    return await self._activated(order)
            except Full:
                _retry("This worker is full.", _SOON)
            except (Busy, Fenced):
                _retry("Another worker is driving the run.")
            except (Elsewhere, TooNew):
                _retry("The run needs another worker.")
            except StoreError as error:
                log_event(log, "run.postponed", logging.WARNING, run=order.run, code=error.code)
                _retry("The store is not available.")
            except NotFound:
                if activity.info().attempt < _UNKNOWN:
                    _retry("The run is not in this worker's store.")
                return Rest(over=True)
            except Refused as refused:
                if self._draining:
                    _retry(_STOPPED, _SOON)
                log_event(log, "run.postponed", logging.WARNING, run=order.run, code=refused.code)
                _retry("The run cannot be driven now.")
            except ApplicationError:
                raise
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if details is not None and details.cancel_requested:  # the workflow does not need it any more
                    raise
                _retry("The worker was stopped, or has not been heard of for too long.", _SOON)
            except Exception as error:
                log.exception("run %s could not be driven", order.run)
                raise ApplicationError(type(error).__name__, type="Defect", non_retryable=True) from None

    # --- inside ---

    async def _activated(self, order: Order) -> Rest:
        service, run = self._service, order.run
        row = await service.row(run)
        if row.dialect == PYTHON:  # only the process that has the program drives it
            return Rest(over=True)
        if await service.is_due(run, here=True):
            try:
                await self._driven(run)
            except NonDeterminism:  # it is paused, and says why
                pass
            except AtLimit:  # the workflow waits instead of Temporal, so that a wake-up ends the wait
                return Rest(queue=order.queue, seconds=self._turned_away(row))
            await self._wake_next(row)
        elif await service.is_due(run):
            queue = queue_of(self._base, row)
            if queue == order.queue:  # this worker is older than the run, or lacks what a queue's name leaves out
                _retry("The run needs another worker.")
            return Rest(queue=queue, again=True)
        elif await service.is_driven(run):
            raise Busy
        return await self._rest(run)

    def _turned_away(self, row: RunRow) -> float:
        """Notes that a run waits for its tenant, and returns the time until it should be delivered again."""
        waiting = self._waiting.setdefault(row.tenant, {})
        times = waiting[row.id] = waiting.get(row.id, 0) + 1
        return min(AT_LIMIT * 2.0 ** min(times - 1, 10), _LONGEST) * random.uniform(0.8, 1.2)

    async def _wake_next(self, row: RunRow) -> None:
        """Wakes the run that has waited here longest for the slot that this run has freed."""
        waiting = self._waiting.get(row.tenant, {})
        waiting.pop(row.id, None)
        try:
            while waiting:
                run = next(iter(waiting))
                del waiting[run]
                if await self._service.is_due(run):
                    await self._service.wake(run)
                    break
        except CuebookError as error:  # its own delay brings it back
            log_event(log, "run.postponed", logging.WARNING, run=row.id, code=error.code)
        if not waiting:
            self._waiting.pop(row.tenant, None)

    async def _rest(self, run: str) -> Rest:
        row = await self._service.row(run)
        due = await self._service.is_due(run)
        if row.status in ENDED and not due:
            return Rest(over=True)
        queue = queue_of(self._base, row)
        expiries = [wait.expires for wait in await self._service.waits(run) if wait.expires is not None]
        seconds = min(expiries) - self._service.clock() if expiries else None
        return Rest(queue=queue, again=due, seconds=seconds)

    async def _driven(self, run: str) -> RunRow:
        """Drives the run to its next rest, whatever Temporal thinks of this activity: the store decides who may drive, and
        an effect that is cut off would be in doubt. Only a worker that stops releases the run before.
        """
        drive = asyncio.create_task(self._service.take_up(run))
        self._drives.add(drive)
        drive.add_done_callback(self._drives.discard)
        if (released := self._released) is not None:
            drive.add_done_callback(lambda done: released(run, done))
        while not drive.done():
            try:
                await asyncio.shield(drive)
            except asyncio.CancelledError:
                if self._draining:
                    drive.cancel()
                    await asyncio.wait([drive])
        if drive.cancelled():
            _retry(_STOPPED, _SOON)
        return drive.result()

    @asynccontextmanager
    async def _beating(self) -> AsyncIterator[None]:
        beating = asyncio.create_task(_beat())
        try:
            yield
        finally:
            beating.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(workflow.HEARTBEAT / 5)


def _retry(why: str, seconds: float | None = None) -> NoReturn:
    """Makes Temporal deliver the run again, after this time or after a delay that grows."""
    delay = None if seconds is None else timedelta(seconds=seconds)
    raise ApplicationError(
        why, type="Retry", next_retry_delay=delay, category=ApplicationErrorCategory.BENIGN
    ) from None

"""A worker under Temporal: polls the queues whose needs this process can meet, and drives the runs that it gets."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from temporalio.worker import FixedSizeSlotSupplier, PollerBehaviorSimpleMaximum, Worker, WorkerTuner

from cuebook import __version__
from cuebook.kernel.capabilities import Offer
from cuebook.service.dispatch.sweep import Sweep
from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.activities import Activities
from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
from cuebook.service.dispatch.temporal.queues import queues_of
from cuebook.service.dispatch.temporal.schedule_workflow import FireWorkflow
from cuebook.service.dispatch.temporal.schedules import Fire, FireActivity, TemporalTimers
from cuebook.service.dispatch.temporal.slots import Slots
from cuebook.service.dispatch.temporal.workflow import RunWorkflow
from cuebook.service.service import Service
from cuebook.service.worker import Released

log = logging.getLogger("cuebook")

_POLLERS = 1
"""Polls of a queue at a time. Each may get a run when the worker has just become full."""
_CHECK_EVERY = 5.0
"""Seconds between two checks whether the server is there. The SDK repeats its polls without saying that they fail."""
_WORKFLOW_TASKS = 20
"""Workflow tasks at once. They take milliseconds."""


class TemporalWorker:
    """Drives the runs that Temporal delivers to this process."""

    def __init__(
        self,
        service: Service,
        dispatcher: TemporalDispatcher,
        *,
        at_once: int = 20,
        drain: float = 25.0,
        released: Released | None = None,
        fire: Fire | None = None,
    ) -> None:
        """Drives at most `at_once` runs at a time. When it stops, they may continue for `drain` seconds. `fire`
        fires the schedules whose moments come.
        """
        self._grace = timedelta(seconds=drain)
        self._service = service
        self._dispatcher = dispatcher
        self._slots = Slots(at_once)
        self._activities = Activities(service, dispatcher.server.queue, self._slots, released)
        self._fire = None if fire is None else FireActivity(TemporalTimers(dispatcher), fire)
        self._sweep = Sweep(service, lambda: self._slots.has_room)
        self._workers: list[Worker] = []
        self._running: list[asyncio.Task[None]] = []
        self._checking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts polling. Raises `Unreachable`."""
        client = await self._dispatcher.connection.client()
        base = self._dispatcher.server.queue
        for queue in queues_of(base, self._service.offer or Offer()):
            plain = queue == base
            firing = [] if self._fire is None or not plain else [self._fire.fire]
            self._workers.append(
                Worker(
                    client,
                    task_queue=queue,
                    build_id=f"cuebook-{__version__}",  # by default, the SDK would read all modules from disk
                    workflows=[RunWorkflow, *([FireWorkflow] if firing else [])] if plain else [],
                    activities=[self._activities.activate, *([self._activities.cancel] if plain else []), *firing],
                    max_cached_workflows=0,  # a waiting run holds nothing, and no worker's death delays a workflow
                    tuner=WorkerTuner.create_composite(
                        workflow_supplier=FixedSizeSlotSupplier(_WORKFLOW_TASKS),
                        activity_supplier=self._slots,
                        local_activity_supplier=FixedSizeSlotSupplier(1),
                        nexus_supplier=FixedSizeSlotSupplier(1),
                    ),
                    activity_task_poller_behavior=PollerBehaviorSimpleMaximum(_POLLERS),
                    max_heartbeat_throttle_interval=timedelta(seconds=workflow.HEARTBEAT / 4),
                    graceful_shutdown_timeout=self._grace,
                )
            )
        self._running = [asyncio.create_task(worker.run()) for worker in self._workers]
        self._checking = asyncio.create_task(self._check())
        await self._sweep.open()

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            await self._dispatcher.connection.check()

    async def failed(self) -> None:
        """Returns when a part of the worker has stopped without being asked, for example because its namespace was removed."""
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            log.error("The worker has lost its connection to Temporal (%s).", type(one.exception()).__name__)

    async def drain(self, seconds: float | None = None) -> None:
        """Takes no more runs, and hands over those that are driven here: an effect in progress may finish, and the next one
        is performed by another worker. In the end, effects that are still in progress are cut off.

        Their time is the one that the worker was given when it was made; `seconds` is ignored.
        """
        self._activities.drain()
        self._service.hand_over()
        if self._checking is not None:
            self._checking.cancel()
        await self._sweep.close()
        await asyncio.gather(*(worker.shutdown() for worker in self._workers), return_exceptions=True)
        await asyncio.gather(*self._running, return_exceptions=True)
        self._workers, self._running = [], []

    async def close(self) -> None:
        """Stops at once. Every run can be continued where it stopped."""
        draining = asyncio.create_task(self.drain())
        await asyncio.sleep(0)
        await self._activities.release()
        await asyncio.shield(draining)

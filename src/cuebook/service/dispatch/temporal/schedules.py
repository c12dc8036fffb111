"""Temporal's schedules as the timers of ours: Temporal keeps the time, and asks a worker to fire at each moment."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.service import RPCError, RPCStatusCode

from cuebook.kernel.errors import BadInput
from cuebook.service.dispatch.dispatcher import Unreachable
from cuebook.service.dispatch.temporal.connection import PATIENCE, unreachable
from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
from cuebook.service.dispatch.temporal.schedule_workflow import FIRE, NAME, Due
from cuebook.service.triggers.schedules import ON_TIME
from cuebook.service.triggers.schedules import Schedule as Planned
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook")

PREFIX = "cuebook-schedule-"

Fire = Callable[[str, float], Awaitable[bool]]
"""Asks for the firing of the schedule with this timer at this moment. Returns False if there is no such schedule."""


class TemporalTimers:
    """The timers of schedules in one Temporal namespace."""

    def __init__(self, dispatcher: TemporalDispatcher) -> None:
        self._dispatcher = dispatcher

    def id_of(self, schedule: Planned) -> str:
        """The id of a schedule's timer, which does not say what it is for."""
        named = f"{self._dispatcher.server.queue}\0{schedule.tenant}\0{schedule.name}\0{schedule.created!r}"
        return f"{PREFIX}{hashlib.sha256(named.encode()).hexdigest()[:24]}"

    async def create(self, schedule: Planned) -> None:
        """Creates a timer, unless there is one. Raises `Unreachable`, and `BadInput` for what Temporal does not accept."""
        client = await self._dispatcher.connection.client()
        try:
            await client.create_schedule(schedule.timer, self._made(schedule), rpc_timeout=PATIENCE)
        except ScheduleAlreadyRunningError:
            return
        except RPCError as error:
            if error.status == RPCStatusCode.INVALID_ARGUMENT:
                raise BadInput(
                    f"Temporal does not accept '{schedule.cron}' in {schedule.zone}.",
                    fix="Use plain cron fields: numbers, names, lists, ranges and steps.",
                ) from None
            raise unreachable(self._dispatcher.server, error) from None

    async def pause(self, timer: str, *, paused: bool) -> None:
        client = await self._dispatcher.connection.client()
        handle = client.get_schedule_handle(timer)
        try:
            if paused:
                await handle.pause(rpc_timeout=PATIENCE)
            else:
                await handle.unpause(rpc_timeout=PATIENCE)
        except RPCError as error:
            raise unreachable(self._dispatcher.server, error) from None

    async def remove(self, timer: str) -> None:
        client = await self._dispatcher.connection.client()
        try:
            await client.get_schedule_handle(timer).delete(rpc_timeout=PATIENCE)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise unreachable(self._dispatcher.server, error) from None

    def _made(self, schedule: Planned) -> Schedule:
        return Schedule(
            action=ScheduleActionStartWorkflow(
                NAME, schedule.timer, id=f"{schedule.timer}-run", task_queue=self._dispatcher.server.queue
            ),
            spec=ScheduleSpec(
                cron_expressions=[schedule.cron],
                time_zone_name=schedule.zone,
                jitter=timedelta(seconds=schedule.jitter) if schedule.jitter else None,
            ),
            # What happens while an earlier run is unfinished is decided when it is fired, as without Temporal.
            policy=SchedulePolicy(
                overlap=ScheduleOverlapPolicy.ALLOW_ALL,
                catchup_window=timedelta(seconds=max(schedule.catch_up, ON_TIME)),
            ),
            state=ScheduleState(paused=not schedule.is_active),
        )


class FireActivity:
    """The activity of a firing, in a worker."""

    def __init__(self, timers: TemporalTimers, fire: Fire) -> None:
        self._timers = timers
        self._fire = fire

    @activity.defn(name=FIRE)
    async def fire(self, due: Due) -> None:
        if await self._fire(due.timer, due.at):
            return
        try:  # its schedule was removed while Temporal could not be reached
            await self._timers.remove(due.timer)
        except Unreachable as error:
            log_event(log, "timer.failed", logging.WARNING, timer=due.timer, code=error.code)

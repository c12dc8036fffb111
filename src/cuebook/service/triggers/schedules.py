"""Schedules: triggers that fire at the moments of a cron expression, once in all processes on a store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import ClassVar, Self

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, CuebookError, StoreError
from cuebook.kernel.ports import Job
from cuebook.kernel.triggers import SCHEDULE
from cuebook.service.triggers.cron import check_cron, first_moments, latest_moments, next_moment
from cuebook.service.triggers.firing import Triggers, log
from cuebook.service.triggers.trigger import KEPT, Firing, Trigger
from cuebook.system.logs import log_event

CATCH_UP = 3600.0
"""Seconds after its moment in which a firing may still start its run, if nothing else was chosen."""
ON_TIME = 120.0
"""Seconds after its moment in which a firing counts as on time, whatever was chosen."""
_ELSEWHERE = 1.0
"""Seconds until another process may take a schedule whose workspace this process does not offer."""
_COMPARED = 50
"""How many moments are compared to find the shortest time between two of them."""
_NOBODY = "No server or worker was running in time."
_PAGE = 200
"""How many schedules are corrected before other work gets its turn."""


class Schedule(Trigger, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger that fires at planned moments."""

    KIND: ClassVar[str] = SCHEDULE
    COMMAND: ClassVar[str] = "schedule"

    cron: str
    zone: str
    next: float
    """The next planned moment."""
    jitter: float = 0.0
    """Seconds by which a firing is delayed at most, by an amount that follows from the name and the moment."""
    catch_up: float = CATCH_UP
    timer: str = ""
    """What counts the time outside this store, such as the id of a schedule in Temporal; empty if the store does."""

    def next_due(self) -> float | None:
        return None if self.timer else self.planned()

    def planned(self) -> float:
        """When its next firing starts."""
        return self.next + self.delay(self.next)

    def is_late(self, moment: float, now: float) -> bool:
        """Whether it is too late to fire for a moment."""
        return now - moment > max(self.catch_up + self.delay(moment), ON_TIME)

    def resumed(self, now: float) -> Self:
        return msgspec.structs.replace(super().resumed(now), next=next_moment(self.cron, self.zone, now))

    def moved_on(self, now: float) -> Self:
        """The schedule with its next moment after this one."""
        following = next(iter(first_moments(self.cron, self.zone, now, 1)), self.next)
        return self if following == self.next else msgspec.structs.replace(self, next=following)

    def delay(self, moment: float) -> float:
        if not self.jitter:
            return 0.0
        digest = hashlib.sha256(f"{self.tenant}\0{self.name}\0{moment!r}".encode()).digest()
        return self.jitter * int.from_bytes(digest[:6]) / 2**48

    def upcoming(self, after: float, count: int) -> list[float]:
        """The next planned moments, from the schedule's next one on."""
        return first_moments(self.cron, self.zone, max(after, self.next - 1), count)


def key_of(moment: float) -> str:
    """The key of the firing for a planned moment."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_times(cron: str, zone: str, jitter: float, catch_up: float, now: float) -> None:
    """Raises `BadInput` if a schedule with these times could not work."""
    check_cron(cron, zone, now)
    if jitter < 0 or catch_up < 0:
        raise BadInput("Jitter and catch-up cannot be negative.", fix="Use a time such as 5m.")
    following = first_moments(cron, zone, now, _COMPARED)
    shortest = min((b - a for a, b in pairwise(following)), default=None)
    if shortest is not None and jitter >= shortest:
        raise BadInput(
            f"A jitter of {jitter:g} s is not shorter than the {shortest:g} s between two firings.",
            fix="Use a shorter jitter.",
        )


class Schedules:
    """The schedules of a store."""

    def __init__(self, triggers: Triggers, offers: frozenset[str] | None = None) -> None:
        """`offers` are the names of the workspaces that this process offers; None for all."""
        self._triggers = triggers
        self._offers = offers

    # --- for people ---

    async def add(self, schedule: Schedule, who: Principal = Principal()) -> Schedule:
        check_times(schedule.cron, schedule.zone, schedule.jitter, schedule.catch_up, self._triggers.now())
        return await self._triggers.add(schedule, who)

    async def pause(self, name: str, who: Principal = Principal()) -> Schedule:
        return await self._triggers.pause(Schedule, name, who)

    async def resume(self, name: str, who: Principal = Principal()) -> Schedule:
        return await self._triggers.resume(Schedule, name, who)

    # --- for processes that fire ---

    async def handle(self, job: Job) -> Job:
        """Fires what is due of a schedule; returns its job as it is to be stored."""
        schedule = Schedule.of(job)
        now = self._triggers.now()
        if not schedule.is_active:
            return schedule.job(now, job.version)
        workspace = schedule.target.workspace
        if workspace and self._offers is not None and workspace not in self._offers:
            if not schedule.timer and now - schedule.planned() > max(schedule.catch_up, ON_TIME):
                schedule = await self._all_missed(schedule, now, f"No process offered its workspace, {workspace}.")
            made = schedule.job(now, job.version)
            return made if made.due is None else msgspec.structs.replace(made, due=max(made.due, now + _ELSEWHERE))
        schedule = await self._triggers.work(schedule)
        if schedule.is_active and not schedule.timer and schedule.planned() <= now:
            try:
                schedule = await self._planned(schedule, now)
            except BadInput as error:  # its last moment has passed
                schedule = await self._triggers.suspend(schedule, str(error))
        return schedule.job(self._triggers.now(), job.version)

    async def fire_at(self, timer: str, moment: float) -> bool:
        """Asks for a firing because a timer outside the store says that its moment has come. Returns False if there is no
        schedule with this timer.
        """
        found = next((one for one in await self._triggers.every(Schedule) if one.timer == timer), None)
        if found is None:
            return False
        now, key = self._triggers.now(), key_of(moment)
        if found.is_late(moment, now) and found.is_active and found.firing(key) is None:
            late = Firing(key, moment, "missed", reason=_NOBODY, done=now)
            await self._triggers.alter(Schedule, found, lambda one: one.recorded(late))
            words = f"Schedule '{found.name}' missed a firing of {found.target.words}. {_NOBODY}"
            await self._triggers.notify(found, f"missed.{key}", words)
        else:
            await self._triggers.request(Schedule, found.name, found.tenant, key, at=moment)
        await self._triggers.alter(Schedule, found, lambda one: one.moved_on(max(moment, now)))
        return True

    async def _planned(self, schedule: Schedule, now: float) -> Schedule:
        """Fires the latest of the moments that have come, unless it is too late for it; the others are missed."""
        due = self._passed(schedule, now)
        *earlier, latest = due
        if schedule.is_late(latest, now):
            return await self._all_missed(schedule, now, _NOBODY)
        schedule = _missed(schedule, earlier, now, "A later firing made up for it.")
        firing = Firing(key_of(latest), latest, "requested")
        if schedule.firing(firing.key) is None:  # otherwise the clock was set back
            schedule = await self._triggers.fire(schedule, firing)
        return msgspec.structs.replace(schedule, next=next_moment(schedule.cron, schedule.zone, latest))

    async def _all_missed(self, schedule: Schedule, now: float, reason: str) -> Schedule:
        due = self._passed(schedule, now)
        schedule = _missed(schedule, due, now, reason)
        firings = "a firing" if len(due) == 1 else f"{len(due)} firings"
        words = f"Schedule '{schedule.name}' missed {firings} of {schedule.target.words}. {reason}"
        log_event(log, "trigger.missed", logging.WARNING, trigger=schedule.trigger, firings=len(due), by=schedule.owner)
        await self._triggers.notify(schedule, f"missed.{key_of(due[-1])}", words)
        return msgspec.structs.replace(schedule, next=next_moment(schedule.cron, schedule.zone, due[-1]))

    def _passed(self, schedule: Schedule, now: float) -> list[float]:
        """The moments that have come, in order; only the latest ones after a long time."""
        found = latest_moments(schedule.cron, schedule.zone, schedule.next, now, KEPT)
        found = [one for one in found if one + schedule.delay(one) <= now]
        return found or [schedule.next]

    async def refit(self) -> int:
        """Corrects schedules that were planned by a clock that was ahead; returns how many."""
        count, every = 0, await self._triggers.every(Schedule)
        for start in range(0, len(every), _PAGE):
            count += await self._refit(every[start : start + _PAGE], self._triggers.now())
            await asyncio.sleep(0)
        return count

    async def _refit(self, page: Iterable[Schedule], now: float) -> int:
        count = 0
        for one in page:
            try:
                if one.is_active and not one.timer and one.next > next_moment(one.cron, one.zone, now):
                    await self._triggers.change(Schedule, one.name, Principal(tenant=one.tenant), self._from_now)
                    count += 1
            except StoreError:
                raise
            except CuebookError:  # it was removed, or never fires again, which its handler reports
                continue
        return count

    def _from_now(self, schedule: Schedule) -> Schedule:
        following = next_moment(schedule.cron, schedule.zone, self._triggers.now())
        return msgspec.structs.replace(schedule, next=min(schedule.next, following))


def _missed(schedule: Schedule, moments: Iterable[float], now: float, reason: str) -> Schedule:
    for moment in moments:
        key = key_of(moment)
        if schedule.firing(key) is None:
            schedule = schedule.recorded(Firing(key, moment, "missed", reason=reason, done=now))
    return schedule

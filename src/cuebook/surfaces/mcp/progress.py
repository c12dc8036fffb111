"""Waits for a run without driving it: a client that disconnects loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.run import RunRow
from cuebook.service.runs import objects as run_objects
from cuebook.surfaces import display
from cuebook.surfaces.mcp.host import NOT_DRIVEN, Activity, Host, state_key

_EVERY = 0.25
"""Seconds between two checks of a run that another process drives."""
_LIVELY = 10.0
"""Seconds after which a client is notified that the run is still active."""
_SOON = 60.0
"""A run whose timer ends within this many seconds counts as running."""

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Sends progress: amount done, total, and a message."""


class Progress:
    """Sends a client the progress of a run. The amount always increases within a call, as the protocol requires."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen: tuple[str, int, str] | None = None
        self._last = 0.0
        self._at = 0.0

    async def report(self, row: RunRow, now: float) -> None:
        seen = (row.status, row.totals.steps_done, row.step)
        if seen == self._seen and now - self._at < _LIVELY:
            return
        count = run_objects.steps_object(row)
        done, total = count["steps_done"], count["steps_total"]
        self._last = max(self._last + 0.001, float(done))
        self._seen, self._at = seen, now
        words = f"{row.status.replace('_', ' ')}, {display.steps_words(row)}"
        await self._report(self._last, float(total) or None, f"{words}; at step {row.step}" if row.step else words)


async def follow(
    host: Host, run: str, progress: Progress, seconds: float | None = None, known: str = ""
) -> tuple[RunRow, Activity]:
    """Wait until a run ends, waits for a person or is no longer driven, or until the time is up. Returns the run and
    its activity.

    While a waiting run is still in the `known` state, this keeps waiting.
    """
    service = host.service
    clock = asyncio.get_running_loop().time
    until = None if seconds is None else clock() + seconds
    with service.stream.news(run) as news:
        while True:
            news.clear()
            row = await service.row(run)
            await progress.report(row, clock())
            activity = await activity_of(host, row)
            if activity in NOT_DRIVEN:
                if await service.row(run) != row:  # it has changed in the meantime
                    continue
                return row, activity
            if activity == "resting" and (row.status in ENDED or state_key(row, await service.waits(run)) != known):
                return row, activity
            if (until is not None and clock() >= until) or host.closing.is_set():
                return row, activity
            patience = _EVERY if until is None else max(0.0, min(_EVERY, until - clock()))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await news.wait()


async def activity_of(host: Host, row: RunRow) -> Activity:
    if await _is_resting(host, row):
        return "resting"
    if await host.worker.is_attended(row.id) or await host.service.is_left_to_workers(row.id):
        return "running"
    return "interrupted" if await host.worker.can_drive(row.id) else "elsewhere"


async def _is_resting(host: Host, row: RunRow) -> bool:
    service = host.service
    if row.status in ENDED:
        return not await service.is_due(row.id)
    if row.status not in WAITING or service.drives(row.id):
        return False
    now = service.clock()
    if row.reason == "timer":
        expiries = [wait.expires for wait in await service.waits(row.id) if wait.expires is not None]
        return min(expiries, default=now) - now > _SOON
    # An answered run is still `waiting` until a driver picks it up.
    return not await service.is_due(row.id) and not await service.is_driven(row.id)

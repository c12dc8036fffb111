"""Waits for a run, without driving it: whoever goes away loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cuebook.kernel.events import ENDED, WAITING, TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow
from cuebook.surfaces import wording
from cuebook.surfaces.mcp.host import LEFT, Host, Stand, told_state

_EVERY = 0.25
"""Seconds between two looks at a run that another process drives."""
_LIVELY = 10.0
"""Seconds after which a client hears that something is still going on."""
_SOON = 60.0
"""Seconds that a timer may have left for a run to count as under way."""

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Tells progress: how far, of how much, and in words."""


class Progress:
    """Tells a client how far a run is. What it tells in one call always grows, as the protocol wants it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen: tuple[str, int, str] | None = None
        self._last = 0.0
        self._at = 0.0

    async def tell(self, row: RunRow, now: float) -> None:
        seen = (row.status, row.totals.steps_done, row.step)
        if seen == self._seen and now - self._at < _LIVELY:
            return
        count = wording.steps_object(row)
        done, total = count["steps_done"], count["steps_total"]
        self._last = max(self._last + 0.001, float(done))
        self._seen, self._at = seen, now
        words = f"{row.status.replace('_', ' ')}, {wording.steps_words(row)}"
        await self._report(self._last, float(total) or None, f"{words}; at step {row.step}" if row.step else words)


async def followed(
    host: Host, run: str, progress: Progress, seconds: float | None = None, known: str = ""
) -> tuple[RunRow, Stand]:
    """The run when it waits for somebody or has ended, or nobody is at it; or as it is when the time is over. And how it
    stands.

    A run that waits in the state that is `known` is no news: it is followed on.
    """
    service, news = host.service, asyncio.Event()
    clock = asyncio.get_running_loop().time
    until = None if seconds is None else clock() + seconds

    def hear(event: Entry | TextChunk | TextReset) -> None:
        if event.run == run and isinstance(event, Entry):
            news.set()

    stop = service.observe(hear)
    try:
        while True:
            news.clear()
            row = await service.store.run(run)
            await progress.tell(row, clock())
            stand = await stand_of(host, row)
            if stand in LEFT:
                if await service.store.run(run) != row:  # it moved while it was looked at
                    continue
                return row, stand
            if stand == "rests" and (
                row.status in ENDED or told_state(row, await service.store.waits(run=run)) != known
            ):
                return row, stand
            if (until is not None and clock() >= until) or host.closing.is_set():
                return row, stand
            patience = _EVERY if until is None else max(0.0, min(_EVERY, until - clock()))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await news.wait()
    finally:
        stop()


async def stand_of(host: Host, row: RunRow) -> Stand:
    if await _rests(host, row):
        return "rests"
    if await host.drivers.attends(row.id):
        return "moves"
    return "left" if await host.drivers.takes(row.id) else "elsewhere"


async def _rests(host: Host, row: RunRow) -> bool:
    service = host.service
    if row.status in ENDED:
        return not await service.is_due(row.id)
    if row.status not in WAITING or service.engine.drives(row.id):
        return False
    now = service.engine.clock()
    if row.reason == "timer":
        expiries = [wait.expires for wait in await service.store.waits(run=row.id) if wait.expires is not None]
        return min(expiries, default=now) - now > _SOON
    # What was answered is still `waiting` until somebody takes it up.
    return not await service.is_due(row.id) and not await service.store.alive(row.id)

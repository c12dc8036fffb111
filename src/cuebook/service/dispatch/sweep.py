"""The sweep of a worker: it finds runs that are ready in the store and that no wake-up brought to a worker.

A wake-up is lost if a process dies after it wrote to the store, if the dispatcher cannot be reached at that moment, or if a
timer of the dispatcher is lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress

from cuebook.kernel.errors import CuebookError
from cuebook.service.service import Service

log = logging.getLogger("cuebook")

EVERY = 3.0
"""Seconds between two sweeps."""
GRACE = 6.0
"""Seconds that a run must have been ready, and up to half as many more: its wake-up is probably on its way, and one of many
workers is enough.
"""
_AT_ONCE = 50
"""Runs that one sweep wakes at most."""
AGAIN, _LATEST = 10.0, 300.0
"""Seconds until a run that stays ready is woken again. The delay doubles with each wake-up that was delivered, up to the second
number.
"""


class Sweep:
    """Wakes runs whose wake-up was lost, as long as it is running."""

    def __init__(self, service: Service, has_room: Callable[[], bool]) -> None:
        """`has_room` says whether the worker could drive another run. While it could not, ready runs are probably queued,
        and waking them would only add work.
        """
        self._service = service
        self._has_room = has_room
        self._since: dict[str, float] = {}
        """When each ready run was first seen, and a random time more."""
        self._next: dict[str, tuple[float, float]] = {}
        """When to wake each run again, and the delay after that."""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._service.stream.listen(self._news.set)
        self._task = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def look(self) -> list[str]:
        """Wakes the runs that have been ready for a while; returns them."""
        now = time.monotonic()
        if not self._has_room():
            self._since.clear()
            return []
        ready = [run for run in await self._service.ready() if not self._service.drives(run)]
        self._since = {run: self._since.get(run) or now + random.uniform(0.0, GRACE / 2) for run in ready}
        self._next = {run: self._next[run] for run in ready if run in self._next}
        plans = {run: self._next.get(run, (self._since[run] + GRACE, AGAIN)) for run in ready}
        due = sorted((run for run in ready if plans[run][0] <= now), key=lambda run: plans[run][0])
        woken: list[str] = []
        for run in due[:_AT_ONCE]:
            delay = plans[run][1]
            if not await self._service.wake(run):  # the others would fail too, after as long a wait
                self._next[run] = (time.monotonic() + EVERY, delay)
                break
            self._next[run] = (now + delay, min(2 * delay, _LATEST))
            woken.append(run)
        return woken

    async def _sweep(self) -> None:
        while True:
            try:
                await self.look()
            except CuebookError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("Looking for runs failed.")
            await asyncio.sleep(EVERY / 4)  # however many notices there are
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY * random.uniform(0.5, 1.5)):  # workers need not sweep together
                    await self._news.wait()

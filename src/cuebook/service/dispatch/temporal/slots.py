"""One limit for the activations on all queues of a worker."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)


class Full(Exception):
    """No slot became free in time."""


class Permit(SlotPermit):
    """Permission to poll a queue once, and then to perform the task that the poll returned."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.used = False


class Slots(CustomSlotSupplier):
    """Lets a queue be polled while there is room for what the poll returns.

    Polls of different queues are not counted against each other, because most of them return nothing for a long time. So
    there may be more tasks than slots for a moment; these wait for a slot here.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running = 0
        self._tasks = 0
        """Tasks that this worker has received and not finished."""
        self._polls: Counter[str] = Counter()
        """Permits that have no task yet, by their queue."""
        self._lock = threading.Lock()  # the SDK calls some methods from its own threads
        self._loop = asyncio.get_running_loop()
        self._freed = asyncio.Event()

    @property
    def has_room(self) -> bool:
        return self._tasks < self._at_once

    @asynccontextmanager
    async def taken(self, patience: float) -> AsyncIterator[None]:
        """Takes a slot for a task. Raises `Full` if none becomes free in time."""
        try:
            async with asyncio.timeout(patience):
                while self._running >= self._at_once:
                    await self._change()
        except TimeoutError:
            raise Full from None
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._freed.set()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while (permit := self.try_reserve_slot(ctx)) is None:
            await self._change()
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        with self._lock:
            if self._tasks + self._polls[ctx.task_queue] >= self._at_once:
                return None
            self._polls[ctx.task_queue] += 1
        return Permit(ctx.task_queue)

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        permit = ctx.permit
        assert isinstance(permit, Permit)
        with self._lock:
            permit.used = True
            self._polls[permit.queue] -= 1
            self._tasks += 1

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        permit = ctx.permit
        assert isinstance(permit, Permit)
        with self._lock:
            if permit.used:
                self._tasks -= 1
            else:
                self._polls[permit.queue] -= 1
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._freed.set)

    async def _change(self) -> None:
        self._freed.clear()
        await self._freed.wait()

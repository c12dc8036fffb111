"""Slots of limits that hold across all processes on one store. Waiters of this process queue in order, so only the first
asks the store; it competes with the first of each other process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from cuebook.kernel.errors import StoreError
from cuebook.kernel.ports import Store

T = TypeVar("T")

log = logging.getLogger("cuebook")

_SHORTEST, _LONGEST = 0.05, 0.5
"""Seconds between two questions of a waiter. They must stay below the gaps that leases allow between two looks."""
_AFTER_FAILURE = 1.0
"""Seconds before a slot that could not be freed is freed again."""
_AT_CLOSE = 2.0
"""Seconds for the slots that are being freed when the engine closes. Retiring the driver frees the others."""


class _Queue:
    """The waiters of this process for one limit."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()  # it serves in order
        self.freed = asyncio.Event()
        self.members = 0
        self._full = False
        self._unnotified: list[Callable[[], None]] = []

    def join(self, waits: Callable[[], None]) -> None:
        self.members += 1
        if self._full:
            waits()
        else:
            self._unnotified.append(waits)

    def leave(self, waits: Callable[[], None]) -> None:
        self.members -= 1
        if waits in self._unnotified:
            self._unnotified.remove(waits)

    def is_full(self, full: bool) -> None:
        """Lets every waiter know that it has to wait."""
        self._full = full
        if full:
            unnotified, self._unnotified = self._unnotified, []
            for waits in unnotified:
                waits()


class DriverSlots:
    """Implements `kernel.ports.Slots` for one driver."""

    def __init__(self, store: Store, driver: str, beat: Callable[[], Awaitable[None]]) -> None:
        """`beat` makes sure that the driver has a lease: slots without one do not count."""
        self._store = store
        self._driver = driver
        self._beat = beat
        self._queues: dict[str, _Queue] = {}
        self._names: dict[int, str] = {}
        self._full_since: dict[str, float] = {}
        self._heard = 0
        """How many slots have become free."""
        self._under_way: set[asyncio.Future[Any]] = set()
        """The requests to the store that have not been answered."""

    async def take(self, name: str, most: int, lasts: float | None = None) -> int | None:
        """Takes a slot if one is free, and returns its id. A limit that was reached a moment ago is not asked about again."""
        if time.monotonic() - self._full_since.get(name, -1e9) < _SHORTEST:
            return None
        await self._beat()
        heard = self._heard
        taking = self._begin(self._store.take_slot(name, most, self._driver, lasts))
        try:
            slot = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda taken: self._unwanted(taken, lasts))  # the store may take it all the same
            raise
        if slot is None and heard == self._heard:
            self._full_since[name] = time.monotonic()
        elif slot is not None and lasts is None:
            self._names[slot] = name
        return slot

    def free(self, slot: int) -> asyncio.Task[None]:
        """Frees a slot, and tries until that succeeds. No one has to wait for it."""
        return self._begin(self._free(slot))

    @asynccontextmanager
    async def hold(
        self, name: str, most: int, waits: Callable[[], None], *, lasts: float | None = None
    ) -> AsyncIterator[None]:
        slot = await self._wait_for(name, most, waits, lasts)
        try:
            yield
        finally:
            if lasts is None:
                self.free(slot)

    def heard(self, name: str) -> None:
        """A slot with this name may be free; without a name, any."""
        self._heard += 1
        for one in [name] if name else [*self._full_since, *self._queues]:
            self._full_since.pop(one, None)
            if one in self._queues:
                self._queues[one].freed.set()

    async def close(self) -> None:
        end = time.monotonic() + _AT_CLOSE
        while self._under_way and (left := end - time.monotonic()) > 0:
            await asyncio.wait(self._under_way, timeout=left)
        unanswered = tuple(self._under_way)
        for task in unanswered:
            task.cancel()
        await asyncio.gather(*unanswered, return_exceptions=True)

    # --- inside ---

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _wait_for(self, name: str, most: int, waits: Callable[[], None], lasts: float | None) -> int:
        queue = self._queues.setdefault(name, _Queue())
        queue.join(waits)
        try:
            async with queue.turn:
                return await self._first(queue, name, most, lasts)
        finally:
            queue.leave(waits)
            if not queue.members:
                del self._queues[name]

    async def _first(self, queue: _Queue, name: str, most: int, lasts: float | None) -> int:
        """Asks for a slot until there is one."""
        pause = _SHORTEST
        while True:
            queue.freed.clear()
            slot = None
            try:
                slot = await self.take(name, most, lasts)
            except StoreError as error:  # if it lasts, the journal cannot be written either, and the drive ends
                log.warning("%s", error)
            queue.is_full(slot is None)
            if slot is not None:
                return slot
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await queue.freed.wait()
            pause = min(_LONGEST, pause * 1.5)

    async def _free(self, slot: int) -> None:
        while True:
            try:
                await self._store.free_slot(slot)
                break
            except StoreError as error:
                log.warning("%s", error)
                await asyncio.sleep(_AFTER_FAILURE)
        name = self._names.pop(slot, "")
        if name:
            self.heard(name)

    def _unwanted(self, taken: asyncio.Future[int | None], lasts: float | None) -> None:
        slot = None if taken.cancelled() or taken.exception() is not None else taken.result()
        if slot is not None and lasts is None:
            self.free(slot)

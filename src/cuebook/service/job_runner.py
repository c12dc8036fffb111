"""Does what is due: takes jobs from the store, passes each to its handler, and keeps what the handler returns.

Several processes may share a store; each job is taken by one of them, and by another if that one dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Job, Store
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook")

Handler = Callable[[Job], Awaitable[Job | None]]
"""Does a job. Returns it as it should be kept, with the moment when it is due again, or None if it is finished."""

HELD = 30.0
"""Seconds after which another process takes a job whose process died."""
_LOOK = 2.0
"""Seconds between two looks at the store: another process may have added a job, and clocks jump."""
_AT_ONCE = 16
_AGAIN = 60.0
"""Seconds after which a job is tried again whose handler raised an error."""


class JobRunner:
    """The jobs of some kinds, done by this process."""

    def __init__(
        self, store: Store, handlers: Mapping[str, Handler], *, held: float = HELD, look: float = _LOOK
    ) -> None:
        self._store = store
        self._handlers = dict(handlers)
        self._held = held
        self._look = look
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Looks for jobs now, because one was added here."""
        self._woken.set()

    async def run(self) -> None:
        """Does jobs until it is cancelled. A job in progress is then taken by another process later, or by this one again."""
        try:
            while True:
                pause = self._look
                try:
                    pause = await self.once()
                except CuebookError as error:  # a lock or a full disk may be temporary
                    log.warning("jobs: %s", error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), pause)
                self._woken.clear()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def once(self) -> float:
        """Begins the jobs that are due; returns how many seconds to pause."""
        kinds, room = list(self._handlers), _AT_ONCE - len(self._tasks)
        if room <= 0:
            return self._look
        now = self._store.now()
        taken = await self._store.take_jobs(kinds, now, now + self._held, room)
        for job in taken:
            task = asyncio.create_task(self._do(job))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        if taken:
            return 0.0 if len(taken) < room else self._look
        due = await self._store.next_due(kinds)
        return self._look if due is None else min(max(due - self._store.now(), 0.0), self._look)

    async def settled(self) -> None:
        """Waits until no job is in progress."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._woken.set()

    async def _do(self, job: Job) -> None:
        holding = _Held(self._store, job, self._held)
        try:
            async with holding.renewed():
                after = await self._handlers[job.kind](job)
            held = holding.job
            if held is None:
                return  # another process has taken it over
            if after is None:
                await self._store.drop_job(held)
            else:
                await self._store.put_job(msgspec.structs.replace(after, version=held.version))
        except CuebookError as error:
            log_event(log, "job.failed", logging.WARNING, kind=job.kind, name=job.name, code=error.code)
            await self._postpone(holding)
        except Exception:
            log.exception("%s %s failed.", job.kind, job.name)
            log_event(log, "job.failed", logging.WARNING, kind=job.kind, name=job.name, code="defect")
            await self._postpone(holding)

    async def _postpone(self, holding: _Held) -> None:
        if holding.job is not None:
            with suppress(CuebookError):
                due = self._store.now() + _AGAIN
                await self._store.put_job(msgspec.structs.replace(holding.job, due=due))


class _Held:
    """A job that this process does, kept from others while that takes longer than expected."""

    def __init__(self, store: Store, job: Job, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self.job: Job | None = job

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _renew(self) -> None:
        while self.job is not None:
            await asyncio.sleep(self._seconds / 3)
            due = self._store.now() + self._seconds
            self.job = await asyncio.shield(self._put(msgspec.structs.replace(self.job, due=due)))

    async def _put(self, job: Job) -> Job | None:
        try:
            return await self._store.put_job(job)
        except CuebookError:
            return job

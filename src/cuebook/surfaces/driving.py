"""Drives runs in this process: those begun or touched here, and those that something happened to while nobody was there.

What a run is left as says whether it wants to be taken up. One whose driver died, or that was answered elsewhere, does.
One that a person let go, as with Ctrl-C at a terminal, waits for that person, unless it was this server that had it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from cuebook.kernel.errors import Busy, CuebookError, NotFound, StoreError
from cuebook.kernel.events import ENDED
from cuebook.kernel.journal import without_void
from cuebook.kernel.replay import Recorded
from cuebook.kernel.run import RunRow
from cuebook.service import PYTHON, Service

log = logging.getLogger("cuebook")

SERVED = "served"
"""Under this, the store keeps which runs a server has in hand, so that the next one goes on with them."""
_EVERYONE = ""
_GRACE = 2.0
"""Seconds that whoever answered a run elsewhere has to take it up themselves."""
_AFTER_FAILURE = 5.0


class Drivers:
    """Takes runs forward, so many at once."""

    def __init__(self, service: Service, workspace: str, *, at_once: int = 20, every: float = 0.25) -> None:
        """Runs of another folder than `workspace` are left to whoever works there."""
        self._service = service
        self._workspace = workspace
        self._at_once = at_once
        self._every = every
        self._tasks: dict[str, asyncio.Task[RunRow]] = {}
        self._served: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._foreign: dict[str, bool] = {}
        """Runs that are not of this folder, or not to be driven by this process at all."""
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begins to look for runs; those that the last server had in hand go on."""
        self._served = set(await self._service.store.kept(_EVERYONE, SERVED))
        self._loop = asyncio.create_task(self._serve())

    async def take(self, run: str) -> None:
        """Goes on with a run as soon as there is room, and has it in hand until it ends."""
        if run not in self._served:
            self._served.add(run)
            await self._service.store.keep(_EVERYONE, SERVED, run, {})
        self._not_before.pop(run, None)
        self._news.set()

    def drives(self, run: str) -> bool:
        return run in self._tasks

    async def takes(self, run: str) -> bool:
        """Whether this process would drive it: whether it is of this folder, and no program of somebody's own."""
        return not await self._is_foreign(run)

    async def rest(self) -> None:
        """Comes back when nothing that this process has in hand wants to go on."""
        while self._tasks or await self._in_hand():  # noqa: ASYNC110 - others may change the store
            await asyncio.sleep(self._every / 5)

    async def close(self) -> None:
        """Lets go of everything: it can be taken up again where it stopped."""
        tasks = [*self._tasks.values(), *([self._loop] if self._loop is not None else [])]
        self._loop = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- inside ---

    async def _serve(self) -> None:
        while True:
            self._news.clear()
            try:
                await self._look()
            except StoreError as error:  # a lock or a full disk may pass
                log.warning("%s", error)
            except Exception:
                log.exception("Looking for runs failed.")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._every)

    async def _look(self) -> None:
        service, now = self._service, self._service.engine.clock()
        await service.store.expire(now)
        ready = await service.store.ready(now, service.engine.driver)
        for gone in self._not_before.keys() - set(ready):
            del self._not_before[gone]
        for run in ready:
            if len(self._tasks) >= self._at_once:
                return
            if run in self._tasks or service.engine.drives(run) or not await self._wanted(run, now):
                continue
            task = self._tasks[run] = asyncio.create_task(service.take_up(run))
            task.add_done_callback(lambda done, run=run: self._let_go(run, done))  # type: ignore[misc]

    async def _in_hand(self) -> list[str]:
        ready = await self._service.store.ready(self._service.engine.clock(), self._service.engine.driver)
        return [run for run in ready if run in self._served and not await self._is_foreign(run)]

    async def _wanted(self, run: str, now: float) -> bool:
        if self._not_before.get(run, 0.0) > now:
            return False
        if run in self._served:
            return not await self._is_foreign(run)
        row = await self._service.store.run(run)
        let_go = row.status in ("pending", "running") and not row.driver
        if let_go or await self._is_foreign(run):
            return False
        if run not in self._not_before:
            self._not_before[run] = now + _GRACE
            return False
        return True

    async def _is_foreign(self, run: str) -> bool:
        known = self._foreign.get(run)
        if known is None:
            row = await self._service.store.run(run)
            entries = [entry async for entry in self._service.engine.entries(run)]
            workspace = Recorded(without_void(entries), 0).settings.workspace
            known = row.dialect == PYTHON or bool(workspace and workspace != self._workspace)
            self._foreign[run] = known
        return known

    def _let_go(self, run: str, task: asyncio.Task[RunRow]) -> None:
        self._tasks.pop(run, None)
        self._news.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if task.result().status in ENDED and run in self._served:
                self._served.discard(run)
                _background(self._forget(run))
            return
        self._not_before[run] = self._service.engine.clock() + _AFTER_FAILURE
        if not isinstance(error, Busy):
            log.warning("run %s: %s", run, error, exc_info=None if isinstance(error, CuebookError) else error)

    async def _forget(self, run: str) -> None:
        with suppress(StoreError, NotFound):
            await self._service.store.forget(_EVERYONE, SERVED, run)


_under_way: set[asyncio.Task[None]] = set()


def _background(work: object) -> None:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)

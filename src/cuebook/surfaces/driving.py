"""Drives runs in this process: those begun or touched here, and those that something happened to while nobody was there.

What a run is left as says whether it wants to be taken up. One whose driver died, or that was answered elsewhere, does.
One that a person let go, as with Ctrl-C at a terminal, waits for that person, unless it was this server that had it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from cuebook.kernel.errors import Busy, CuebookError, NotFound, Refused, StoreError
from cuebook.kernel.events import ENDED, UNDER_WAY, RunStarted
from cuebook.kernel.run import RunRow
from cuebook.service import PYTHON, Principal, Service

log = logging.getLogger("cuebook")

SERVED = "served"
"""Under this, the store keeps which runs a server has in hand, so that the next one goes on with them."""
_EVERYONE = ""
_NOWHERE = "\0"
"""Stands for the folder of a program of somebody's own: no process but theirs can drive it."""
_GRACE = 2.0
"""Seconds that whoever answered a run elsewhere has to take it up themselves."""
_AFTER_FAILURE, _AFTER_MANY = 5.0, 300.0
"""Seconds until a run that could not be taken forward is tried again; twice as many each time, up to the last."""


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
        self._failures: dict[str, int] = {}
        """How often each run could not be taken forward, one time after the other."""
        self._places: dict[str, str] = {}
        """The folder that each run works in."""
        self._adopted: set[str] = set()
        """Runs of other folders that are to be brought to their end here."""
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begins to look for runs; those that the last server had in hand go on."""
        kept = await self._service.store.kept(_EVERYONE, SERVED)
        self._served = {run for run in kept if await self._goes_on(run)}
        self._adopted = {run for run in self._served if kept[run].get("adopted")}
        for run in kept.keys() - self._served:
            await self._forget(run)
        self._loop = asyncio.create_task(self._serve())

    async def take(self, run: str, *, adopt: bool = False) -> None:
        """Goes on with a run as soon as there is room, and has it in hand until it ends.

        One of another folder is left to whoever works there, unless it is to be adopted: what it may do here is nothing.
        """
        if not await self._goes_on(run):
            return
        adopt = adopt and await self._is_foreign(run) and not await self._has_driver(run)
        if adopt:
            self._adopted.add(run)
        elif await self._is_foreign(run):
            return
        if run not in self._served or adopt:
            self._served.add(run)
            await self._service.store.keep(_EVERYONE, SERVED, run, {"adopted": True} if adopt else {})
        self._not_before.pop(run, None)
        self._failures.pop(run, None)
        self._news.set()

    def drives(self, run: str) -> bool:
        return run in self._tasks

    async def takes(self, run: str) -> bool:
        """Whether this process would drive it: whether it is of this folder, and no program of somebody's own."""
        return not await self._is_foreign(run)

    async def attends(self, run: str) -> bool:
        """Whether somebody is at a run, or will be without being asked. What a person let go waits for a person."""
        if self.drives(run) or await self._has_driver(run):
            return True
        return await self._will_take(await self._service.store.run(run))

    async def left(self, who: Principal) -> list[RunRow]:
        """Runs that go on only when somebody resumes them, newest first."""
        rows = await self._service.interrupted(who)
        return [row for row in rows if not self.drives(row.id) and not await self._will_take(row)]

    async def require(self, run: str) -> None:
        """`Refused` where nobody would go on with a run: it works in another folder, and nobody drives it there."""
        place = await self.elsewhere(run)
        if not place:
            return
        raise Refused(
            f"Run {run} works in {place}, and this server works in {self._workspace}: it would not go on here.",
            fix="Do that there, with `cuebook` or with a server of that folder. Cancelling it is possible here, too.",
        )

    async def elsewhere(self, run: str) -> str:
        """The other folder in which a run works and no process drives it; empty where it can go on after a decision here."""
        place = await self._place(run)
        return "" if place in ("", _NOWHERE, self._workspace) or await self._has_driver(run) else place

    async def moves(self, run: str) -> bool:
        """Whether something is done with a run just now, or is about to be."""
        return self.drives(run) or await self._has_driver(run) or await self._service.is_due(run)

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
                async with asyncio.timeout(self._every):  # `wait_for` can lose a cancellation to news that come with it
                    await self._news.wait()

    async def _look(self) -> None:
        service, now = self._service, time.monotonic()
        await service.store.expire(service.engine.clock())
        ready = await service.store.ready(service.engine.clock(), service.engine.driver)
        for gone in self._not_before.keys() - set(ready):
            del self._not_before[gone]
            self._failures.pop(gone, None)
        for run in ready:
            if len(self._tasks) >= self._at_once:
                return
            if run in self._tasks or service.engine.drives(run) or self._not_before.get(run, 0.0) > now:
                continue
            try:
                wanted = await self._wanted(run, now)
            except Exception as error:  # what is wrong with one run is not the others' business
                self._put_off(run, error)
                continue
            if not wanted:
                continue
            task = self._tasks[run] = asyncio.create_task(service.take_up(run))
            task.add_done_callback(lambda done, run=run: self._let_go(run, done))  # type: ignore[misc]

    async def _in_hand(self) -> list[str]:
        ready = await self._service.store.ready(self._service.engine.clock(), self._service.engine.driver)
        mine = [run for run in ready if run in self._served and run not in self._failures]
        return [run for run in mine if not await self._is_foreign(run)]

    async def _wanted(self, run: str, now: float) -> bool:
        if run in self._served:
            return not await self._is_foreign(run)
        row = await self._service.store.run(run)
        if _was_let_go(row) or await self._is_foreign(run):
            return False
        if run not in self._not_before:
            self._not_before[run] = now + _GRACE
            return False
        return True

    async def _will_take(self, row: RunRow) -> bool:
        """Whether this process takes up a run, that no process drives, without being asked."""
        return not await self._is_foreign(row.id) and (row.id in self._served or not _was_let_go(row))

    async def _is_foreign(self, run: str) -> bool:
        """Whether it is of another folder and was not adopted, or is not to be driven by this process at all."""
        if run in self._adopted:
            return False
        place = await self._place(run)
        return place == _NOWHERE or bool(place and place != self._workspace)

    async def _place(self, run: str) -> str:
        """The folder that a run works in; empty where that was not said."""
        place = self._places.get(run)
        if place is None:
            row, place = await self._service.store.run(run), ""
            async for entry in self._service.engine.entries(run):
                if isinstance(entry.event, RunStarted):
                    place = str(entry.event.settings.get("workspace", ""))
                break
            place = self._places[run] = _NOWHERE if row.dialect == PYTHON else place
        return place

    async def _has_driver(self, run: str) -> bool:
        return await self._service.store.alive(run)

    async def _goes_on(self, run: str) -> bool:
        """Whether there is something left to do in a run, now or later."""
        service = self._service
        try:
            if (await service.store.run(run)).status not in ENDED:
                return True
        except NotFound:
            return False
        except StoreError:
            return True
        return await service.is_due(run)

    def _let_go(self, run: str, task: asyncio.Task[RunRow]) -> None:
        self._tasks.pop(run, None)
        self._news.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures.pop(run, None)
            if task.result().status in ENDED and run in self._served:
                self._served.discard(run)
                self._adopted.discard(run)
                _background(self._forget(run))
            return
        self._put_off(run, error)

    def _put_off(self, run: str, error: BaseException) -> None:
        failures = self._failures[run] = self._failures.get(run, 0) + 1
        pause = min(_AFTER_FAILURE * 2 ** (failures - 1), _AFTER_MANY)
        self._not_before[run] = time.monotonic() + pause
        if not isinstance(error, Busy):
            log.warning("run %s: %s", run, error, exc_info=None if isinstance(error, CuebookError) else error)

    async def _forget(self, run: str) -> None:
        with suppress(StoreError, NotFound):
            await self._service.store.forget(_EVERYONE, SERVED, run)


def _was_let_go(row: RunRow) -> bool:
    return row.status in UNDER_WAY and not row.driver


_under_way: set[asyncio.Task[None]] = set()


def _background(work: object) -> None:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)

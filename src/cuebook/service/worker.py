"""The driver loop: drives one run until it waits or ends, and, in a server, every run that this process should drive.

A worker picks up runs that were started or changed here, runs whose driver died, and runs that were answered in another
process. A run that a user interrupted, for example with Ctrl-C, waits for that user, unless this server was driving it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import Busy, CuebookError, Elsewhere, NotFound, Refused, StoreError
from cuebook.kernel.events import ENDED, UNDER_WAY, WAITING, RunStarted
from cuebook.kernel.run import RunRow

if TYPE_CHECKING:
    from cuebook.service.service import Service

log = logging.getLogger("cuebook")

PYTHON = "python"
"""The dialect of a run whose program is a Python function: only a process that has the function can drive it."""
SERVED = "served"
"""The kind of record that lists a server's runs, so the next server can continue them."""
_EVERYONE = ""
_NOWHERE = "\0"
"""The workspace of a Python program's run: no worker can drive it."""
_GRACE = 2.0
"""Seconds that the process that answered a run has to continue it before this process does."""
_AFTER_FAILURE, _AFTER_MANY = 5.0, 300.0
"""Seconds before a run that could not be driven is retried. The delay doubles each time, up to the second number."""
_LONGEST_SLEEP = 1.0
"""Seconds between two checks of the clock while a timer runs: it may jump, for example while the machine sleeps."""
_FOLLOW_EVERY = 0.1
"""Seconds between two checks of a run that another process is driving."""


async def drive(service: Service, run: str) -> RunRow:
    """Drives a run until it waits for someone or ends. Follows it while another process is driving it."""
    while True:
        try:
            row = await service.take_up(run)
        except Busy:
            row = await service.follow(run)
            if await service.is_due(run):
                continue  # its driver is gone
        if row.status != "paused" or row.reason != "timer":
            return row
        expiry = min((w.expires for w in await service.waits(run) if w.expires is not None), default=0.0)
        while (left := expiry - service.clock()) > 0:  # noqa: ASYNC110 - the clock may jump
            await asyncio.sleep(min(left, _LONGEST_SLEEP))


class Worker:
    """Drives runs in this process: runs that a caller is waiting for, and, once it is open, runs that are ready."""

    def __init__(self, service: Service, workspace: str, *, at_once: int = 20, every: float = 0.25) -> None:
        """Picks up at most `at_once` ready runs of the folder `workspace`; checks for them every `every` seconds."""
        self._service = service
        self._workspace = workspace
        self._at_once = at_once
        self._every = every
        self._tasks: dict[str, asyncio.Task[RunRow]] = {}
        """The runs that the worker picked up because they were ready."""
        self._requested: dict[str, asyncio.Task[RunRow]] = {}
        """The runs that a caller asked to be driven; `at_once` does not count them."""
        self._served: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        """How many times in a row each run could not be driven."""
        self._places: dict[str, str] = {}
        """The workspace of each run."""
        self._adopted: set[str] = set()
        """Runs from other workspaces that are only ended here."""
        self._news = asyncio.Event()
        self._opened = False
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts looking for ready runs, and continues the last server's runs."""
        self._opened = True
        kept = await self._service.kept(_EVERYONE, SERVED)
        self._served = {run for run in kept if await self._is_unfinished(run)}
        self._adopted = {run for run in self._served if kept[run].get("adopted")}
        for run in kept.keys() - self._served:
            await self._forget(run)
        await self._service.stream.listen(self._news.set)
        self._loop = asyncio.create_task(self._serve())

    async def take(self, run: str, *, adopt: bool = False) -> None:
        """Drives a run as soon as there is capacity, and keeps driving it until it ends. Does nothing if the worker was
        never opened.

        A run of another workspace is left alone unless it is adopted; an adopted run can only be brought to an end.
        """
        if not self._opened or not await self._is_unfinished(run):
            return
        adopt = adopt and await self._is_foreign(run) and not await self._service.is_driven(run)
        if adopt:
            self._adopted.add(run)
        elif await self._is_foreign(run):
            return
        if run not in self._served or adopt:
            self._served.add(run)
            await self._service.keep(_EVERYONE, SERVED, run, {"adopted": True} if adopt else {})
        self._not_before.pop(run, None)
        self._failures.pop(run, None)
        self._news.set()

    async def drive_until(self, run: str, deadline: float | None) -> bool:
        """Drives a run for a caller until it waits for someone or ends. Returns False if the deadline comes first.

        The run continues after the deadline. All callers waiting for a run share one task.
        """
        while await self._can_continue(run):
            task = self._tasks.get(run) or self._requested.get(run)
            if task is None:
                task = self._requested[run] = asyncio.create_task(drive(self._service, run))
                task.add_done_callback(lambda done: self._release_requested(run, done))
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = await asyncio.wait([task], timeout=left)
            if not done:
                return False
            task.result()
        return True

    async def watch_until(self, run: str, deadline: float | None) -> bool:
        """Like `drive_until`, but only observes the run. Also returns False if no process is driving it."""
        while await self._can_continue(run):
            left = _FOLLOW_EVERY if deadline is None else min(_FOLLOW_EVERY, deadline - time.monotonic())
            if left <= 0 or not await self.is_driven(run):
                return False
            await asyncio.sleep(left)
        return True

    async def requested(self) -> list[str]:
        """The runs that are driven here for callers, except runs that another process is driving."""
        return [run for run in list(self._requested) if not await self._service.is_driven_elsewhere(run)]

    async def finish_requested(self) -> None:
        """Waits until every run that is driven here for a caller is waiting for someone or has ended."""
        while self._requested:
            await asyncio.wait(list(self._requested.values()))

    def drives(self, run: str) -> bool:
        return run in self._tasks or run in self._requested

    async def is_driven(self, run: str) -> bool:
        """Whether this worker or another process is driving a run."""
        return self.drives(run) or await self._service.is_driven(run)

    async def can_drive(self, run: str) -> bool:
        """Whether this process may drive a run: the run belongs to this workspace, and not to a Python program."""
        return not await self._is_foreign(run)

    async def is_attended(self, run: str) -> bool:
        """Whether a process is driving a run or will drive it without being asked."""
        return await self.is_driven(run) or await self._will_take(await self._service.row(run))

    async def interrupted(self, who: Principal) -> list[RunRow]:
        """Runs that continue only when someone resumes them, newest first."""
        rows = await self._service.interrupted(who)
        return [row for row in rows if not self.drives(row.id) and not await self._will_take(row)]

    async def check_workspace(self, run: str) -> None:
        """Raises `Refused` if the run belongs to another workspace and no process is driving it there."""
        place = await self.other_workspace(run)
        if not place:
            return
        raise Refused(
            f"Run {run} works in {place}, but this server works in {self._workspace}, so the run cannot continue here.",
            fix="Do this in that folder, with `cuebook` or with a server there. Here you can only cancel the run.",
        )

    async def other_workspace(self, run: str) -> str:
        """The other workspace of a run that no process is driving; empty if the run can continue after a decision here."""
        place = await self._place(run)
        return "" if place in ("", _NOWHERE, self._workspace) or await self._service.is_driven(run) else place

    async def is_moving(self, run: str) -> bool:
        """Whether a run is being driven or is about to be."""
        return await self.is_driven(run) or await self._service.is_due(run)

    async def until_idle(self) -> None:
        """Returns when none of this worker's runs has work left to do now."""
        while self._tasks or await self._due():  # noqa: ASYNC110 - others may change the store
            await asyncio.sleep(self._every / 5)

    async def close(self) -> None:
        """Stops driving. Every run can be continued where it stopped."""
        tasks = [*self._tasks.values(), *self._requested.values(), *([self._loop] if self._loop is not None else [])]
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
            except StoreError as error:  # a lock or a full disk may be temporary
                log.warning("%s", error)
            except Exception:
                log.exception("Looking for runs failed.")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):  # `wait_for` can lose a cancellation that arrives with news
                    await self._news.wait()

    async def _look(self) -> None:
        service, now = self._service, time.monotonic()
        await service.expire()
        ready = await service.ready()
        for gone in self._not_before.keys() - set(ready):
            del self._not_before[gone]
            self._failures.pop(gone, None)
        for run in ready:
            if len(self._tasks) >= self._at_once:
                return
            if self.drives(run) or service.drives(run) or self._not_before.get(run, 0.0) > now:
                continue
            try:
                if not await self._should_take(run, now):
                    continue
            except Exception as error:  # a problem with one run must not affect the others
                self._put_off(run, error)
                continue
            task = self._tasks[run] = asyncio.create_task(service.take_up(run))
            task.add_done_callback(lambda done, run=run: self._release(run, done))  # type: ignore[misc]

    async def _due(self) -> list[str]:
        ready = await self._service.ready()
        mine = [run for run in ready if run in self._served and run not in self._failures]
        return [run for run in mine if not await self._is_foreign(run)]

    async def _should_take(self, run: str, now: float) -> bool:
        if run in self._served:
            return not await self._is_foreign(run)
        row = await self._service.row(run)
        if _was_interrupted(row) or await self._is_foreign(run):
            return False
        if run not in self._not_before:
            self._not_before[run] = now + _GRACE
            return False
        return True

    async def _will_take(self, row: RunRow) -> bool:
        """Whether this worker picks up a run that no process is driving, without being asked."""
        return not await self._is_foreign(row.id) and (row.id in self._served or not _was_interrupted(row))

    async def _is_foreign(self, run: str) -> bool:
        """Whether a run belongs to another workspace and was not adopted, or to a Python program."""
        if run in self._adopted:
            return False
        place = await self._place(run)
        return place == _NOWHERE or bool(place and place != self._workspace)

    async def _place(self, run: str) -> str:
        """The workspace of a run; empty if its journal does not specify one."""
        place = self._places.get(run)
        if place is None:
            row, place = await self._service.row(run), ""
            async for entry in self._service.entries(run):
                if isinstance(entry.event, RunStarted):
                    place = str(entry.event.settings.get("workspace", ""))
                break
            place = self._places[run] = _NOWHERE if row.dialect == PYTHON else place
        return place

    async def _is_unfinished(self, run: str) -> bool:
        """Whether a run has work left to do, now or later."""
        service = self._service
        try:
            if (await service.row(run)).status not in ENDED:
                return True
        except NotFound:
            return False
        except StoreError:
            return True
        return await service.is_due(run)

    async def _can_continue(self, run: str) -> bool:
        """Whether a run can continue without anyone's input."""
        service = self._service
        row = await service.row(run)
        if row.status in ENDED:
            return await service.is_due(run)
        if row.status not in WAITING or row.reason == "timer":
            return True
        await service.expire(run)
        if row.reason == "non_determinism":
            return False
        return not await service.waits(run) or await service.is_due(run)

    def _release(self, run: str, task: asyncio.Task[RunRow]) -> None:
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

    def _release_requested(self, run: str, task: asyncio.Task[RunRow]) -> None:
        self._requested.pop(run, None)
        self._news.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Elsewhere):  # the caller receives this error
            log.warning("run %s: %s", run, error)

    def _put_off(self, run: str, error: BaseException) -> None:
        failures = self._failures[run] = self._failures.get(run, 0) + 1
        pause = min(_AFTER_FAILURE * 2 ** (failures - 1), _AFTER_MANY)
        self._not_before[run] = time.monotonic() + pause
        if not isinstance(error, Busy):
            log.warning("run %s: %s", run, error, exc_info=None if isinstance(error, CuebookError) else error)

    async def _forget(self, run: str) -> None:
        with suppress(StoreError, NotFound):
            await self._service.forget(_EVERYONE, SERVED, run)


def _was_interrupted(row: RunRow) -> bool:
    return row.status in UNDER_WAY and not row.driver


_under_way: set[asyncio.Task[None]] = set()


def _background(work: object) -> None:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)

"""The driver loop: drives one run until it waits or ends, and, in a server, every run that this process should drive.

A worker picks up runs that were started or changed here, runs whose driver died, and runs that were answered in another
process. A run that a user interrupted, for example with Ctrl-C, waits for that user, unless this server was driving it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import AtLimit, Busy, CuebookError, Elsewhere, NotFound, Refused, StoreError
from cuebook.kernel.events import ENDED, UNDER_WAY, WAITING
from cuebook.kernel.run import RunRow
from cuebook.system.logs import log_event

if TYPE_CHECKING:
    from cuebook.service.service import Service

log = logging.getLogger("cuebook")

PYTHON = "python"
"""The dialect of a run whose program is a Python function: only a process that has the function can drive it."""
SERVED = "served"
"""The kind of record that lists a server's runs, so the next server can continue them."""
EVERYONE = ""
_GRACE = 2.0
"""Seconds that the process that answered a run has to continue it before this process does."""
_AFTER_FAILURE, _AFTER_MANY = 5.0, 300.0
"""Seconds before a run that could not be driven is retried. The delay doubles each time, up to the second number."""
_LONGEST_SLEEP = 1.0
"""Seconds between two checks of the clock while a timer runs: it may jump, for example while the machine sleeps."""
_NOT_OURS = 1.0
"""Seconds until another look at a run that waits for the user who interrupted it."""
_BETWEEN_TRIES = (0.1, 0.3)
"""Seconds between two tries to drive a run whose tenant is at its limit. Random, so that no process is always first."""
_BETWEEN_LOOKS = 0.05
"""The least number of seconds from one look for ready runs to the next, however much news arrives."""
_MARKING = 2.0
"""Seconds to mark the runs that are released. If the store cannot be reached, their processes must end nevertheless."""
_FOLLOW_EVERY = 0.1
"""Seconds between two checks of a run that another process is driving."""

Released = Callable[[str, asyncio.Task[RunRow]], None]
"""Called with a run and its finished task when a worker stops driving it."""


async def drive(service: Service, run: str, waits: Callable[[str], None] | None = None) -> RunRow:
    """Drives a run until it waits for someone or ends. Follows it while another process is driving it. `waits` is called with
    the reason if the run has to wait because its tenant is at its limit.
    """
    said = False
    while True:
        try:
            row = await service.take_up(run)
        except AtLimit as limit:
            if not said:
                log.info("run %s waits: %s", run, limit.message)
                if waits is not None:
                    waits(limit.message)
            said = True
            await asyncio.sleep(random.uniform(*_BETWEEN_TRIES))
            continue
        except Busy:
            row = await service.follow(run)
            if await service.is_due(run):
                continue  # its driver is gone
        if row.status != "paused" or row.reason != "timer":
            return row
        expiry = min((w.expires for w in await service.waits(run) if w.expires is not None), default=0.0)
        while (left := expiry - service.clock()) > 0:  # noqa: ASYNC110 - the clock may jump
            await asyncio.sleep(min(left, _LONGEST_SLEEP))


async def leave_to_workers(service: Service, run: str) -> None:
    """Says that a server or a worker should drive a run to its end."""
    await service.keep(EVERYONE, SERVED, run, {})


class Worker:
    """Drives runs in this process: runs that a caller is waiting for, and, once it is open, runs that are ready."""

    def __init__(
        self,
        service: Service,
        workspace: str,
        *,
        at_once: int = 20,
        every: float = 0.25,
        released: Released | None = None,
    ) -> None:
        """Picks up at most `at_once` ready runs of the folder `workspace`; checks for them every `every` seconds."""
        self._service = service
        self._released = released
        self._workspace = workspace
        self._at_once = at_once
        self._every = every
        self._tasks: dict[str, asyncio.Task[RunRow]] = {}
        """The runs that the worker picked up because they were ready."""
        self._requested: dict[str, asyncio.Task[RunRow]] = {}
        """The runs that a caller asked to be driven; `at_once` does not count them."""
        self._served: set[str] = set()
        """The runs to keep driving until they end. If the store is shared, it has the list."""
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        """How many times in a row each run could not be driven."""
        self._tenants: dict[str, str] = {}
        """The tenant of each run that waits for a slot."""
        self._slots: dict[str, int] = {}
        """The slots of tenants that are reserved for the runs in `_tasks`."""
        self._adopted: set[str] = set()
        """Runs from other workspaces that are only ended here."""
        self._forgetting: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._opened = False
        self._draining = False
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts looking for ready runs, and continues the last server's runs."""
        self._opened = True
        if not self._service.is_shared:
            await self._continue_served()
        await self._service.stream.listen(self._news.set)
        self._loop = asyncio.create_task(self._serve())

    async def _continue_served(self) -> None:
        kept = await self._service.kept(EVERYONE, SERVED)
        self._served = {run for run in kept if await self._is_unfinished(run)}
        self._adopted = {run for run in self._served if kept[run].get("adopted")}
        for run in kept.keys() - self._served:
            await self._forget(run)

    async def take(self, run: str, *, adopt: bool = False) -> None:
        """Drives a run as soon as there is capacity, and keeps driving it until it ends. Does nothing if the worker was
        never opened.

        A run of another workspace is left to the workers that share the store, or left alone unless it is adopted; an
        adopted run can only be brought to an end.
        """
        if not self._opened or not await self._is_unfinished(run):
            return
        adopt = adopt and await self._is_foreign(run) and not await self._service.is_driven(run)
        if adopt:
            self._adopted.add(run)
        elif await self._is_foreign(run):
            if await self._continues_elsewhere(run):
                await leave_to_workers(self._service, run)
            return
        if run not in self._served or adopt:
            if adopt or not self._service.is_shared:
                self._served.add(run)
            await self._service.keep(EVERYONE, SERVED, run, {"adopted": True} if adopt else {})
        self._not_before.pop(run, None)
        self._failures.pop(run, None)
        self._news.set()

    async def drive_until(self, run: str, deadline: float | None) -> bool:
        """Drives a run for a caller until it waits for someone or ends. Returns False if the deadline comes first.

        The run continues after the deadline. All callers waiting for a run share one task.
        """
        while await self._can_continue(run):
            if self._draining and not self.drives(run):
                return False  # another process continues it
            task = self._tasks.get(run) or self._requested.get(run)
            if task is None:
                task = self._requested[run] = asyncio.create_task(self._service.drive(run))
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

    @property
    def is_driving(self) -> bool:
        """Whether any run is driven here."""
        return bool(self._tasks or self._requested)

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

    async def waits_for(self, run: str) -> str:
        """What a run waits for that has work to do: another worker, or its turn. Empty if it continues soon."""
        from cuebook.service.dispatch.follow import its_turn, waits_for

        if self.drives(run):
            return ""
        if self._opened and await self._will_take(await self._service.row(run)):
            return await its_turn(self._service, run)
        return await waits_for(self._service, run)

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
        row = await self._service.row(run)
        here = row.dialect == PYTHON or self._works_in(row.workspace) or await self._continues_elsewhere(run)
        return "" if here or await self._service.is_driven(run) else row.workspace

    async def _continues_elsewhere(self, run: str) -> bool:
        """Whether a worker with the run's workspace, if there is one, continues it after a decision here."""
        return self._service.is_shared and (await self._service.row(run)).dialect != PYTHON

    async def is_moving(self, run: str) -> bool:
        """Whether a run is being driven or is about to be."""
        return await self.is_driven(run) or await self._service.is_due(run)

    async def until_idle(self) -> None:
        """Returns when none of this worker's runs has work left to do now."""
        while self._tasks or await self._due():  # noqa: ASYNC110 - others may change the store
            await asyncio.sleep(self._every / 5)

    async def failed(self) -> None:
        """Returns when the worker has stopped without being asked, which it never does: it waits for the store."""
        await asyncio.Event().wait()

    async def drain(self, seconds: float) -> None:
        """Takes no more runs, and hands over those that are driven here: an effect in progress has up to `seconds` to
        finish, and the next one is performed by another process.
        """
        self._draining = True
        if self._loop is not None:
            self._loop.cancel()
        await self._promise_all((*self._tasks, *self._requested))
        self._service.hand_over()
        tasks = [*self._tasks.values(), *self._requested.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await self.close()
        if self._forgetting:
            await asyncio.wait(self._forgetting, timeout=_MARKING)

    async def _promise_all(self, runs: Iterable[str]) -> None:
        promises = [asyncio.ensure_future(self._promise(run)) for run in runs]
        if promises:
            await asyncio.wait(promises, timeout=_MARKING)

    async def _promise(self, run: str) -> None:
        """Records that no user interrupted a run: the next process that could drive it does so without being asked."""
        if not self._service.is_shared:
            self._served.add(run)
        with suppress(StoreError):
            await self._service.keep(EVERYONE, SERVED, run, {"adopted": True} if run in self._adopted else {})

    async def close(self) -> None:
        """Stops driving. Every run can be continued where it stopped."""
        if self._service.is_shared:
            await self._promise_all(self._tasks)
        tasks = [*self._tasks.values(), *self._requested.values(), *([self._loop] if self._loop is not None else [])]
        self._loop = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- inside ---

    async def _serve(self) -> None:
        while True:
            self._news.clear()
            began = time.monotonic()
            try:
                await self._look()
            except StoreError as error:  # a lock or a full disk may be temporary
                log.warning("%s", error)
            except Exception:
                log.exception("Looking for runs failed.")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):  # `wait_for` can lose a cancellation that arrives with news
                    await self._news.wait()
            await asyncio.sleep(min(self._every, _BETWEEN_LOOKS) - (time.monotonic() - began))

    async def _look(self) -> None:
        service, now = self._service, time.monotonic()
        full: set[str] = set()
        await service.expire()
        ready = [*await service.ready(), *[run for run in self._adopted if await service.is_due(run)]]
        for gone in self._not_before.keys() - set(ready):
            del self._not_before[gone]
            self._failures.pop(gone, None)
        for gone in self._tenants.keys() - set(ready):
            del self._tenants[gone]
        for run in ready:
            if len(self._tasks) >= self._at_once:
                return
            if self.drives(run) or service.drives(run) or self._not_before.get(run, 0.0) > now:
                continue
            if self._tenants.get(run) in full:  # a long queue of one tenant is passed over without reading it
                continue
            try:
                if not await self._should_take(run, now) or not await self._has_slot(run, full):
                    continue
            except Exception as error:  # a problem with one run must not affect the others
                self._put_off(run, error)
                continue
            if self.drives(run):  # a caller asked for it in the meantime
                self._free_slot(run)
                continue
            task = self._tasks[run] = asyncio.create_task(service.take_up(run, reserved=True))
            task.add_done_callback(lambda done, run=run: self._release(run, done))  # type: ignore[misc]

    async def _due(self) -> list[str]:
        ready = await self._service.ready()
        mine = [run for run in ready if run in self._served and run not in self._failures]
        return [run for run in mine if not await self._is_foreign(run)]

    async def _should_take(self, run: str, now: float) -> bool:
        if run in self._served:
            return not await self._is_foreign(run)
        row = await self._service.row(run)
        if await self._is_foreign(run):
            return False
        if await self._service.is_left_to_workers(run):
            return True
        if self._service.offer is not None and self._service.offer.meets(row.needs):
            return True  # it waits for a node that is connected here
        if row.status == "pending" and await self._service.is_kept(EVERYONE, SERVED, run):
            self._served.add(run)  # left to a server before it began
            return True
        if _was_interrupted(row):
            self._not_before[run] = now + _NOT_OURS
            return False
        if run not in self._not_before:
            self._not_before[run] = now + _GRACE
            return False
        return True

    async def _has_slot(self, run: str, full: set[str]) -> bool:
        """Whether the limit of the run's tenant leaves room for it; if so, a slot is reserved. `full` collects the tenants
        that are at their limits, so that a look asks once for each.
        """
        service = self._service
        if not service.limits_tenants:
            return True
        tenant = self._tenants.get(run)
        if tenant is None:
            tenant = self._tenants[run] = (await service.row(run)).tenant
        if tenant in full:
            return False
        slot = await service.reserve(tenant)
        if slot is None:
            full.add(tenant)
            return False
        self._slots[run] = slot
        return True

    async def _will_take(self, row: RunRow) -> bool:
        """Whether this worker picks up a run that no process is driving, without being asked."""
        if await self._is_foreign(row.id):
            return False
        if row.id in self._served or not _was_interrupted(row):
            return True
        return await self._service.is_left_to_workers(row.id)

    async def _is_foreign(self, run: str) -> bool:
        """Whether a run belongs to another workspace and was not adopted, or to a Python program."""
        if run in self._adopted:
            return False
        row = await self._service.row(run)
        return row.dialect == PYTHON or not self._works_in(row.workspace)

    def _works_in(self, workspace: str) -> bool:
        offer = self._service.offer
        return workspace in ("", self._workspace) or (offer is not None and offer.works_in(workspace))

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
        if row.needs and service.offer is not None and service.offer.lacks(row.needs):
            return False  # another process continues it
        return not await service.waits(run) or await service.is_due(run)

    def _release(self, run: str, task: asyncio.Task[RunRow]) -> None:
        if self._released is not None:
            self._released(run, task)
        self._tasks.pop(run, None)
        self._tenants.pop(run, None)
        self._free_slot(run)
        self._news.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures.pop(run, None)
            if task.result().status in ENDED and (run in self._served or self._service.is_shared):
                self._served.discard(run)
                self._adopted.discard(run)
                forgetting = asyncio.ensure_future(self._forget(run))
                self._forgetting.add(forgetting)
                forgetting.add_done_callback(self._forgetting.discard)
            return
        self._put_off(run, error)

    def _free_slot(self, run: str) -> None:
        slot = self._slots.pop(run, None)
        if slot is not None:
            self._service.give_back(slot).add_done_callback(lambda _: self._news.set())

    def _release_requested(self, run: str, task: asyncio.Task[RunRow]) -> None:
        self._requested.pop(run, None)
        self._news.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Elsewhere):  # the caller receives this error
            self._log_postponed(run, error)

    def _put_off(self, run: str, error: BaseException) -> None:
        failures = self._failures[run] = self._failures.get(run, 0) + 1
        pause = min(_AFTER_FAILURE * 2 ** (failures - 1), _AFTER_MANY)
        self._not_before[run] = time.monotonic() + pause
        if not isinstance(error, Busy):
            self._log_postponed(run, error)

    def _log_postponed(self, run: str, error: BaseException) -> None:
        if isinstance(error, CuebookError):
            log_event(log, "run.postponed", logging.WARNING, run=run, code=error.code)
        else:
            log.warning("run %s could not be driven", run, exc_info=error)

    async def _forget(self, run: str) -> None:
        with suppress(StoreError, NotFound):
            await self._service.forget(EVERYONE, SERVED, run)


def _was_interrupted(row: RunRow) -> bool:
    return row.status in UNDER_WAY and not row.driver

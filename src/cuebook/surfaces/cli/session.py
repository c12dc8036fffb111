"""One call of the command line: opens the service, drives a run in the foreground, and exits cleanly on a signal."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.engine.waits import NEEDS
from cuebook.kernel.errors import BadInput, CuebookError, NotFound, Refused, StoreError, WaitExpired
from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.service.service import PYTHON, Principal, Service
from cuebook.service.stream import Follower
from cuebook.surfaces import display
from cuebook.surfaces.cli import next_steps
from cuebook.surfaces.cli.options import Given, configuration
from cuebook.surfaces.cli.terminal.ask import Asker, asker_for
from cuebook.surfaces.cli.terminal.output import complain, write_if_open
from cuebook.surfaces.cli.terminal.views import Events, Published, Remembering, Seen, View, view_for
from cuebook.wiring.stores import empty_store
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.service.insight.metrics import Metrics

NO_RUNS = "There are no runs yet."
HOW_TO_START = "`cuebook run FILE` starts one."
_BETWEEN_TICKS = 0.5
_DELIVERY = 5.0
"""Seconds for messages at the end of a command."""
_BEFORE_SEARCH = 2.0
"""Seconds before the search for a worker that can drive the run, and between two searches."""


class Interrupted(Exception):
    """The process was asked to stop while it was driving this run."""

    def __init__(self, run: str, *, elsewhere: bool = False) -> None:
        super().__init__(run)
        self.run = run
        self.elsewhere = elsewhere
        """Whether a worker continues to drive it."""

    @property
    def onward(self) -> str:
        if self.elsewhere:
            resume, cancel = (display.command_line(f"{verb} {self.run}") for verb in ("resume", "cancel"))
            return f"The run continues on a worker; `{resume}` follows it, `{cancel}` stops it."
        return f"`{display.command_line(f'resume {self.run}')}` continues where it stopped."


def no_runs(wiring: Wiring) -> str:
    """The message for an empty list of runs. It names a store given by `--store` that does not exist: perhaps a typo."""
    chosen = wiring.config.origin("store").place.startswith("--")
    return f"There are no runs yet: there is no store {wiring.config.get('store')}." if chosen else NO_RUNS


def wiring_of(given: Given) -> Wiring:
    return Wiring(configuration(given))


@asynccontextmanager
async def opened(
    wiring: Wiring, *, create: bool = False, empty: bool = False, connect: bool | None = None
) -> AsyncIterator[Service]:
    """Opens the service and closes it at the end. A missing store is created only with `create`.

    With `empty`, a missing store counts as an empty one. With `connect`, by default with `create`, an unreachable
    dispatcher is an error before anything is created; otherwise it is connected on demand.
    """
    missing = not wiring.has_store()
    if missing and not create and not empty:
        raise NotFound(no_runs(wiring), fix=HOW_TO_START)
    if create if connect is None else connect:
        await wiring.connect()
    try:
        service = wiring.service(empty_store() if missing and empty else None)
    except StoreError as error:
        # The file given as the store is unusable; this is not a failed run.
        raise BadInput(error.message, fix=error.fix) from None
    try:
        yield service
    finally:
        await service.close()


def announcer(wiring: Wiring) -> Callable[[str], None]:
    """Writes what a server or worker says to stderr: in a line of its own, or as JSON if the logs are JSON."""
    if wiring.config.get("log.format") == "text":
        return lambda words: complain(f"cuebook: {words}")
    import logging

    return logging.getLogger("cuebook").info


@asynccontextmanager
async def metrics_served(wiring: Wiring, metrics: Metrics | None) -> AsyncIterator[None]:
    """Answers Prometheus at an address of its own, if there is one."""
    address = wiring.config.get("metrics.address")
    if address is None or metrics is None:
        yield
        return
    from cuebook.service.insight.metrics import CONTENT_TYPE
    from cuebook.surfaces.health import address_of, serve_metrics

    async with serve_metrics(*address_of(address, "--metrics"), metrics.text, CONTENT_TYPE):
        yield


def perform(work: Coroutine[Any, Any, int]) -> int:
    """Runs the coroutine of a command. If it is interrupted, a message says how to resume the run."""
    # Imported modules are never freed, and reference counting frees what a run allocates, so collect less often.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    received: list[int] = []
    start = "\n" if sys.stderr.isatty() else ""
    try:
        return asyncio.run(_with_signals(work, received))
    except Interrupted as interrupted:
        complain(f"{start}cuebook: interrupted. {interrupted.onward}")
    except asyncio.CancelledError:
        if not received:
            raise
        complain(f"{start}cuebook: interrupted.")
    return 128 + (received[0] if received else signal.SIGINT)


async def _with_signals(work: Coroutine[Any, Any, int], received: list[int]) -> int:
    """Runs the coroutine. SIGTERM and SIGHUP cancel it as Ctrl-C does, so that it can clean up."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel(number: int) -> None:
        received.append(number)
        task.cancel()

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # under `nohup` SIGHUP stays ignored
            with suppress(
                ValueError, RuntimeError, NotImplementedError
            ):  # not available in every thread and on every system
                loop.add_signal_handler(number, cancel, number)
    return await work


Act = Callable[[Service], Awaitable[int]]


def with_service(
    given: Given, act: Act, *, looking: bool = False, starts: bool = False, wiring: Wiring | None = None
) -> int:
    """Runs a command that drives no run. With `looking`, for commands that only read or remove, no store is created. With
    `starts`, it starts a run.
    """

    async def work() -> int:
        # Without a store there are no users, so acting as a user fails, and no store is created for that.
        empty = looking or bool(given.get("as_user"))
        async with opened(wiring or wiring_of(given), create=not empty, empty=empty, connect=starts) as service:
            await service.settle()
            return await act(service)

    return perform(work())


def look(given: Given, act: Act) -> int:
    """Runs a command that shows existing runs; a missing store is an error."""

    async def work() -> int:
        async with opened(wiring_of(given)) as service:
            await service.settle()
            return await act(service)

    return perform(work())


def in_foreground(
    given: Given,
    act: Callable[[Service, Wiring], Awaitable[RunRow]],
    *,
    create: bool = False,
    wiring: Wiring | None = None,
) -> int:
    """Acts on a run, then drives it and shows its progress."""
    wires = wiring or wiring_of(given)

    async def work() -> int:
        async with opened(wires, create=create) as service, wires.traced(service):
            await service.settle()
            await service.expire()
            row = await act(service, wires)
            view, asker = _view_and_asker(given, row, service, await acting(service, given))
            code = await shown(service, row, view, asker)
            if service.notifies:
                await deliver(wires, service)
            return code

    return perform(work())


async def deliver(wiring: Wiring, service: Service) -> None:
    """Sends the messages about runs: there may be no server that does. What is not accepted stays for later."""
    try:
        status = await wiring.notifier(service).send_now(_DELIVERY)
    except CuebookError as error:
        complain(f"cuebook: messages were not delivered: {error}")
        return
    left = sum(one.state == "pending" for one in status.messages)
    if left:
        words = display.counted(left, "message")
        complain(f"cuebook: {words} not delivered yet. `{display.command_line('notify status')}` shows why.")


def _view_and_asker(given: Given, row: RunRow, service: Service, who: Principal) -> tuple[View, Asker | None]:
    """The view that shows the run, and the asker for the user at the terminal."""
    dialect = registry.find(row.dialect)
    if dialect is not None and dialect.talks and not given.get("as_events"):
        from cuebook.surfaces.cli.terminal import chat

        return chat.view_and_asker(given, service, who, dialect)
    asker = asker_for(given, service, who, Asker)
    return view_for(given, asking=asker is not None), asker


async def shown(service: Service, row: RunRow, view: View, asker: Asker | None = None) -> int:
    """Drives a run until it waits or ends, and returns the exit code. Questions are asked here if there is an asker."""
    alive = await service.is_driven(row.id)
    row = await service.get(row.id)
    if alive and (driver := await service.fate_of_driver(row.id)).stopped:
        complain(
            f"cuebook: process {driver.pid}, which drives this run, is stopped. `kill -CONT {driver.pid}` continues it."
        )
    try:
        if not alive and row.status not in ENDED:
            service.check_program(row)
    except Refused as refused:
        complain(f"cuebook: {refused}")
        return next_steps.exit_code(row) if await service.waits(row.id) else 0
    playbook = await playbook_of(service, row)
    title, plan = (row.name, ()) if playbook is None else (playbook.title, playbook.steps)
    before: list[Entry] = []
    if isinstance(view, Events | Remembering):
        before = [entry async for entry in service.entries(row.id)]
    if isinstance(view, Remembering):
        view.remember(playbook, before)
    if isinstance(view, Events):
        begun = row.status != "pending" or bool(row.parent)
        view.published = Published(playbook, row.id, before if begun else ())
        for entry in () if begun else before:  # the first records of a new run have not been published yet
            write_if_open(view.see, entry)
    write_if_open(view.begin, title, row, await service.steps(row.id), plan)
    watcher = Watcher(service, row.id, view, before[-1].seq if isinstance(view, Remembering) and before else None)
    try:
        with asker.silent() if asker is not None else nullcontext():
            row = await watcher.driven()
            while asker is not None and row.status in WAITING:
                write_if_open(view.rest)
                if not await asker.ask_for(await service.waits(row.id)):
                    break
                row = await watcher.driven()
    except asyncio.CancelledError:
        raise Interrupted(row.id, elsewhere=service.is_dispatched(row)) from None
    finally:
        watcher.stop()
        write_if_open(view.rest)
        if asker is not None:
            asker.close()
    write_if_open(view.end, await service.view(row.id))
    return next_steps.exit_code(row)


class Watcher:
    """Drives a run, or follows the process that drives it, and shows each event once."""

    def __init__(self, service: Service, run: str, view: View, last: int | None = None) -> None:
        """`last` is the last record that the view has shown."""
        self._service = service
        self._run = run
        self._view = view
        self._follower = Follower(service.stream, run, self._see, last)
        self._follower.listen()
        self._ticking = asyncio.create_task(self._tick())

    def stop(self) -> None:
        self._follower.stop()
        self._ticking.cancel()

    async def driven(self) -> RunRow:
        """Drives or follows the run until it waits or has ended, and returns it."""
        service, run = self._service, self._run
        row = await service.row(run)
        await self._follower.catch_up()  # another process may have continued it
        if row.status in ENDED and row.dialect == PYTHON:
            return row  # the process that has the run's program was faster
        while True:
            if service.is_dispatched(row):
                return await self._dispatched()
            if not await service.is_driven(run):
                row = await service.drive(run, self._waits)
                if row.reason != NEEDS or row.status not in WAITING or not await service.nodes.serve(row):
                    return row
                from cuebook.service.dispatch.follow import follow_server

                row = await self._follower.follow(follow_server(service, run))
            else:
                row = await self._follower.follow(service.follow(run))
            if not await service.is_due(run):
                return row

    def _waits(self, reason: str) -> None:
        write_if_open(self._view.rest)
        complain(f"cuebook: waits: {reason}.")

    async def _dispatched(self) -> RunRow:
        """Follows the worker that drives the run. While there is none, says what the run is waiting for."""
        searching = asyncio.create_task(self._search())
        try:
            return await self._follower.follow(self._service.drive(self._run))
        finally:
            searching.cancel()
            await asyncio.gather(searching, return_exceptions=True)

    async def _search(self) -> None:
        from cuebook.service.dispatch.follow import missing_worker

        said: tuple[str, ...] = ()
        at_limit = ""
        while True:
            await asyncio.sleep(_BEFORE_SEARCH)
            missing = await missing_worker(self._service, self._run)
            if missing and missing != said:
                write_if_open(self._view.rest)
                complain(
                    f"cuebook: run {self._run} waits for a worker that offers {', '.join(missing)};"
                    " `cuebook worker` starts one."
                )
            said = missing
            if not missing and not at_limit:
                at_limit = await self._service.limit_reached(self._run)
                if at_limit:
                    self._waits(at_limit)

    def _see(self, event: Seen) -> None:
        if event.run == self._run:  # a fork's parent has already shown its own records
            write_if_open(self._view.see, event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_BETWEEN_TICKS)
            write_if_open(self._view.tick)


async def playbook_of(service: Service, row: RunRow) -> Playbook | None:
    """The playbook of a run; None for a Python program, and for a playbook that this version cannot parse."""
    try:
        return await service.playbook_of(row)
    except CuebookError:
        return None


async def title_of(service: Service, row: RunRow) -> str:
    playbook = await playbook_of(service, row)
    return row.name if playbook is None else playbook.title


async def settings_of(service: Service, run: str) -> Settings:
    """The current settings of a run, including edits."""
    return (await service.settings(run))[1]


async def merged_settings(service: Service, run: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Flags as changes to a run's settings. A flag for one part of the budget keeps the other parts."""
    edited = {name: value for name, value in changes.items() if not name.startswith("budget.")}
    parts = {name.partition(".")[2]: value for name, value in changes.items() if name.startswith("budget.")}
    if parts:
        budget = (await settings_of(service, run)).budget
        kept = {part: getattr(budget, part) for part in ("money", "tokens", "seconds", "steps")}
        edited["budget"] = {part: value for part, value in (kept | parts).items() if value is not None}
    return edited


async def acting(service: Service, given: Given) -> Principal:
    """The user given by `--as`; without it, the person at the terminal, who may do everything."""
    name = given.get("as_user")
    return await service.principal(name) if name else Principal()


async def open_wait(service: Service, name: str, kind: str) -> WaitRow:
    """Like `wait_of`, for deciding the wait: if it has expired, the error says how to continue the run."""
    wait = await wait_of(service, name, kind)
    row = await service.get(wait.run)
    if wait.state == "expired" or (wait.state == "closed" and row.status == "expired"):
        raise _expired(row)
    return wait


def _expired(row: RunRow) -> WaitExpired:
    again = f"`cuebook {'retry' if row.status == 'expired' else 'resume'} {row.id}`"
    restart = f"`cuebook restart {row.id} {row.step or 'STEP'}`"
    return WaitExpired(
        f"The wait in run {row.id} has expired.",
        fix=f"{again} continues the run from there; {restart} repeats the step in a new run.",
    )


async def wait_of(service: Service, name: str, kind: str) -> WaitRow:
    """The wait with this id, or the only wait of this kind in the run with this id."""
    try:
        return await service.waiting(name)
    except NotFound:
        pass
    try:
        row = await service.get(name)
    except NotFound:
        raise NotFound(f"There is no wait or run '{name}'.", fix="`cuebook inbox` lists all open waits.") from None
    waits = await service.waits(row.id)
    fitting = [wait for wait in waits if wait.kind == kind] or waits
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = "; ".join(f"{wait.id} ({display.short(wait.prompt)})" for wait in fitting)
        raise NotFound(
            f"Run {row.id} has {len(fitting)} open waits: {listed}.",
            fix="Pass the id of one of them instead of the run.",
        )
    if row.status == "expired":
        raise _expired(row)
    if row.status in WAITING:
        raise Refused(
            f"The wait in run {row.id} was already decided or has expired.",
            fix=f"`cuebook resume {row.id}` continues the run.",
        )
    interrupted = await service.is_interrupted(row.id)
    status = display.status_of(row, interrupted=interrupted)
    next = next_steps.what_next(row, [], interrupted=interrupted)
    raise NotFound(f"Run {row.id} is {status} and is not waiting for anything.", fix=f"Try `{next}`.")

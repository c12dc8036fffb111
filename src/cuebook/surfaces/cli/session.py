"""One call of the command line: opens the service, drives a run in the foreground, and ends politely when it is told to."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

from cuebook.dialects import registry
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.registry import Tracing, Typed
from cuebook.kernel.errors import BadInput, CuebookError, NotFound, Refused, StoreError, WaitExpired
from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.expiry import settle
from cuebook.kernel.journal import Entry, without_void
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.service import PYTHON, Principal, Service
from cuebook.stores.memory import MemoryStore
from cuebook.surfaces import wording
from cuebook.surfaces.cli import onward, streams
from cuebook.surfaces.cli.answers import Source
from cuebook.surfaces.cli.asking import Asker, asker_for
from cuebook.surfaces.cli.live import Events, Published, Remembering, Seen, View, view_for
from cuebook.surfaces.cli.options import Given, configuration
from cuebook.surfaces.cli.plain import complain
from cuebook.surfaces.wiring import Wiring

NO_RUNS = "There are no runs yet."
HOW_TO_START = "`cuebook run FILE` starts one."
_BETWEEN_TICKS = 0.5


class Interrupted(Exception):
    """It was to end while this run was driven."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run


def no_runs(wiring: Wiring) -> str:
    """Where a store was chosen that is not there, a slip in its name is likely: it is named."""
    chosen = wiring.config.origin("store").place.startswith("--")
    return f"There are no runs yet: there is no store {wiring.config.get('store')}." if chosen else NO_RUNS


def wiring_of(given: Given) -> Wiring:
    return Wiring(configuration(given))


@asynccontextmanager
async def opened(wiring: Wiring, *, create: bool = False, empty: bool = False) -> AsyncIterator[Service]:
    """The service, closed again at the end. Unless something is started, a store that is not there stays so.

    With `empty`, one that is not there counts as one that holds nothing.
    """
    missing = not wiring.has_store()
    if missing and not create and not empty:
        raise NotFound(no_runs(wiring), fix=HOW_TO_START)
    try:
        service = wiring.service(MemoryStore() if missing and empty else None)
    except StoreError as error:
        # No run has failed: what was given as the store cannot be used.
        raise BadInput(error.message, fix=error.fix) from None
    try:
        yield service
    finally:
        await service.close()


def perform(work: Coroutine[Any, Any, int]) -> int:
    """Runs a command's coroutine; an interrupted run is left as it can be resumed, and says so."""
    # What was imported lives for ever, and what a run makes dies by its reference count: look for cycles less often.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    told: list[int] = []
    start = "\n" if sys.stderr.isatty() else ""
    try:
        return asyncio.run(_heeding(work, told))
    except Interrupted as interrupted:
        complain(f"{start}cuebook: interrupted. `cuebook resume {interrupted.run}` continues where it stopped.")
    except asyncio.CancelledError:
        if not told:
            raise
        complain(f"{start}cuebook: interrupted.")
    return 128 + (told[0] if told else signal.SIGINT)


async def _heeding(work: Coroutine[Any, Any, int], told: list[int]) -> int:
    """Does the work; whoever asks this process to end interrupts it as Ctrl-C does, so that nothing is left behind."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cut(number: int) -> None:
        told.append(number)
        task.cancel()

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has it ignored
            with suppress(ValueError, RuntimeError, NotImplementedError):  # not in every thread, nor on every system
                loop.add_signal_handler(number, cut, number)
    return await work


Act = Callable[[Service], Awaitable[int]]


def with_service(given: Given, act: Act, *, looking: bool = False, wiring: Wiring | None = None) -> int:
    """Does something that drives no run. What only looks, or can only take away, leaves no store behind."""

    async def work() -> int:
        # Where there is no store there are no users either: whoever is named cannot act, and nothing is created.
        empty = looking or bool(given.get("as_user"))
        async with opened(wiring or wiring_of(given), create=not empty, empty=empty) as service:
            await settle(service.engine)
            return await act(service)

    return perform(work())


def in_foreground(
    given: Given,
    act: Callable[[Service, Wiring], Awaitable[RunRow]],
    *,
    create: bool = False,
    wiring: Wiring | None = None,
) -> int:
    """Does something to a run, then drives it and shows what happens."""
    wires = wiring or wiring_of(given)

    async def work() -> int:
        async with opened(wires, create=create) as service:
            await settle(service.engine)
            await service.store.expire(service.engine.clock())
            row = await act(service, wires)
            view, asker = _in_front(given, row, service, await acting(service, given))
            return await shown(service, row, view, asker)

    return perform(work())


def _in_front(given: Given, row: RunRow, service: Service, who: Principal) -> tuple[View, Asker | None]:
    """What shows the run, and what asks whoever sits there."""
    if row.dialect == PROGRAM.name and not given.get("as_events"):
        from cuebook.surfaces.cli import chat

        return chat.in_front(given, service, who)
    asker = asker_for(given, service, who, Asker)
    return view_for(given, asking=asker is not None), asker


async def shown(service: Service, row: RunRow, view: View, asker: Asker | None = None) -> int:
    """Drives a run to where it waits or ends, and gives the exit code of that. What can be asked here is asked here."""
    alive = await service.store.alive(row.id)
    row = await service.get(row.id)
    try:
        if not alive and row.status not in ENDED:
            service.check_program(row)
    except Refused as refused:
        complain(f"cuebook: {refused}")
        return onward.exit_code(row) if await service.store.waits(run=row.id) else 0
    source = await source_of(service, row)
    title, plan = (row.name, ()) if source is None else (str(source.document.title), source.document.plan)
    before: list[Entry] = []
    if isinstance(view, Events | Remembering):
        before = [entry async for entry in service.engine.entries(row.id)]
    if isinstance(view, Remembering):
        view.remember(source, before)
    if isinstance(view, Events):
        begun = row.status != "pending" or bool(row.parent)
        view.published = Published(source, row.id, before if begun else ())
        for entry in () if begun else before:  # nobody has seen how it began
            streams.shown(view.see, entry)
    streams.shown(view.begin, title, row, await service.store.steps(row.id), plan)
    watcher = Watcher(service, row.id, view, before[-1].seq if isinstance(view, Remembering) and before else None)
    try:
        with asker.silent() if asker is not None else nullcontext():
            row = await watcher.driven()
            while asker is not None and row.status in WAITING:
                streams.shown(view.rest)
                if not await asker.ask_for(await service.store.waits(run=row.id)):
                    break
                row = await watcher.driven()
    except asyncio.CancelledError:
        raise Interrupted(row.id) from None
    finally:
        watcher.stop()
        streams.shown(view.rest)
        if asker is not None:
            asker.close()
    streams.shown(view.end, await service.view(row.id))
    return onward.exit_code(row)


class Watcher:
    """Drives a run, or follows whoever does, and shows each of its events once."""

    def __init__(self, service: Service, run: str, view: View, last: int | None = None) -> None:
        self._service = service
        self._run = run
        self._view = view
        self._last = last
        """The last record that was shown, as soon as that is known."""
        self._stop = service.observe(self._see)
        self._ticking = asyncio.create_task(self._tick())

    def stop(self) -> None:
        self._stop()
        self._ticking.cancel()

    async def driven(self) -> RunRow:
        """The run when it waits or has ended."""
        row = await self._service.store.run(self._run)
        if self._last is not None:  # somebody else may have gone on with it
            async for entry in self._service.engine.entries(self._run, self._last):
                self._see(entry)
        if row.status in ENDED and row.dialect == PYTHON:
            return row  # whoever has its program was faster
        while True:
            if not await self._service.store.alive(self._run):
                return await self._service.drive(self._run)
            row = await self._followed()
            if not await self._service.is_due(self._run):
                return row

    async def _followed(self) -> RunRow:
        """Another process drives the run: shows what it writes, until it lets go."""
        if self._last is None:
            self._last = 0
            async for record in self._service.store.records(self._run):
                self._last = record.seq

        async def watch() -> None:
            async for event in self._service.events(self._run, str(self._last)):
                self._see(event)

        watching = asyncio.create_task(watch())
        try:
            row = await self._service.follow(self._run)
            await asyncio.wait([watching], timeout=1.0)
            return row
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _see(self, event: Seen) -> None:
        if event.run != self._run:
            return
        if isinstance(event, Entry):
            if self._last is not None and event.seq <= self._last:
                return
            self._last = event.seq
        streams.shown(self._view.see, event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_BETWEEN_TICKS)
            streams.shown(self._view.tick)


async def source_of(service: Service, row: RunRow) -> Source | None:
    """What the run's playbook says; None for a program of one's own, and for what cannot be read any more."""
    try:
        dialect = registry.named(row.dialect)
        return Source(dialect, dialect.parse(await service.store.playbook(row.playbook), row.name))
    except CuebookError:
        return None


async def title_of(service: Service, row: RunRow) -> str:
    source = await source_of(service, row)
    return row.name if source is None else str(source.document.title)


async def settings_of(service: Service, run: str) -> Settings:
    """The settings a run has by now, edits included."""
    return (await service.settings(run))[1]


async def merged_settings(service: Service, run: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Flags as a run's settings take them: a part of the budget leaves its other parts as they are."""
    edited = {name: value for name, value in changes.items() if not name.startswith("budget.")}
    parts = {name.partition(".")[2]: value for name, value in changes.items() if name.startswith("budget.")}
    if parts:
        budget = (await settings_of(service, run)).budget
        kept = {part: getattr(budget, part) for part in ("money", "tokens", "seconds", "steps")}
        edited["budget"] = {part: value for part, value in (kept | parts).items() if value is not None}
    return edited


async def typed_values(service: Service, row: RunRow, values: dict[str, str]) -> dict[str, Any]:
    """Values that somebody wrote as texts, with the types that the playbook gives them. The service checks them."""
    dialect = registry.named(row.dialect)
    if not isinstance(dialect, Typed):
        return dict(values)
    document = dialect.parse(await service.store.playbook(row.playbook), row.name)
    entries = without_void([entry async for entry in service.engine.entries(row.id)])
    results = dialect.values(document, entries) if isinstance(dialect, Tracing) else {}
    return {name: dialect.changed(document, results, name, text) for name, text in values.items()}


async def acting(service: Service, given: Given) -> Principal:
    """Whoever sits at the terminal may do everything, or says as which user to act."""
    name = given.get("as_user")
    return await service.principal(name) if name else Principal()


async def open_wait(service: Service, name: str, kind: str) -> WaitRow:
    """As `wait_of`, for who is about to decide it: one whose time is over says how to wait once more."""
    wait = await wait_of(service, name, kind)
    row = await service.get(wait.run)
    if wait.state == "expired" or (wait.state == "closed" and row.status == "expired"):
        raise _over(row)
    return wait


def _over(row: RunRow) -> WaitExpired:
    again = f"`cuebook {'retry' if row.status == 'expired' else 'resume'} {row.id}`"
    restart = f"`cuebook restart {row.id} {row.step or 'STEP'}`"
    return WaitExpired(
        f"The time to decide what run {row.id} waited for is over.",
        fix=f"{again} goes on from there, {restart} begins the step again in a new run.",
    )


async def wait_of(service: Service, name: str, kind: str) -> WaitRow:
    """The wait with this id, or the only one of its kind that this run has."""
    try:
        return await service.waiting(name)
    except NotFound:
        pass
    try:
        row = await service.get(name)
    except NotFound:
        raise NotFound(f"There is no wait and no run '{name}'.", fix="`cuebook inbox` lists what waits.") from None
    waits = await service.store.waits(run=row.id)
    fitting = [wait for wait in waits if wait.kind == kind] or waits
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = "; ".join(f"{wait.id} ({wording.short(wait.prompt)})" for wait in fitting)
        raise NotFound(f"Run {row.id} waits for {len(fitting)} things: {listed}.", fix="Name one of them.")
    if row.status == "expired":
        raise _over(row)
    if row.status in WAITING:
        raise Refused(
            f"What run {row.id} waited for is decided, or its time is over.", fix=f"`cuebook resume {row.id}` goes on."
        )
    interrupted = await service.is_interrupted(row.id)
    what, next = wording.status_of(row, interrupted=interrupted), onward.what_next(row, [], interrupted=interrupted)
    raise NotFound(f"Run {row.id} is {what}: it waits for nothing.", fix=f"Try `{next}`.")

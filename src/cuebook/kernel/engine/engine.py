"""The engine: drives runs, keeps their leases alive, receives their signals and publishes their events.

One engine per process. It uses its store and performers only through their interfaces in `ports`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from cuebook.kernel import boot_clock
from cuebook.kernel.answers import FillIn
from cuebook.kernel.capabilities import Offer, comes_and_goes, moved, of_tenant
from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.effects import AskModel, Effect, Program
from cuebook.kernel.engine.children import ChildRequest, ChildStart
from cuebook.kernel.engine.driver import Driver, StartedBy
from cuebook.kernel.engine.journal_writer import JournalWriter
from cuebook.kernel.engine.slots import DriverSlots
from cuebook.kernel.errors import Busy, CuebookError, NotFound, Refused, RunExists, TooNew
from cuebook.kernel.events import (
    ENDED,
    ContentsPurged,
    Forked,
    Moved,
    PinnedPlaybook,
    RunFinished,
    RunStarted,
    TextChunk,
    TextEdit,
    TextReset,
)
from cuebook.kernel.fold.state import RunState
from cuebook.kernel.journal import (
    GENESIS,
    PURGED,
    ROOT,
    Codec,
    Entry,
    Key,
    Place,
    Record,
    Verdict,
    seal,
    verify,
    without_void,
)
from cuebook.kernel.outcomes import SUPERSEDED_RUN, Failed
from cuebook.kernel.ports import (
    Awaiting,
    Batch,
    Claim,
    Concealed,
    Estimate,
    Estimator,
    Filter,
    Gate,
    Needing,
    Outbox,
    Performer,
    Redactor,
    Removal,
    Store,
    at_once,
)
from cuebook.kernel.run import RunRow, Settings, StepRow, copy_row
from cuebook.kernel.spending import Allowance, Spending, utc_day

if TYPE_CHECKING:
    from cuebook.kernel.fold.dry_replay import Rehearsal

log = logging.getLogger("cuebook")

T = TypeVar("T")
E = TypeVar("E", bound=Effect)

Programs = Callable[[RunRow, str, dict[str, Any], dict[str, Any]], Callable[[Any], Program[Any]]]
"""Takes a run, its playbook's text, its inputs and options; returns the function that starts the program from a state."""

Observer = Callable[[Entry | TextChunk | TextReset], None]

Prepare = Callable[[RunRow], Awaitable[Failed | None]]
"""Prepares to drive a run; returns what is missing, or None."""


async def nothing_lacks(row: RunRow) -> None:
    """For an engine that needs no preparation."""


Children = Callable[[ChildRequest], Awaitable[ChildStart | Failed]]
"""Makes a child run of a pinned playbook, or says why it cannot be started. Stores nothing."""


Allowances = Callable[[RunRow], Awaitable[Allowance | None]]
"""Returns the limits of a run in addition to its own budget, or None. Called before each model call."""


async def nothing_limits(row: RunRow) -> None:
    """For an engine without budgets for people or playbooks."""


Conceals = Callable[[Claim], Awaitable[Concealed | None]]
"""Returns the sensitive inputs of a run that was claimed; None if it has none."""


async def nothing_concealed(claim: Claim) -> None:
    """For an engine whose runs have no sensitive inputs."""


Leave = Callable[[str], Awaitable[None]]
"""Ends everything that runs in the background for a run, by its id."""


async def nothing_left(run: str) -> None:
    """For an engine whose performers run nothing in the background."""


SENSITIVE = b"[sensitive "
"""How the mark of a sensitive input begins in a record."""


class Seen(msgspec.Struct, frozen=True):
    """A watch's verdict on a piece of text: what observers may see now, and whether to stop."""

    release: str
    stop: bool = False


class WatchFunction(Protocol):
    """Reads a reply as it streams. Pure: the same pieces produce the same verdicts."""

    def feed(self, text: str) -> Seen: ...

    def finish(self) -> str:
        """The text to show once the reply has ended."""


class Unmasked:
    """A redactor without secrets: a filter that lets everything through."""

    def value(self, value: T) -> T:
        return value

    def stream(self) -> Filter:
        return self

    def feed(self, text: str) -> str:
        return text

    def finish(self) -> str:
        return ""


class Engine:
    """Runs programs durably."""

    def __init__(
        self,
        store: Store,
        programs: Programs,
        performers: Mapping[type[Effect], Performer] | None = None,
        *,
        gate: Gate | None = None,
        redactor: Redactor | None = None,
        watches: Mapping[str, Callable[..., WatchFunction]] | None = None,
        clear: Callable[[], Awaitable[None]] = at_once,
        leave: Leave = nothing_left,
        prepare: Prepare = nothing_lacks,
        children: Children | None = None,
        clock: Callable[[], float] = time.time,
        heartbeat_every: float = 3.0,
        listen_every: float = 0.2,
        offer: Offer | None = None,
        machine: str = "",
        fill_in: FillIn | None = None,
        outboxes: Sequence[Outbox] = (),
        allowance: Allowances = nothing_limits,
        conceals: Conceals = nothing_concealed,
        ended: Callable[[RunRow], Awaitable[None]] = nothing_lacks,
        day: Callable[[float], str] = utc_day,
    ) -> None:
        """Without an offer, this process is assumed to be able to do everything. `machine` is its name in journals.
        `fill_in` checks answers to forms that are given in advance. The jobs in `outboxes` are put with the records.
        `allowance` returns what is asked before a model call, and what calls use is counted for the `day` on which they began.
        `conceals` returns the sensitive inputs of a run, and `ended` is called after the drive in which a run with some ended.
        """
        self.store = store
        self.codec = Codec(store.text)
        self.programs = programs
        self.performers: Mapping[type[Effect], Performer] = performers or {}
        self.gate = gate
        self.redactor: Redactor = redactor or Unmasked()
        self.prepare = prepare
        """Called before the first effect of each drive; after it, the redactor can mask the run's secrets."""
        self.children = children
        self._clear = clear
        """Kills orphaned processes before anyone is asked about their effects."""
        self._leave = leave
        """Ends what performers still run for a run that this process stops driving."""
        self.clock = clock
        self.offer = offer
        self.machine = machine
        self.fill_in = fill_in
        self._outboxes = tuple(outboxes)
        self.allowance = allowance
        self._day = day
        self._conceals = conceals
        self._ended = ended
        self._concealed: dict[str, Concealed] = {}
        """The sensitive inputs of the runs that are being driven."""
        self._awaiting: dict[type[Effect], Awaiting | None] = {}
        self._hands_over = offer is not None and store.shared
        self.driver = f"d{secrets.token_hex(8)}"
        self._watches = {} if watches is None else watches
        self._observers: list[Observer] = []
        self._blamed: list[Observer] = []
        self._driving: dict[str, Driver | None] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._heartbeat_every = heartbeat_every
        self._listen_every = listen_every
        self._beat_at = -1e9
        self._beating: asyncio.Task[None] | None = None
        self.slots = DriverSlots(store, self.driver, self._beat)
        self.stopping = False
        """Whether runs are released before their next effect, because this process is about to stop."""
        self._confirmed = -1e9
        """When the last heartbeat that reached the store was sent."""
        self._held_since = -1e9
        """Since when heartbeats have reached the store without a gap in which the lease may have expired."""

    # --- beginning ---

    async def start(
        self,
        row: RunRow,
        text: str,
        inputs: Mapping[str, Any],
        settings: Settings,
        policy: str | None = None,
        uses: Mapping[str, str] | None = None,
        pinned: Mapping[str, PinnedPlaybook] | None = None,
    ) -> Record:
        """Creates a run; it is `pending` until something drives it. `uses` and `pinned` are the playbooks that it may start."""
        kept = None if policy is None else Text(policy)
        chosen = msgspec.to_builtins(settings)
        children = {"uses": dict(uses), "pinned": dict(pinned or {})} if uses else {}
        event = RunStarted(dict(inputs), chosen, row.playbook, row.dialect, row.interpreter, kept, **children)  # type: ignore[arg-type]
        return await self._create(row, text, event, 1, GENESIS, [])

    async def start_child(self, child: ChildStart) -> Claim | None:
        """Creates a child run that this driver has claimed. Returns None if it exists."""
        row = child.row
        row.epoch, row.driver, row.status = 1, self.driver, "running"
        try:
            first = await self.start(
                row, child.text, child.inputs, child.settings, child.policy, child.uses, child.pinned
            )
        except RunExists:
            return None
        return Claim(
            row=copy_row(row),
            text=child.text,
            records=[first],
            inherited=0,
            steps=[],
            waits=[],
            signals=[],
            head=(first.seq, first.chain),
        )

    async def fork(
        self,
        row: RunRow,
        step: StepRow,
        values: Mapping[str, Any],
        settings: Mapping[str, Any],
        edit: TextEdit | None = None,
        text: str = "",
        ending: Batch | None = None,
    ) -> None:
        """Creates a run that shares the parent's records before a step visit; `row.parent` is the parent's id. With an `edit`,
        it continues with a changed `text`, and `ending` ends its parent in the same transaction.
        """
        inherited: list[Record] = []
        async for record in self.store.records(row.parent):
            if record.seq >= step.seq:
                break
            inherited.append(record)
        if not inherited or inherited[-1].seq != step.seq - 1:
            raise NotFound(f"Run {row.parent} has no record {step.seq - 1} to fork from.")
        row.parent_seq = step.seq
        state = RunState(row)
        for entry in without_void([self.codec.entry(record) for record in inherited]):
            state.apply(entry)
        chain = inherited[-1].chain
        changed = msgspec.to_builtins(settings)
        event = Forked(row.parent, chain.hex(), step.path, step.label, step.visit, dict(values), changed, edit)
        steps = state.take_changes()[1]
        if edit is not None:
            steps = [one for one in steps if one.seq]
        text = text or await self.store.playbook(row.playbook)
        await self._create(row, text, event, step.seq, chain, steps, ending)

    async def supersede(
        self,
        row: RunRow,
        step: StepRow,
        settings: Mapping[str, Any],
        edit: TextEdit,
        text: str,
    ) -> None:
        """Continues a run with a changed text, in a fork. If the run has not ended, it ends in the same transaction, with its
        waits withdrawn. Raises `Busy` while it is being driven.
        """
        parent = await self.store.run(row.parent)
        if parent.status in ENDED:
            await self.fork(row, step, {}, settings, edit, text)
            return
        async with self._claimed(parent.id) as claim:
            words = f"Run {row.id} continues it with a changed text."
            ended = RunFinished("cancelled", error=Failed(SUPERSEDED_RUN, words), step=parent.step)
            await self.writer(claim).end_with(
                ended, lambda batch: self.fork(row, step, {}, settings, edit, text, batch)
            )

    async def end_child(self, run: str) -> None:
        """Ends a child run that waits, and its own children, because its parent continues with a changed text. Raises `Busy`
        while it is being driven.
        """
        for row in await self.store.runs(caller=run, limit=None):
            if row.status not in ENDED:
                await self.end_child(row.id)
        async with self._claimed(run) as claim:
            words = "The run that started it continues with a changed text."
            ended = RunFinished("cancelled", error=Failed(SUPERSEDED_RUN, words), step=claim.row.step)
            await self.writer(claim).release(ended, Place(), unless_news=False)

    async def _create(
        self,
        row: RunRow,
        text: str,
        event: RunStarted | Forked,
        seq: int,
        previous: bytes,
        steps: list[StepRow],
        ending: Batch | None = None,
    ) -> Record:
        texts: dict[str, str] = {}
        event = msgspec.structs.replace(self.redactor.value(event), **_identity(row))
        body = self.codec.encode(event, texts)
        stored = self.codec.take_stored()
        row.created = self.clock()
        record = seal(row.id, seq, row.created, row.epoch, Place(), type(event).__name__, body, previous)
        entry = self.codec.entry(record)
        state = RunState(row)
        state.begun = {step.label for step in steps if step.path == ROOT}
        state.apply(entry)
        steps = [*steps, *state.take_changes()[1]]
        batch = Batch(row.id, row.epoch, [record], row=row, steps=steps, texts=texts, stored=stored)
        if not row.caller:
            batch.spent = [Spending(row.tenant, self._day(row.created), row.owner, row.name, runs=1)]
        await self.store.create(row, text, batch, ending)
        self.publish(entry)
        return record

    # --- driving ---

    async def drive(self, run: str, *, prepared: bool = False) -> RunRow:
        """Claims the run and drives it until it waits or ends. Raises `Busy` if another driver has claimed it, and `TooNew`
        if only a newer release may interpret it.

        With `prepared`, preparation is skipped, for a run that only has to end.
        """
        return await self._drive(run, lambda claim: Driver(self, claim, prepared=prepared))

    async def drive_child(
        self, run: str, parent: Driver, key: Key, *, cancelled: bool, claimed: Claim | None = None
    ) -> RunRow:
        """Drives a child run inside the drive of its parent until it waits or ends."""
        started_by = StartedBy(parent, key, cancelled)
        try:
            return await self._drive(run, lambda claim: self._child(claim, parent, started_by), claimed)
        finally:
            parent.children.pop(run, None)

    def _child(self, claim: Claim, parent: Driver, started_by: StartedBy) -> Driver:
        made = parent.children[claim.row.id] = Driver(self, claim, started_by=started_by)
        return made

    async def _drive(self, run: str, made: Callable[[Claim], Driver], claimed: Claim | None = None) -> RunRow:
        if run in self._driving:
            raise Busy(f"Run {run} is already being driven by this process.")
        if self.stopping:
            raise Refused(
                f"This process is shutting down, so it does not continue run {run}.",
                fix="Another process continues it, or this one after its restart.",
            )
        self._driving[run] = None
        try:
            if self.offer is not None and claimed is None:
                _check_interpreter(self.offer, await self.store.run(run))
            if time.monotonic() - self._beat_at >= self._heartbeat_every:
                await self._beat()
            self._keep()
            claim = claimed or await self.store.claim(run, self.driver, self.clock())
            try:
                concealed = await self._conceals(claim) if _has_sensitive(claim) else None
                if concealed is not None:
                    self._concealed[run] = concealed
                driver = self._driving[run] = made(claim)
                row = await driver.drive()
                if concealed is not None and row.status in ENDED:
                    await self._ended(row)
                return row
            except BaseException:
                await self._give_up(claim)
                raise
        finally:
            del self._driving[run]
            self._concealed.pop(run, None)

    async def move(self, run: str, event: Moved) -> None:
        """Records that a run's folder is somewhere else now. Raises `Busy` while the run is being driven."""
        async with self._claimed(run) as claim:
            await self.writer(claim).commit(event, Place(), None)
            await self._give_up(claim)  # whatever made the run ready still does

    async def purge(self, removal: Removal) -> None:
        """Purges the contents of a run that has ended; its journal says who did that. Raises `Busy` while it is driven."""
        async with self._claimed(removal.run) as claim:
            event = ContentsPurged(removal.by, removal.reason)
            await self.writer(claim).end_with(event, lambda batch: self.store.purge(batch, removal))

    @asynccontextmanager
    async def _claimed(self, run: str) -> AsyncIterator[Claim]:
        """Claims a run in order to add to its journal without driving it. If the block fails, the claim is given up."""
        if run in self._driving:
            raise Busy(f"Run {run} is being driven by this process.", fix="Wait until it waits or ends.")
        self._driving[run] = None
        try:
            await self._beat()
            self._keep()
            claim = await self.store.claim(run, self.driver, self.clock())
            try:
                yield claim
            except BaseException:
                await self._give_up(claim)
                raise
        finally:
            del self._driving[run]

    def hand_over(self) -> None:
        """Lets effects in progress finish, and releases each run before its next one: another process continues it there
        at once, with nothing repeated and nothing in doubt. From now on, nothing is claimed.
        """
        self.stopping = True

    async def _give_up(self, claim: Claim) -> None:
        """Releases a run whose drive was aborted, so it can be continued immediately, here or elsewhere."""
        with suppress(CuebookError):
            await self.store.release(Batch(claim.row.id, claim.row.epoch, []), unless_news=False)

    async def clear(self) -> None:
        """Kills the orphaned processes of a lost driver. A failure to do so does not affect the run."""
        try:
            await self._clear()
        except Exception:
            log.exception("Could not look for processes that a killed Cuebook may have left running.")

    async def leave(self, run: str) -> None:
        """Ends the background jobs of a run before it is released. A failure to do so does not affect the run."""
        try:
            await self._leave(run)
        except Exception:
            log.exception("Could not end the background jobs of run %s.", run)

    async def hear(self, run: str) -> None:
        """Notifies a run driven here of news; a run driven elsewhere notices on its own."""
        driver = self._driving.get(run)
        if driver is not None:
            await driver.hear()

    def drives(self, run: str) -> bool:
        return run in self._driving

    def driving(self, run: str) -> Driver | None:
        """The driver of a run, if this process is driving it."""
        return self._driving.get(run)

    async def close(self) -> None:
        """Gives up all leases of this process. Other drivers continue its runs."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        await self.slots.close()
        if self._beating is not None:
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._beat_at > 0:
            await self.store.retire(self.driver)
            self._beat_at = -1e9

    async def _beat(self) -> None:
        if time.monotonic() - self._beat_at < self._heartbeat_every:
            return
        if self._beating is None:  # all who need the lease wait for the same heartbeat
            self._beating = asyncio.get_running_loop().create_task(self._send_beat())
            self._beating.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._beating)

    async def _send_beat(self) -> None:
        began = time.monotonic()
        try:
            await self._send_heartbeat()
            self._beat_at = began
        except BaseException:
            self._beat_at = -1e9
            raise
        finally:
            self._beating = None

    async def _send_heartbeat(self) -> float:
        """Returns when it was sent."""
        sent = boot_clock.seconds_since_boot()
        await self.store.heartbeat(self.driver, self.clock())
        if sent - self._confirmed > 2 * self._heartbeat_every:
            self._held_since = sent
        self._confirmed = max(self._confirmed, sent)
        return sent

    async def hold(self, run: str, epoch: int, since: float) -> None:
        """Returns if no other driver can have claimed the run in this epoch, or raises `Fenced`. `since` is a moment before
        something was written in this epoch.

        A record is durable as soon as it is written, but a process that was stopped or cut off may learn of it hours later, even
        after its heartbeats are back.
        """
        while self._held_since > since or boot_clock.seconds_since_boot() - self._confirmed > 2 * self._heartbeat_every:
            since = await self._send_heartbeat()
            await self.store.append(Batch(run, epoch, []))  # compares the epoch, after any claim that is in progress

    def _keep(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep_leases())

    async def _keep_leases(self) -> None:
        while self._driving:
            await asyncio.sleep(self._listen_every)
            try:
                await self._beat()
                for run in tuple(self._driving):
                    await self.store.expire(self.clock(), run)
                for run in await self.store.called(self.driver):
                    await self.hear(run)
            except CuebookError as error:  # the next append reports it
                log.warning("%s", error)

    # --- observing ---

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Calls `observer` with every event; returns a function that unsubscribes it."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    @property
    def observed(self) -> bool:
        return bool(self._observers)

    def publish(self, event: Entry | TextChunk | TextReset) -> None:
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception:  # an observer never harms a run
                if observer not in self._blamed:
                    self._blamed.append(observer)
                    log.exception("An observer failed; the run continues. Its further failures are not logged.")

    async def entries(self, run: str, after: int = 0) -> AsyncIterator[Entry]:
        async for record in self.store.records(run, after):
            if not record.body.startswith(PURGED):
                yield self.codec.entry(record)

    async def verify(self, run: str) -> Verdict:
        """Checks that the journal's chain is intact, is complete and belongs to this run, that the rows match the journal, and
        that the texts it refers to are unchanged.
        """
        from cuebook.kernel.fold.verify import accounted, belongs, compared, keeps_up, purges_in, unchanged, worse

        whole = await self.store.whole(run)
        row, records = whole.row, whole.records
        verdict = belongs(records, verify(records), _identity(row))
        verdict = keeps_up(records, verdict, row, whole.steps)
        if verdict.broken_at is None and await self._is_another(records[0], row):
            return worse(verdict, records[0].seq, "the playbook it started from was changed")
        if verdict.broken_at is None:
            emptied = {record.run for record in records if record.body.startswith(PURGED)}
            if not emptied:
                verdict = compared(whole, [self.codec.entry(record) for record in records], verdict)
            kinds = (ContentsPurged.__name__,)
            said = [record for name in emptied async for record in self.store.records(name, kinds=kinds)]
            verdict = accounted(records, verdict, purges_in(said))
        verdict = unchanged(records, verdict, self.store.text)
        return verdict if verdict.broken_at is not None else await self._with_files(records, verdict, row.tenant)

    async def _with_files(self, records: list[Record], verdict: Verdict, tenant: str) -> Verdict:
        """The verdict, marked as broken if the content of a file was changed."""
        if not any(b'"files":[{' in record.body for record in records):
            return verdict
        from cuebook.kernel.engine.files import changed
        from cuebook.kernel.fold.verify import worse

        entries = (self.codec.entry(record) for record in records if not record.body.startswith(PURGED))
        different, missing = await changed(self.store, tenant, entries)
        if different is not None:
            return worse(verdict, different.seq, f"the file {different.name} of step {different.step} was changed")
        return msgspec.structs.replace(verdict, missing=(*verdict.missing, *missing))

    async def _is_another(self, begun: Record, row: RunRow) -> bool:
        """Whether the playbook differs from the version that the run started with."""
        if begun.body.startswith(PURGED):
            return False
        event = self.codec.decode(begun.body)
        assert isinstance(event, RunStarted)
        async for record in self.store.records(row.id, kinds=(Forked.__name__,)):
            if record.body.startswith(PURGED):
                return False
            forked = self.codec.decode(record.body)
            if isinstance(forked, Forked) and forked.edit is not None:
                event = msgspec.structs.replace(event, playbook=forked.edit.playbook)
        return event.playbook != row.playbook or digest_of(await self.store.playbook(row.playbook)) != row.playbook

    async def replay(self, run: str) -> Rehearsal:
        """Runs the program again on its journal alone: nothing is performed or written."""
        from cuebook.kernel.fold.dry_replay import rehearse

        row = await self.store.run(run)
        text = await self.store.playbook(row.playbook)
        entries = [entry async for entry in self.entries(run)]
        return rehearse(self.programs, row, text, entries)

    # --- for drivers ---

    def writer(self, claim: Claim, charged: RunRow | None = None) -> JournalWriter:
        """Writes the journal of a run that was claimed. What a child uses is `charged` to the run that a person started."""
        return JournalWriter(
            self.store,
            self.codec,
            claim,
            self.clock,
            self,
            self.redactor_of(claim.row.id),
            self._outboxes,
            charged=charged,
            day=self._day,
        )

    def redactor_of(self, run: str) -> Redactor:
        """Masks what a run must not show: secrets, and its sensitive inputs while it is being driven here."""
        concealed = self._concealed.get(run)
        return self.redactor if concealed is None else concealed.redactor

    def revealed(self, run: str, effect: E) -> E:
        """An effect of a run with the values of its sensitive inputs."""
        concealed = self._concealed.get(run)
        return effect if concealed is None else concealed.reveal(effect)

    def watch(self, name: str, arguments: dict[str, Any]) -> WatchFunction:
        factory = self._watches.get(name)
        if factory is None:
            raise CuebookError(f"There is no watch named '{name}'.")
        return factory(**arguments)

    def placed(self, settings: Settings) -> Settings:
        """A run's settings with the folders of this machine, if its workspace has a label."""
        old = settings.workspace
        if not settings.workspace_label or self.offer is None or old in self.offer.workspaces:
            return settings
        here = self.offer.workspaces[0]
        folder = moved(settings.folder, old, here)
        return msgspec.structs.replace(settings, workspace=here, folder=folder)

    def lacking(self, effect: Effect, settings: Settings, tenant: str) -> tuple[str, ...]:
        """The capabilities for an effect that only another process can provide, or that come and go. If the store is not
        shared, there is no other process to provide the rest.
        """
        if self.offer is None or not (self._hands_over or self.awaiting(effect)):
            return ()
        performer: object = self.performers.get(type(effect))
        if not isinstance(performer, Needing):
            return ()
        needs = [of_tenant(name, tenant) for name in performer.needs(effect, settings)]
        return self.offer.lacks(needs if self._hands_over else [name for name in needs if comes_and_goes(name)])

    def awaiting(self, effect: Effect) -> Awaiting | None:
        """The performer of an effect that needs something which comes and goes."""
        kind = type(effect)
        if kind not in self._awaiting:
            performer: object = self.performers.get(kind)
            self._awaiting[kind] = performer if isinstance(performer, Awaiting) else None
        return self._awaiting[kind]

    def offers_changed(self) -> None:
        """Continues the branches that wait for something which this process has gained."""
        for driver in list(self._driving.values()):
            if driver is not None:
                driver.offered()

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate | None:
        """The maximum that a call may use; None if there is no budget or the maximum is unknown."""
        budget = settings.budget
        if budget.tokens is None and budget.money is None:
            return None
        return self.most(effect, settings)

    def most(self, effect: AskModel, settings: Settings) -> Estimate | None:
        """The maximum that a call may use; None if it is unknown."""
        performer: object = self.performers.get(AskModel)
        return performer.estimate(effect, settings) if isinstance(performer, Estimator) else None

    def acts(self, effect: AskModel, settings: Settings) -> bool:
        """Whether the model of a call acts on the world itself, as coding agents do."""
        performer: object = self.performers.get(AskModel)
        found: Callable[[AskModel, Settings], bool] | None = getattr(performer, "acts", None)  # as in `ActingModels`
        return found is not None and found(effect, settings)

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call is known to be free, even if its outcome is lost."""
        performer: object = self.performers.get(AskModel)
        priced: Callable[[AskModel, Settings], bool] | None = getattr(performer, "is_free", None)  # as in `Pricing`
        return priced is not None and priced(effect, settings)


def _check_interpreter(offer: Offer, row: RunRow) -> None:
    if not offer.knows(row):
        raise TooNew(
            f"Run {row.id} was started by a newer Cuebook: it needs version {row.interpreter} of '{row.dialect}', and this"
            f" one has {offer.interpreter(row.dialect) or 'none'}.",
            fix="Continue it with the newer version, or with a worker that has it.",
        )


def _identity(row: RunRow) -> dict[str, str]:
    """The identity of a run and its owner, which its first record and its row must agree on."""
    names = ("tenant", "owner", "name", "caller", "trigger")
    return {"run": row.id, **{name: getattr(row, name) for name in names}}


def _has_sensitive(claim: Claim) -> bool:
    """Whether a run was started or continued with a sensitive input."""
    starts = (RunStarted.__name__, Forked.__name__)
    return any(SENSITIVE in record.body for record in claim.records if record.kind in starts)

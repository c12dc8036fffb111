"""What the engine and the service ask of a store."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack

import msgspec

from cuebook.kernel.capabilities import Offer
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Record
from cuebook.kernel.ports.jobs import Job, Jobs
from cuebook.kernel.ports.run_filter import RunFilter
from cuebook.kernel.run import Lease, RunRow, Signal, StepRow, WaitMark, WaitRow
from cuebook.kernel.spending import Spending, SpendingTable

if TYPE_CHECKING:
    from cuebook.kernel.ports.admin_acts import ActRecord, AdminAct, KeptChange


class Batch(msgspec.Struct, gc=False):
    """The contents of one append, which is written completely or not at all."""

    run: str
    epoch: int
    records: list[Record]
    plain: bool = False
    """Whether it has only records, as most appends of a long run do."""
    row: RunRow | None = None
    steps: Sequence[StepRow] = ()
    texts: Mapping[str, str] | None = None
    stored: Sequence[str] = ()
    """Digests of texts that these records refer to and that are stored already."""
    opened: Sequence[WaitRow] = ()
    closed: Sequence[str] = ()
    taken: Sequence[int] = ()
    """Signals that these records answer."""
    checkpoints: Sequence[tuple[str, int]] = ()
    """Branch path and sequence number of each checkpoint among the records."""
    dropped: Sequence[tuple[int, str]] = ()
    """Rewinds, each a record and a branch path. Later steps and checkpoints on that branch are void."""
    files: Sequence[str] = ()
    """Digests of the files that these records name."""
    jobs: Sequence[Job] = ()
    """New jobs that follow from these records. Those that exist already stay as they are."""
    spent: Sequence[Spending] = ()
    """What these records add to what was used."""


class Claim(msgspec.Struct, kw_only=True):
    """A run claimed by one driver, with everything needed to continue it."""

    row: RunRow
    text: str
    """The source of the playbook that it started from."""
    records: list[Record]
    """The records that a replay needs: those since the last checkpoint of each branch, including inherited ones."""
    inherited: int
    """Records below this sequence number are the parent's."""
    steps: list[StepRow]
    """The steps that are open or pending."""
    waits: list[WaitRow]
    signals: list[Signal]
    head: tuple[int, bytes]
    """The last sequence number and its chain value."""


class Fate(msgspec.Struct, frozen=True):
    """The known state of a driver: it exited cleanly, its process died or is alive, or it cannot be inspected from
    here."""

    state: Literal["left", "ended", "lives", "silent"]
    machine: str = ""
    pid: int = 0
    stopped: bool = False
    """Whether its process is stopped, as by Ctrl-Z. It keeps its runs: what it has begun continues with it."""


class News(msgspec.Struct):
    """Decisions and signals that reached a run while it was being driven."""

    waits: list[WaitRow]
    signals: list[Signal]


class Whole(msgspec.Struct):
    """Everything that a store has about a run, read as one snapshot."""

    row: RunRow
    steps: list[StepRow]
    waits: list[WaitRow]
    """All waits, including closed ones."""
    records: list[Record]
    odd: str = ""
    """A description of a row that contradicts itself; empty if there is none."""


class RunCopy(msgspec.Struct, kw_only=True):
    """A run as another store can take it over: its own part of the journal and all its rows."""

    row: RunRow
    text: str
    """The playbook it started from."""
    records: list[Record]
    """Without inherited ones."""
    steps: list[StepRow]
    waits: list[WaitRow]
    signals: list[Signal]
    """Those that no driver has taken yet."""
    checkpoints: list[tuple[str, int]]
    texts: dict[str, str] = {}
    files: list[str] = []
    """Digests of the files that it refers to."""

    @property
    def has_news(self) -> bool:
        """Whether something arrived that no driver has seen."""
        if self.row.needs:
            return True
        return bool(self.signals) or any(wait.state in ("answered", "expired", "cancelled") for wait in self.waits)


class Notice(msgspec.Struct, frozen=True):
    """What a process that shares the store says it has done, or asks for. It may be lost, so it only makes others look
    sooner.
    """

    kind: Literal["records", "ready", "text", "resend", "slot"]
    """`resend` asks the driver of the run for the text under way, from its beginning."""
    sender: str
    """Empty if the store itself says that notices may have been missed."""
    run: str = ""
    """The run that it is about; empty if there are too many to name."""
    seq: int = 0
    """The last new record; of text, the record of the model call."""
    step: str = ""
    offset: int = 0
    text: str = ""
    again: bool = False
    """Whether the reply begins again."""
    slot: str = ""
    """The name of the limit that has a free slot; empty if it may be any."""


class KeptRecord(msgspec.Struct, frozen=True):
    """A decision for all runs of a tenant, as the store keeps it."""

    tenant: str
    kind: str
    name: str
    body: dict[str, Any]


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was deleted, or whose contents were purged: what remains known of it."""

    run: str
    tenant: str
    what: Literal["deleted", "purged"]
    name: str
    """The name of its playbook."""
    created: float
    status: str
    by: str
    at: float
    reason: str = ""
    forced: bool = False
    """Whether it was removed although something spoke against it, as `reason` says."""
    records: int = 0
    head: str = ""
    """The number of its own records and their last chain value."""


class Swept(msgspec.Struct):
    """What one short transaction has removed from the disk."""

    rows: int = 0
    texts: int = 0
    files: int = 0
    more: bool = False
    """Whether something is left to remove."""


class Space(msgspec.Struct, frozen=True):
    """The space used by one kind of data."""

    name: str
    """The name of the playbook; empty for data that several playbooks may share."""
    kind: Literal["records", "texts", "files", "playbooks", "free"]
    count: int
    size: int
    """Bytes, without the overhead of the database."""
    runs: int = 0


class JobCount(msgspec.Struct, frozen=True):
    """The jobs of one kind."""

    all: int
    due: int
    """How many should have been done by now."""
    late: float
    """For how many seconds the earliest of these has been due."""


class Tally(msgspec.Struct, frozen=True):
    """How much of what a store contains, for all tenants together."""

    runs: dict[str, int]
    """Runs by status."""
    queued: int
    """Runs that have work to do and no driver."""
    waits: dict[str, int]
    """Open waits by kind."""
    jobs: dict[str, JobCount]


class Store(Jobs, SpendingTable, Protocol):
    """Stores journals. Every write is durable when it returns; a refusal changes nothing."""

    @property
    def shared(self) -> bool:
        """Whether several machines may use it, so that a run can be handed over to a process that offers what it needs."""

    def now(self) -> float:
        """The time that all processes which share the store agree on."""

    async def listen(self, heard: Callable[[Notice], None]) -> None:
        """Calls `heard` with the notices of other processes until the store is closed, if it has any."""

    def share(self, event: TextChunk | TextReset) -> None:
        """Sends text under way to other processes, if the store can do that."""

    async def ask_for_text(self, run: str) -> None:
        """Asks the process that drives a run to share its text under way again, if the store can do that."""

    async def create(self, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> None:
        """Adds a run with its first records; a fork's `parent` and `parent_seq` are set in the row. `ending` is the last batch
        of another run, which is released in the same transaction.
        """

    async def claim(self, run: str, driver: str, now: float) -> Claim:
        """Raises the run's epoch for this driver and marks expired waits. Raises `Busy` while another driver is alive."""

    def append(self, batch: Batch) -> Future[None]:
        """Returns when the batch is durable. Raises `Fenced` on a stale epoch."""

    async def release(self, batch: Batch, *, unless_news: bool) -> bool:
        """Appends and gives up the claim. With `unless_news`, does neither and returns False if there is news.

        If nothing is appended, the claim had no effect: its cause becomes news for the next driver.
        """

    async def news(self, run: str) -> News:
        """The run's waits that are decided but not yet consumed, and its signals. For its driver only: reading marks the news as
        seen.
        """

    async def unclosed(self, run: str) -> list[WaitRow]:
        """The waits that `news` returns, for everyone else: reading them changes nothing."""

    async def complete_wait(
        self,
        wait: str,
        answer: dict[str, Any],
        by: str,
        now: float,
        keep: Sequence[KeptRecord] = (),
        *,
        claim: str | None = None,
    ) -> WaitRow:
        """Records the decision on a wait, once, and in the same transaction the records that follow from it. Raises
        `AlreadyAnswered`, `WaitExpired`, `WaitClosed` or `NotFound`. With `claim`, raises `Leased` unless the wait is leased
        under this claim by the same user.
        """

    async def vote(self, wait: str, answer: dict[str, Any], by: str, now: float) -> WaitRow:
        """Adds a vote to an approval that needs several, as `votes.counted` does, and completes it if that decides it. Raises
        `AlreadyVoted`, and what `complete_wait` raises.
        """

    async def lease_wait(self, wait: str, lease: Lease, now: float) -> WaitRow:
        """Leases an open wait, renews a lease with the same claim, or takes over one that has ended; refusals are added to
        earlier ones. Raises `Leased` if someone else has it, and what `complete_wait` raises.
        """

    async def signal(self, signal: Signal) -> None:
        """Puts a signal into the run's inbox. A cancel also closes the run's open waits, so they can no longer be answered."""

    async def expire(self, now: float, run: str | None = None) -> list[str]:
        """Marks expired waits of one run or of all runs; returns their runs."""

    async def ready(self, now: float, driver: str, run: str | None = None, offer: Offer | None = None) -> list[str]:
        """Runs with pending work that this driver may claim: new runs, runs with news, runs with an expired wait, runs of
        a driver that was killed, and runs that need another capability. Child runs are never among them: their parents
        drive them. With `run`, only that run is checked; with
        `offer`, only runs that fit it are returned.
        """

    async def undriven(self, now: float, run: str | None = None) -> list[str]:
        """Like `ready`, but for display only: a driver that was not seen before counts as alive until its lease expires, and
        runs that wait for a capability are left out.
        """

    async def next_expiry(self) -> float | None: ...

    async def heartbeat(self, driver: str, now: float) -> None:
        """Extends the lease of everything this driver has claimed."""

    async def retire(self, driver: str) -> None:
        """Ends the driver's lease immediately and frees its slots."""

    async def take_slot(self, name: str, most: int, driver: str, lasts: float | None = None) -> int | None:
        """Takes one of the slots with this name; returns its id, or None if `most` are taken. A slot counts until it is
        freed or its driver is gone; one that lasts counts for that many seconds, whatever becomes of its driver.
        """

    async def free_slot(self, slot: int) -> None:
        """Frees a slot. Does nothing if it is already free."""

    async def taken_slots(self, name: str) -> int:
        """How many slots with this name are taken."""

    async def alive(self, run: str) -> bool:
        """Whether a live driver has claimed the run."""

    async def fate(self, driver: str) -> Fate:
        """The state of a driver."""

    async def called(self, driver: str) -> list[str]:
        """Runs of this driver that have news."""

    async def run(self, run: str) -> RunRow: ...

    async def runs(self, *, limit: int | None = 100, **which: Unpack[RunFilter]) -> list[RunRow]:
        """The runs that fit, newest first."""

    async def tenants_with_runs(self) -> list[str]:
        """The tenants that have runs."""

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        """Runs whose id begins with a prefix, up to a limit."""

    async def steps(self, run: str) -> list[StepRow]: ...

    async def waits(
        self,
        *,
        run: str | None = None,
        tenant: str | None = None,
        visible: Collection[str] | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> list[WaitRow]:
        """Open waits, oldest first; with `kinds`, only waits of those kinds; with `visible`, only those of runs of these
        owners.
        """

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        """The ids of the open waits of these kinds, oldest first."""

    async def wait_marks(self, tenant: str, kinds: Sequence[str]) -> list[WaitMark]:
        """What says who sees each of these waits, in the same order: much less than the waits."""

    async def waits_called(self, tenant: str, beginning: str) -> list[WaitRow]:
        """Waits whose id begins with a prefix, open waits first, up to a limit."""

    async def wait(self, wait: str) -> WaitRow: ...

    def records(self, run: str, after: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        """The run's whole journal in order, the parent's part first; with `kinds`, only records of those kinds."""

    async def whole(self, run: str) -> Whole:
        """A run with all its rows and records, read as one snapshot."""

    async def take_out(self, run: str) -> RunCopy:
        """A run for another store, without the long texts, read at one moment. Changes nothing."""

    async def bring_in(self, copy: RunCopy) -> None:
        """Adds a run of another store, held by no driver. Its parent must be here. Raises `RunExists`."""

    async def remove(self, removals: Sequence[Removal], *, force: bool = False) -> None:
        """Deletes runs. They are gone at once; `sweep` frees their space. Raises `Busy` if one is being driven, and `Refused`
        if one has not ended, unless forced, or if another run was forked from one of them.
        """

    async def purge(self, batch: Batch, removal: Removal) -> None:
        """Releases a run with its last record, after which `sweep` replaces the contents of all its earlier records by their
        digests.
        """

    async def sweep(self, now: float) -> Swept:
        """Frees some of the space of removed runs, in one short transaction."""

    async def removals(self, tenant: str, run: str = "", limit: int | None = 100) -> list[Removal]:
        """The runs that were removed, newest first; with `run`, only that run."""

    async def bring_in_removals(self, removals: Sequence[Removal]) -> None:
        """Adds what another store knows of runs that were removed there. Nothing is removed here."""

    async def sizes(self, tenant: str, runs: Collection[str]) -> dict[str, int]:
        """The bytes of the records and files of each of these runs; of a fork, those of its own part."""

    async def usage(self, tenant: str) -> list[Space]:
        """The space used, by playbook and kind."""

    async def tally(self, now: float) -> Tally:
        """Counts what the store contains. It may take a while, but holds up nothing else."""

    async def playbook(self, digest: str) -> str: ...

    def text(self, digest: str) -> str:
        """A long text, by its digest."""

    async def put_piece(self, tenant: str, digest: str, number: int, data: bytes) -> None:
        """Stores one piece of a file, counted from 0. Storing it again changes nothing."""

    async def put_file(self, tenant: str, digest: str, size: int) -> None:
        """Marks a file as complete, after all its pieces."""

    async def has_file(self, tenant: str, digest: str) -> bool:
        """Whether the whole file is there."""

    async def piece(self, tenant: str, digest: str, number: int) -> bytes | None:
        """One piece of a file; None after the last."""

    async def files(self, run: str) -> list[str]:
        """The digests of the files that a run refers to, including inherited ones. No other file is needed by it."""

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        """Stores a decision for all runs of a tenant under a name, replacing any earlier decision."""

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        """Whether there is a stored decision with this name."""

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        """The stored decisions of a kind, by name."""

    async def tenants(self, kind: str) -> list[str]:
        """The tenants that have something of this kind."""

    async def forget(self, tenant: str, kind: str, name: str, *, overwrite: bool = False) -> bool:
        """Removes a stored decision; returns whether it existed. With `overwrite`, it cannot be read from the store's file any
        more.
        """

    async def record_act(self, act: AdminAct, changes: Sequence[KeptChange] = ()) -> ActRecord:
        """Appends an act and makes the changes, in one transaction. Raises `Conflict`, and records nothing, if a decision is
        not what a change expects.
        """

    async def acts(
        self, tenant: str, *, after: int = 0, since: float = 0.0, newest: bool = False, limit: int | None = 1000
    ) -> list[ActRecord]:
        """Acts with a number above `after`, at `since` or later, oldest first; with `newest`, the last ones."""

    async def act_head(self, tenant: str) -> tuple[int, str]:
        """The number of the last act and its chain value, as noted beside the acts; 0 and `GENESIS` if there is none."""

    async def act_tenants(self) -> list[str]:
        """The tenants that have acts."""

    async def bring_in_acts(self, tenant: str, records: Sequence[ActRecord]) -> None:
        """Appends records of another store as they are; the first must follow the last one here. Raises `Conflict`."""

    async def close(self) -> None: ...

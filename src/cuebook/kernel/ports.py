"""The interfaces that the engine needs: performers, gate, sandbox and store. Kept minimal.

The kernel defines them and imports none of their implementations.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from cuebook.kernel.capabilities import Offer
from cuebook.kernel.effects import AskModel, Effect, SecretNeed
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Record
from cuebook.kernel.outcomes import AnyOutcome, Failed
from cuebook.kernel.run import Lease, RunOverride, RunRow, Settings, Signal, StepRow, WaitRow

# --- limits and the sandbox -----------------------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True):
    """The limits for performing one effect. The gate sets them, the performer enforces them."""

    seconds: float = 60.0
    output: int = 32_768
    """Bytes to keep from each of a command's streams, or from a response body."""
    cpu_seconds: int = 60
    memory: int = 1 << 30
    """Bytes."""
    processes: int = 128
    open_files: int = 1024
    grace: float = 5.0
    """Seconds between asking a process to exit and killing it."""


async def at_once() -> None:
    """Returns immediately: there is nothing to wait for."""


EVERYWHERE = ("*",)
"""The network of a process that is not limited to certain hosts."""


class Confinement(msgspec.Struct, frozen=True):
    """A process to start, and everything that it may access. It cannot access anything else."""

    argv: tuple[str, ...]
    cwd: str
    """An absolute path that exists."""
    env: dict[str, str] = {}
    """The complete environment: nothing is inherited."""
    writable: tuple[str, ...] = ()
    """Absolute paths that it may change; the system's programs and libraries are always readable."""
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Absolute paths of files within the paths above that it may neither read nor change."""
    fixed: tuple[str, ...] = ()
    """Absolute paths that it may read but not change, even within writable paths."""
    reads_only: bool = False
    """Whether it must not change the mode, owner, times or attributes of files either. Writable paths are scratch space."""
    network: tuple[str, ...] = ()
    """The hosts that it may reach, each as `HOST` (port 443) or `HOST:PORT`, with TLS or as plain HTTP, through a proxy
    that checks every connection. It has no other route, and looks up no names. `EVERYWHERE` is the machine's whole network,
    unchecked.
    """
    python: bool = False
    """Whether it is only Python. If so, it may read only the system files that the standard library needs."""
    limits: Limits = Limits()
    hold: Callable[[], Awaitable[None]] = at_once
    """The program starts after this has finished, and never if it fails or this process exits. Preparations may be made
    in the meantime.
    """


class Confined(Protocol):
    """A process that was started. Its streams are file descriptors that the caller reads, writes and closes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int
    overrun: Literal["memory", "processes"] | None
    """The limit it was killed for exceeding, if any."""
    refused: Collection[str]
    """The hosts, with their ports, that it asked its proxy for but that were not listed."""

    def terminate(self) -> None:
        """Asks it and its whole process group to exit."""

    def kill(self) -> None:
        """Kills it and everything it started, in any process group. May be called more than once."""

    async def wait(self) -> int:
        """Returns its exit code once it has exited completely, or the negative signal number if a signal killed it. An
        interrupted wait may be repeated.
        """


SandboxName = Literal["landlock", "bubblewrap", "none"]


class Sandbox(Protocol):
    """Starts confined processes. Raises `CuebookError` if it cannot."""

    @property
    def name(self) -> SandboxName: ...

    @property
    def problem(self) -> str:
        """Why it cannot start processes; empty if it can."""

    async def spawn(self, confinement: Confinement) -> Confined: ...


# --- performers ----------------------------------------------------------------------------------------------

T = TypeVar("T")

Domain = Literal["tool", "command", "egress", "secret", "file", "model"]


class Action(msgspec.Struct, frozen=True):
    """One thing that an effect would do, in policy terms."""

    domain: Domain
    target: str
    """tool: its name. command: the argv, quoted as for a shell. egress: `METHOD URL` without query and fragment;
    `CONNECT URL` is everything on that host and port, for a command that can reach it.
    secret: the handle. file: `read:PATH` or `write:PATH`, relative to the workspace. model: `provider/model`."""
    reads_only: bool = False
    """Whether it changes nothing, as far as that can be enforced. For a secret: whether the configuration provides it
    without the playbook asking for it."""


class Slots(Protocol):
    """Limits that hold across all processes on one store."""

    def hold(
        self, name: str, most: int, waits: Callable[[], None], *, lasts: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Waits until fewer than `most` slots with this name are taken, and holds one. One that `lasts` counts for that many
        seconds, however long it is held. `waits` is called, once, if there is none at first.
        """


class Unlimited:
    """For performers that share no limits with others."""

    def hold(
        self, name: str, most: int, waits: Callable[[], None], *, lasts: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()


def _all_permitted(action: Action) -> Failed | None:
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _no_secrets() -> dict[str, str]:
    return {}


def _unnoted(name: str, data: dict[str, Any]) -> None:
    pass


class Call(msgspec.Struct, frozen=True):
    """The context in which a performer performs an effect."""

    run: str
    key: str
    """Identifies this effect in this run; the same for all attempts. Idempotency keys are derived from it."""
    attempt: int
    settings: Settings
    emit: Callable[[str], bool]
    """Shows text as it arrives; returns False if the reply should stop here."""
    reset: Callable[[], None]
    """Withdraws the emitted text, because the attempt starts over."""
    warn: Callable[[str, str], None]
    """Notes a warning (code, message) on the step."""
    note: Callable[[str, dict[str, Any]], None] = _unnoted
    """Notes something on the step while it runs, such as another attempt."""
    permits: Callable[[Action], Failed | None] = _all_permitted
    """Checks an action that becomes known only during performance, such as a redirect: returns why it is not allowed,
    or None."""
    secrets: Callable[[], dict[str, str]] = _no_secrets
    """The values of the effect's secrets, by place (`SecretUse.at`). Resolve them at the last moment and do not keep them."""
    limits: Limits = Limits()
    """The limits of this effect, including those that it sets itself."""
    spent: float = 0.0
    """Seconds that have already passed and are no longer part of its limits."""
    begin: Callable[[], Awaitable[None]] = at_once
    """Waits until the intent is recorded. A performer whose `prepares` is true prepares in the meantime and awaits this before
    it acts; for all others the intent is already recorded.
    """
    slots: Slots = Unlimited()
    """For limits that hold across all processes on one store."""
    output: Callable[[bytes], None] | None = None
    """Receives the output of a command as it arrives, unmasked and in full."""
    masked: Callable[[Any], Any] = _as_it_is
    """Masks the secrets in a value. Mask text before cutting it: half a secret is not recognised."""

    @property
    def given(self) -> float:
        """The seconds it originally had, for messages about its limit."""
        return self.limits.seconds + self.spent


class Performer(Protocol):
    """Performs one kind of effect. Returns `Failed` for failures of the outside world; raises only for defects.

    When cancelled, it stops what it started and lets the cancellation propagate.
    """

    async def perform(self, effect: Any, call: Call) -> AnyOutcome: ...


class Trust(msgspec.Struct, frozen=True):
    """Something that someone must have approved before an effect is performed, such as a tool server's command."""

    subject: str
    """A name for it, such as `mcp server github`."""
    digest: str
    """The digest of what was approved; a different digest requires another question."""
    prompt: str
    preview: dict[str, str] = {}
    ask_first: bool = True
    """Whether to ask about the first version; if not, it is remembered and only changes raise a question."""


class Description(msgspec.Struct, frozen=True):
    """Describes what an effect would do: the actions that the policy decides on, and the preview for the approver."""

    actions: tuple[Action, ...]
    summary: str
    """One line, as in `Run git push`."""
    preview: dict[str, str] = {}
    """Everything that an approver should see, by name."""
    bound: dict[str, Any] = {}
    """Everything else that must not have changed when it is performed, such as digests of files or a tool's
    description."""
    trusts: tuple[Trust, ...] = ()
    """The trusts to ask for first, in this order. The consequences of each are described once it is granted."""
    seconds: float | None = None
    """The time that its arguments request, if any; the configuration limits it."""
    reads_only: bool = False
    """Whether a tool's call changes nothing, because its arguments say so and the sandbox enforces it."""
    harmless: bool = False
    """Whether it needs no approval, such as listing tools: rules that deny apply, rules that ask do not."""


@runtime_checkable
class Describer(Protocol):
    """A performer that can describe an effect before performing it."""

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed: ...


@runtime_checkable
class Outliner(Describer, Protocol):
    """A describer with a cheaper description for effects that are allowed and need neither preview nor digest."""

    async def outline(self, effect: Any, settings: Settings) -> Description | Failed:
        """The description without preview and digest, but with the same refusals."""


@runtime_checkable
class Needing(Protocol):
    """A performer of effects that not every machine can perform."""

    def needs(self, effect: Any, settings: Settings) -> Iterable[str]:
        """The capabilities that performing an effect needs."""


class Estimate(msgspec.Struct, frozen=True):
    """The maximum that a model call may use."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    """None if the price is unknown."""


@runtime_checkable
class Estimator(Protocol):
    """A performer of `AskModel` that can estimate the cost of a call in advance."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate: ...


@runtime_checkable
class Pricing(Protocol):
    """A performer of `AskModel` with known prices."""

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call is known to be free, regardless of its outcome."""


@runtime_checkable
class ActingModels(Protocol):
    """A performer of `AskModel` with models that act on the world themselves."""

    def acts(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call acts. If so, an intent is recorded before its prompt is sent: the performer awaits
        `Call.begin`."""

    async def continues(self, effect: AskModel, call: Call) -> bool:
        """Whether a call that was cut off, after its prompt was sent, can be taken up where it stopped."""


# --- gate -------------------------------------------------------------------------------------------


class Case(msgspec.Struct, frozen=True):
    """The context in which the gate examines an effect."""

    run: RunRow
    settings: Settings
    policy: str | None
    """The policy at the start of the run, or None if none was stored."""
    granted: frozenset[str] = frozenset()
    """Digests that someone has approved for this effect."""
    overrides: tuple[RunOverride, ...] = ()
    """The approvals in advance that its journal records for this run. Some may have been revoked since."""


class Admitted(msgspec.Struct, frozen=True):
    """The effect may be performed."""

    permits: Callable[[Action], Failed | None]
    secrets: Callable[[], dict[str, str]]
    limits: Limits = Limits()
    ruling: dict[str, Any] = {}
    """The rule or person that decided, for the journal."""
    still: Callable[[], Awaitable[Failed | None]] | None = None
    """Checks just before performing that it is still what was examined: returns why it is not, or None."""


OnExpiry = Literal["cancel", "hold", "deny"]


class Needed(msgspec.Struct, frozen=True):
    """Someone must approve it first."""

    prompt: str
    digest: str
    """The digest of everything to be approved; a different digest needs another approval."""
    details: dict[str, Any] = {}
    expires_after: float | None = None
    on_expiry: OnExpiry = "cancel"
    trust: Trust | None = None
    whole: dict[str, str] = {}
    """Everything to be approved, by name, if the preview in the details shows only part of it."""


class Gate(Protocol):
    """The checks between a yielded effect and its performer."""

    async def examine(self, effect: Effect, case: Case) -> Admitted | Needed | Failed:
        """Decides whether the effect may be performed now. Performs nothing."""

    async def learn(
        self, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], run: RunRow, policy: str | None
    ) -> Failed | None:
        """Makes the redactor mask a run's declared and used secrets. Returns why some cannot be resolved, or None."""

    def check_place(self, run: RunRow) -> None:
        """Raises `Elsewhere` if the run works in a folder that this process does not offer."""

    async def trusted(self, trust: Trust, run: RunRow, by: str) -> None:
        """Remembers that someone has approved something that an effect relies on."""

    def shown(self, words: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
        """A prompt and a preview that are safe to display: bounded, with all characters visible. If the preview is
        shortened, the full preview too.
        """


class Redactor(Protocol):
    """Masks secrets. A value without secrets is returned unchanged, as the same object."""

    def value(self, value: T) -> T: ...

    def stream(self) -> Filter: ...


class Filter(Protocol):
    """Masks secrets in text that arrives in pieces; holds back a tail that could be the start of a secret."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


# --- store ------------------------------------------------------------------------------------------


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
    opened: Sequence[WaitRow] = ()
    closed: Sequence[str] = ()
    taken: Sequence[int] = ()
    """Signals that these records answer."""
    checkpoints: Sequence[tuple[str, int]] = ()
    """Branch path and sequence number of each checkpoint among the records."""
    dropped: Sequence[tuple[int, str]] = ()
    """Rewinds, each a record and a branch path. Later steps and checkpoints on that branch are void."""


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


class Store(Protocol):
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

    async def create(self, row: RunRow, text: str, batch: Batch) -> None:
        """Adds a run with its first records; a fork's `parent` and `parent_seq` are set in the row."""

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
        a driver that was killed, and runs that need another capability. With `run`, only that run is checked; with
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

    async def runs(
        self,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        status: Sequence[str] = (),
        among: Collection[str] | None = None,
        limit: int | None = 100,
    ) -> list[RunRow]:
        """Runs, newest first; `name` is the playbook's name. Runs whose ids are in `among` are listed regardless of
        their status."""

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        """Runs whose id begins with a prefix, up to a limit."""

    async def steps(self, run: str) -> list[StepRow]: ...

    async def waits(
        self,
        *,
        run: str | None = None,
        tenant: str | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> list[WaitRow]:
        """Open waits, oldest first; with `kinds`, only waits of those kinds."""

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        """The ids of these waits."""

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

    async def playbook(self, digest: str) -> str: ...

    def text(self, digest: str) -> str:
        """A long text, by its digest."""

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        """Stores a decision for all runs of a tenant under a name, replacing any earlier decision."""

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        """Whether there is a stored decision with this name."""

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        """The stored decisions of a kind, by name."""

    async def tenants(self, kind: str) -> list[str]:
        """The tenants that have something of this kind."""

    async def forget(self, tenant: str, kind: str, name: str) -> bool:
        """Removes a stored decision; returns whether it existed."""

    async def close(self) -> None: ...

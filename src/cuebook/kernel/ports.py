"""What the engine needs from outside: performers and a store. Kept to the least that works.

The kernel defines these shapes and imports none of their implementations.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from cuebook.kernel.confinement import Limits, at_once
from cuebook.kernel.effects import AskModel, Effect, SecretNeed
from cuebook.kernel.journal import Record
from cuebook.kernel.outcomes import AnyOutcome, Failed
from cuebook.kernel.run import RunRow, Settings, Signal, StepRow, WaitRow

T = TypeVar("T")

# --- performers -------------------------------------------------------------------------------------

Domain = Literal["tool", "command", "egress", "secret", "file", "model"]


class Action(msgspec.Struct, frozen=True):
    """One thing that performing an effect would do, in the words of a policy."""

    domain: Domain
    target: str
    """tool: its name. command: the argv, quoted as for a shell. egress: `METHOD URL` without query and fragment.
    secret: the handle. file: `read:PATH` or `write:PATH`, relative to the workspace. model: `provider/model`."""
    reads_only: bool = False
    """Whether it changes nothing, as far as we can hold it to that. Of a secret: that the configuration gives it away,
    and no playbook asked for it."""


def _all_permitted(action: Action) -> Failed | None:
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _no_secrets() -> dict[str, str]:
    return {}


def _unnoted(name: str, data: dict[str, Any]) -> None:
    pass


class Call(msgspec.Struct, frozen=True):
    """What a performer is told besides the effect."""

    run: str
    key: str
    """Names this effect of this run, the same over all attempts: what an idempotency key is made from."""
    attempt: int
    settings: Settings
    emit: Callable[[str], bool]
    """Shows text as it arrives; False means that the reply is to be stopped here."""
    reset: Callable[[], None]
    """Takes back what was emitted, because the attempt begins again."""
    warn: Callable[[str, str], None]
    """Notes a warning (code, message) on the step."""
    note: Callable[[str, dict[str, Any]], None] = _unnoted
    """Notes something on the step that is worth seeing while it goes on, such as another attempt."""
    permits: Callable[[Action], Failed | None] = _all_permitted
    """For an action that shows only while performing, such as a redirect: why it must not be done, or None."""
    secrets: Callable[[], dict[str, str]] = _no_secrets
    """The values of the effect's secrets, by their place (`SecretUse.at`). For the last moment; keep nothing of it."""
    limits: Limits = Limits()
    """What this effect may take, its own wishes included."""
    spent: float = 0.0
    """Seconds that are gone by now of those it was given, and are not among its limits any more."""
    begin: Callable[[], Awaitable[None]] = at_once
    """Waits until the intent is on record. A performer whose `prepares` is true makes ready what it needs meanwhile, and awaits
    this before it acts; for the others it is on record by then.
    """
    masked: Callable[[Any], Any] = _as_it_is
    """A value without secrets. Whoever cuts a text masks it first: half a secret is not found any more."""

    @property
    def given(self) -> float:
        """The seconds it was given at first: what is said to a person about its limit."""
        return self.limits.seconds + self.spent


class Performer(Protocol):
    """Does one kind of effect. Returns `Failed` for what can go wrong in the world; raises only for defects.

    When it is cancelled it stops what it started, and lets the cancellation through.
    """

    async def perform(self, effect: Any, call: Call) -> AnyOutcome: ...


class Trust(msgspec.Struct, frozen=True):
    """Something that a person must have seen before an effect is performed, such as the command of a tool server."""

    subject: str
    """What it is about, as in `mcp server github`."""
    digest: str
    """Of what was seen: another digest is asked about again."""
    prompt: str
    preview: dict[str, str] = {}
    ask_first: bool = True
    """Whether the first one is asked about; otherwise it is remembered, and only a change is."""


class Description(msgspec.Struct, frozen=True):
    """What performing an effect would come to: what policy decides about, and what a person is shown."""

    actions: tuple[Action, ...]
    summary: str
    """One line, as in `Run git push`."""
    preview: dict[str, str] = {}
    """Everything that a person should see before saying yes, by name."""
    bound: dict[str, Any] = {}
    """What must still be the same when it is performed, besides the effect: digests of files, a tool's description."""
    trusts: tuple[Trust, ...] = ()
    """Asked about first, in this order; what follows from one is described once it is granted."""
    seconds: float | None = None
    """The time that it asks for by its arguments, where it does; it gets as much as the configuration allows."""
    harmless: bool = False
    """Whether there is nothing in it to ask about, as in listing tools: a rule that denies counts, one that asks does not."""


@runtime_checkable
class Describer(Protocol):
    """A performer that can tell beforehand what an effect would do. It does nothing yet."""

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed: ...


@runtime_checkable
class Outliner(Describer, Protocol):
    """A describer that can tell less for less. What is allowed as it is needs no preview, and nothing to be bound to."""

    async def outline(self, effect: Any, settings: Settings) -> Description | Failed:
        """The same description without both, and refused alike."""


class Estimate(msgspec.Struct, frozen=True):
    """What a model call may use at most."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    """None where the price is unknown."""


@runtime_checkable
class Estimator(Protocol):
    """A performer of `AskModel` that can tell beforehand what a call may cost."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate: ...


@runtime_checkable
class Pricing(Protocol):
    """A performer of `AskModel` that knows prices."""

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call is known to cost nothing, whatever becomes of it."""


# --- gate -------------------------------------------------------------------------------------------


class Case(msgspec.Struct, frozen=True):
    """What the gate is told besides the effect."""

    run: RunRow
    settings: Settings
    policy: str | None
    """The policy as it was when the run started, or None where none was kept."""
    granted: frozenset[str] = frozenset()
    """Digests that a person has approved for this very effect."""


class Admitted(msgspec.Struct, frozen=True):
    """The effect may be performed."""

    permits: Callable[[Action], Failed | None]
    secrets: Callable[[], dict[str, str]]
    limits: Limits = Limits()
    ruling: dict[str, Any] = {}
    """What decided, for the record."""
    still: Callable[[], Awaitable[Failed | None]] | None = None
    """Looks once more, just before it is performed, whether it is what was examined: why it is not, or None."""


OnExpiry = Literal["cancel", "hold", "deny"]


class Needed(msgspec.Struct, frozen=True):
    """A person must approve first."""

    prompt: str
    digest: str
    """Of everything that is approved: another one needs another approval."""
    details: dict[str, Any] = {}
    expires_after: float | None = None
    on_expiry: OnExpiry = "cancel"
    trust: Trust | None = None
    whole: dict[str, str] = {}
    """Everything that is approved, by name, where the preview in the details shows a part of it."""


class Gate(Protocol):
    """Stands between a yielded effect and its performer."""

    async def examine(self, effect: Effect, case: Case) -> Admitted | Needed | Failed:
        """Whether the effect may be performed now. It performs nothing."""

    async def learn(
        self, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], run: RunRow, policy: str | None
    ) -> Failed | None:
        """Makes the redactor know a run's secrets: those that it declares, and those that it has used. Why some of them
        cannot be had, or None.
        """

    def check_place(self, run: str, workspace: str) -> None:
        """`Elsewhere` where a run that works in this folder is not to be taken forward by this process."""

    async def trusted(self, trust: Trust, run: RunRow, by: str) -> None:
        """Remembers that a person has approved what an effect stands on."""

    def shown(self, words: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
        """Words and a preview as a person may be shown them: bounded, and every character seen as itself. Where the preview
        leaves something out, all of it besides.
        """


class Redactor(Protocol):
    """Masks secrets. What holds none comes back as it is, the same object."""

    def value(self, value: T) -> T: ...

    def stream(self) -> Filter: ...


class Filter(Protocol):
    """Masks secrets in a text that arrives in pieces; holds back a tail that could begin one."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


# --- store ------------------------------------------------------------------------------------------


class Batch(msgspec.Struct, gc=False):
    """What one append writes, all of it or nothing."""

    run: str
    epoch: int
    records: list[Record]
    plain: bool = False
    """Whether there is nothing but records: most appends of a long run."""
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
    """Rewinds: steps and checkpoints of this line from this record on are void."""


class Claim(msgspec.Struct, kw_only=True):
    """A run, held by one driver: everything that is needed to go on."""

    row: RunRow
    text: str
    """The playbook it started from."""
    records: list[Record]
    """What a replay needs: from the last checkpoint of each branch on, inherited ones included."""
    inherited: int
    """Records below this sequence number are the parent's."""
    steps: list[StepRow]
    """Those that are open or still to come."""
    waits: list[WaitRow]
    signals: list[Signal]
    head: tuple[int, bytes]
    """The last sequence number and its chain value."""


class Fate(msgspec.Struct, frozen=True):
    """What is known of a driver: it let go in good order, its process ended or lives, or it cannot be looked at from here."""

    state: Literal["left", "ended", "lives", "silent"]
    machine: str = ""
    pid: int = 0


class News(msgspec.Struct):
    """What reached a run while it was driven."""

    waits: list[WaitRow]
    signals: list[Signal]


class Whole(msgspec.Struct):
    """Everything that a store has of a run, at one moment."""

    row: RunRow
    steps: list[StepRow]
    waits: list[WaitRow]
    """Also those that are closed."""
    records: list[Record]
    odd: str = ""
    """A row that does not even agree with itself, in words."""


class Store(Protocol):
    """Keeps journals. Every write is durable when it returns; a refusal has changed nothing."""

    async def create(self, row: RunRow, text: str, batch: Batch) -> None:
        """Adds a run with its first records; a fork's `parent` and `parent_seq` are set in the row."""

    async def claim(self, run: str, driver: str, now: float) -> Claim:
        """Raises the run's epoch for this driver, and marks its waits whose time is over. `Busy` while another driver lives."""

    def append(self, batch: Batch) -> Future[None]:
        """Done when it is durable. `Fenced` on a stale epoch."""

    async def release(self, batch: Batch, *, unless_news: bool) -> bool:
        """Appends and gives the claim up; with `unless_news`, keeps both undone and says False if something came.

        Where nothing is appended, the run was claimed in vain: what it was claimed for is news for the next driver.
        """

    async def news(self, run: str) -> News:
        """Waits of the run that are decided but not yet taken, and its signals. For its driver: what it is told is no news
        any more.
        """

    async def unclosed(self, run: str) -> list[WaitRow]:
        """The same waits for anyone else: nothing is changed by that."""

    async def complete_wait(self, wait: str, answer: dict[str, Any], by: str, now: float) -> WaitRow:
        """Decides a wait, once. `AlreadyAnswered`, `WaitExpired`, `WaitClosed`, `NotFound`."""

    async def signal(self, signal: Signal) -> None:
        """Puts it into the run's inbox. A cancel also closes the run's open waits, so that no answer comes after."""

    async def expire(self, now: float, run: str | None = None) -> list[str]:
        """Marks the waits whose time is over, of one run or of all; gives their runs."""

    async def ready(self, now: float, driver: str, run: str | None = None) -> list[str]:
        """Runs that something is to be done for and that this driver may take up: new ones, those with news, those whose
        wait is over, those that a driver left when it was killed. With `run`, only that one is looked at.
        """

    async def undriven(self, now: float, run: str | None = None) -> list[str]:
        """The same for who only shows them: of a driver that was never seen before, its last word is believed."""

    async def next_expiry(self) -> float | None: ...

    async def heartbeat(self, driver: str, now: float) -> None:
        """Extends the lease of everything this driver has claimed."""

    async def retire(self, driver: str) -> None:
        """Ends the driver's lease at once."""

    async def alive(self, run: str) -> bool:
        """Whether a live driver holds the run."""

    async def fate(self, driver: str) -> Fate:
        """What became of a driver."""

    async def called(self, driver: str) -> list[str]:
        """Runs held by this driver for which there is news."""

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
        """Newest first; `name` is the playbook's. Those `among` these ids are listed whatever their status."""

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        """Those whose id begins so; of very many, some."""

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
        """Those still open, oldest first; of all kinds, or of some."""

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        """The ids of the same."""

    async def waits_called(self, tenant: str, beginning: str) -> list[WaitRow]:
        """Those whose id begins so, open ones first; of very many, some."""

    async def wait(self, wait: str) -> WaitRow: ...

    def records(self, run: str, after: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        """The run's whole journal in order, the parent's part first; or only the records of these kinds."""

    async def whole(self, run: str) -> Whole:
        """A run with all its rows and records, as they are together at one moment."""

    async def playbook(self, digest: str) -> str: ...

    def text(self, digest: str) -> str:
        """A long text, by its digest."""

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        """Remembers something that is decided for all runs of a tenant; what had its name before is replaced."""

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        """By name."""

    async def tenants(self, kind: str) -> list[str]:
        """Those for whom something of this kind is kept."""

    async def forget(self, tenant: str, kind: str, name: str) -> bool:
        """Whether there was one."""

    async def close(self) -> None: ...

"""Events: everything that happens in a run, as a closed union of frozen values.

Journaled events are the bodies of journal records, committed before anyone sees them. Programs yield the first group; the
engine writes the others. The two events at the end are published while text streams and are never stored. Nothing here
depends on observers.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from cuebook.kernel.context import Block, Text
from cuebook.kernel.effects import Browse, CallNode, CallTool, PromptAgent, RunCommand, RunPlaybook, Send, SendHttp
from cuebook.kernel.outcomes import AnyOutcome, Failed, Usage

RunStatus = Literal[
    "pending",
    "running",
    "paused",
    "awaiting_input",
    "awaiting_approval",
    "completed",
    "failed",
    "cancelled",
    "expired",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "expired"})
WAITING: frozenset[str] = frozenset({"paused", "awaiting_input", "awaiting_approval"})
UNDER_WAY: frozenset[str] = frozenset({"pending", "running"})

StepStatus = Literal[
    "pending",
    "running",
    "tool_call",
    "completed",
    "failed",
    "skipped",
    "paused",
    "awaiting_input",
    "awaiting_approval",
    "in_doubt",
]

WaitKind = Literal[
    "question", "approval", "breakpoint", "in_doubt", "budget", "secret", "timer", "message", "model", "needs"
]


FOR_PEOPLE: tuple[WaitKind, ...] = ("question", "approval", "breakpoint", "in_doubt", "budget", "secret")
"""The kinds of waits that a user ends."""

FOR_HOST: WaitKind = "model"
"""The kind of waits that a connected assistant ends, by doing a step."""

STATUS_OF_WAIT: dict[str, tuple[RunStatus, StepStatus]] = {
    "approval": ("awaiting_approval", "awaiting_approval"),
    "in_doubt": ("awaiting_approval", "in_doubt"),
    "question": ("awaiting_input", "awaiting_input"),
    "model": ("awaiting_input", "awaiting_input"),
    "breakpoint": ("paused", "paused"),
    "budget": ("paused", "paused"),
    "secret": ("paused", "paused"),
    "needs": ("paused", "paused"),
    "timer": ("paused", "running"),
    "message": ("paused", "running"),
}
"""The states of a run and its step while they are waiting, most urgent first."""


PAUSES: frozenset[str] = frozenset({"breakpoint", "budget", "secret"})
"""The waits that end when the run is resumed."""


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """Something that happened."""


class PlannedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    label: str
    title: str = ""
    branched: bool = False
    """Whether it belongs to a branch; if so, it is listed once the branch reaches it."""


# --- yielded by programs ----------------------------------------------------------------------------


class Planned(Event, frozen=True):
    """The steps that are known in advance."""

    steps: tuple[PlannedStep, ...]


class StepStarted(Event, frozen=True):
    """Begins a visit to a step. The program receives the values that a fork edited here, usually none."""

    label: str
    title: str = ""


class StepFinished(Event, frozen=True):
    """Closes a step. The engine fills in the step's usage."""

    label: str
    status: StepStatus = "completed"
    reason: str = ""
    output: Text | None = None
    usage: Usage | None = None
    seconds: float = 0.0


class StepSkipped(Event, frozen=True):
    label: str
    title: str = ""
    reason: str = ""


class ValueSet(Event, frozen=True):
    """A named value was captured."""

    name: str
    value: Any


class Warned(Event, frozen=True):
    code: str
    message: str


class ArtifactMade(Event, frozen=True):
    content: Text
    type: str = ""


class Noted(Event, frozen=True):
    """Additional information from a dialect, as plain data."""

    name: str
    data: dict[str, Any] = {}


KEY_REJECTED = "key_rejected"
"""The name of a note that a provider rejected our key: the call waits and is made again, and this attempt cost nothing."""


# --- written by the engine --------------------------------------------------------------------------


class Beginning(Event, frozen=True, kw_only=True):
    """Identifies a run and its owner, so no journal can be passed off as another's. Old journals lack it."""

    run: str = ""
    tenant: str = ""
    owner: str = ""
    name: str = ""
    """The playbook's name."""
    caller: str = ""
    """Of a child run: the run that started it."""
    trigger: str = ""
    """What started it, such as `schedule:nightly`; empty if a person or a program did."""


class PinnedPlaybook(msgspec.Struct, frozen=True, omit_defaults=True):
    """A playbook that a run may start as a child, as it was when the outermost run started."""

    name: str
    dialect: str
    text: Text
    folder: str = ""
    """The folder of its own files."""
    uses: dict[str, str] = {}
    """The digests of the playbooks that it starts in turn, by the name that its author wrote."""
    about: dict[str, Any] = {}
    """Its title, its description and the schema of its inputs."""


class RunStarted(Beginning, frozen=True):
    """The first record of a run."""

    inputs: dict[str, Any]
    settings: dict[str, Any] = {}
    playbook: str = ""
    """The digest of the playbook's source."""
    dialect: str = ""
    interpreter: int = 0
    policy: Text | None = None
    """The policy at that time. The run follows it or the current policy, whichever is stricter."""
    uses: dict[str, str] = {}
    """The digests of the playbooks that it may start as children, by the name that its author wrote."""
    pinned: dict[str, PinnedPlaybook] = {}
    """These playbooks and those that they start in turn, by digest."""


class TextEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A changed playbook, with which a fork continues its parent."""

    playbook: str
    """The digest of its source."""
    inputs: dict[str, Any] = {}
    plan: tuple[PlannedStep, ...] = ()
    uses: dict[str, str] = {}
    pinned: dict[str, PinnedPlaybook] = {}
    kept: tuple[str, ...] = ()
    """The steps after the fork point whose first visits are taken over from the parent when the program reaches them."""


class Forked(Beginning, frozen=True):
    """The first record of a fork: everything before it is the parent's."""

    parent: str
    parent_chain: str
    path: str
    step: str
    visit: int
    values: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    edit: TextEdit | None = None
    """The changed text that it continues with, if it supersedes its parent."""


class Driven(Event, frozen=True):
    """A process began to drive the run."""

    driver: str
    machine: str = ""
    """The machine that drives it, whose policy, tool servers and models apply."""


class Moved(Event, frozen=True):
    """The run's folder is somewhere else now."""

    workspace: str
    workspace_label: str = ""
    folder: str = ""
    by: str = ""


class Performing(Event, frozen=True):
    """The intent: this effect is about to be performed, and it can change the world or is witnessed."""

    effect: CallTool | RunCommand | SendHttp | Browse | CallNode | RunPlaybook | Send | PromptAgent
    fingerprint: str
    ruling: dict[str, Any] = {}
    """The gate's ruling."""


class ModelAsked(Event, frozen=True):
    """A model call began. Without an outcome its cost is unknown, unless the model is free."""

    model: str
    context: str
    prompt: Text
    fingerprint: str
    free: bool = False
    """Whether it was known in advance to be free."""
    ruling: dict[str, Any] = {}
    """The gate's ruling. Old journals lack it."""
    since: str = ""
    added: tuple[Block, ...] = ()
    """Short blocks at the end of the context, and the digest of the context before them. Everything else is stored as texts."""


class Performed(Event, frozen=True):
    """The outcome of an effect."""

    outcome: AnyOutcome
    fingerprint: str


class WaitOpened(Event, frozen=True):
    wait: str
    kind: WaitKind
    prompt: str
    purpose: str
    type: str = ""
    options: tuple[str, ...] = ()
    default: str | None = None
    expires: float | None = None
    details: dict[str, Any] = {}


class WaitClosed(Event, frozen=True):
    wait: str
    how: Literal["answered", "expired", "cancelled"]
    kind: WaitKind
    answer: dict[str, Any] = {}
    by: str = ""


class BranchFinished(Event, frozen=True):
    """A sub-program below `All` ended, with its result or its failure."""

    value: Any = None
    failed: Failed | None = None
    failed_seq: int | None = None
    """The record of the effect whose failure ended the branch."""
    texts: tuple[Text, ...] = ()
    """The long texts of its result."""


class Checkpointed(Event, frozen=True):
    """A replay of this branch starts here, with this state and cursor."""

    state: Any
    cursor: dict[str, Any]
    texts: tuple[Text, ...] = ()


class CancelRequested(Event, frozen=True):
    by: str = ""
    reason: str = ""
    hard: bool = False


class Rewound(Event, frozen=True):
    """The branch continues from the record `seq`: that record and all later ones on the branch are void."""

    seq: int
    path: str
    by: str = ""
    same: bool = False
    """Whether it continues at the failed effect. That effect may have happened anyway, so its key stays the same."""


class Suspended(Event, frozen=True):
    """Every branch is waiting; the run is no longer in memory."""

    status: RunStatus
    reason: str = ""
    seconds: float = 0.0
    needs: tuple[str, ...] = ()
    """The capabilities that the process which drives it next must offer."""


class RunFinished(Event, frozen=True):
    status: RunStatus
    result: Any = None
    error: Failed | None = None
    step: str = ""
    failed_seq: int | None = None
    """The record of the effect whose failure ended the run."""
    seconds: float = 0.0


class ContentsPurged(Event, frozen=True):
    """The contents of all earlier records of this run were purged. Their digests stay, so the chain remains valid."""

    by: str
    reason: str = ""


AnyEvent: TypeAlias = (
    Planned
    | StepStarted
    | StepFinished
    | StepSkipped
    | ValueSet
    | Warned
    | ArtifactMade
    | Noted
    | RunStarted
    | Forked
    | Driven
    | Moved
    | Performing
    | ModelAsked
    | Performed
    | WaitOpened
    | WaitClosed
    | BranchFinished
    | Checkpointed
    | CancelRequested
    | Rewound
    | Suspended
    | RunFinished
    | ContentsPurged
)

KINDS: dict[type, str] = {event: event.__name__ for event in get_args(AnyEvent)}
"""The kind of each event's records. Looking it up is faster than asking the class for its name."""

YIELDED_EVENTS = (Planned, StepStarted, StepFinished, StepSkipped, ValueSet, Warned, ArtifactMade, Noted)
"""The events that a program may yield."""


# --- transient: published, never stored ----------------------------------------------------------------


class TextChunk(msgspec.Struct, frozen=True):
    """Text as it streams. Its id is `seq.offset`: the record of the attempt, and where in the text it starts."""

    run: str
    seq: int
    step: str
    offset: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.seq}.{self.offset}"


class TextReset(msgspec.Struct, frozen=True):
    """The text streamed for this step so far is void because its attempt starts over."""

    run: str
    seq: int
    step: str

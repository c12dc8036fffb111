"""Events: everything that happens in a run, as a closed union of frozen values.

Journaled events are the bodies of journal records, committed before anyone sees them. The first group is
yielded by programs; the rest is written by the engine. The two passing events at the end are published
while text streams and never stored. Nothing here knows who is watching.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import Browse, CallNode, CallTool, RunCommand, RunPlaybook, Send, SendHttp
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

WaitKind = Literal["question", "approval", "breakpoint", "in_doubt", "budget", "secret", "timer", "message"]


FOR_PEOPLE: tuple[WaitKind, ...] = ("question", "approval", "breakpoint", "in_doubt", "budget", "secret")
"""Kinds of waits that a person ends."""

STATUS_OF_WAIT: dict[str, tuple[RunStatus, StepStatus]] = {
    "approval": ("awaiting_approval", "awaiting_approval"),
    "in_doubt": ("awaiting_approval", "in_doubt"),
    "question": ("awaiting_input", "awaiting_input"),
    "breakpoint": ("paused", "paused"),
    "budget": ("paused", "paused"),
    "secret": ("paused", "paused"),
    "timer": ("paused", "running"),
    "message": ("paused", "running"),
}
"""What a run and its step are while they wait, most urgent first."""


PAUSES: frozenset[str] = frozenset({"breakpoint", "budget", "secret"})
"""Waits that end when the run is resumed."""


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """Something that happened."""


class PlannedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    label: str
    title: str = ""
    branched: bool = False
    """It belongs to a branch, and is listed from when that comes to it."""


# --- yielded by programs ----------------------------------------------------------------------------


class Planned(Event, frozen=True):
    """The steps that are known beforehand."""

    steps: tuple[PlannedStep, ...]


class StepStarted(Event, frozen=True):
    """Opens a visit of a step. The program receives the values that a fork edits here: usually none."""

    label: str
    title: str = ""


class StepFinished(Event, frozen=True):
    """Closes a step. The engine fills in what the step used."""

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
    """Something that a dialect wants seen and that no other event says, as plain values."""

    name: str
    data: dict[str, Any] = {}


# --- written by the engine --------------------------------------------------------------------------


class Beginning(Event, frozen=True, kw_only=True):
    """Which run begins, and on whose behalf: so that no journal can be passed off as another's. Old ones do not say."""

    run: str = ""
    tenant: str = ""
    owner: str = ""
    name: str = ""
    """The playbook's."""


class RunStarted(Beginning, frozen=True):
    """The first record of a run."""

    inputs: dict[str, Any]
    settings: dict[str, Any] = {}
    playbook: str = ""
    """The digest of the text it runs."""
    dialect: str = ""
    interpreter: int = 0
    policy: Text | None = None
    """The policy as it was then: the run is held to it and to today's, whichever is stricter."""


class Forked(Beginning, frozen=True):
    """The first record of a fork: everything before it is the parent's."""

    parent: str
    parent_chain: str
    path: str
    step: str
    visit: int
    values: dict[str, Any] = {}
    settings: dict[str, Any] = {}


class Driven(Event, frozen=True):
    """A process took the run up."""

    driver: str


class Performing(Event, frozen=True):
    """The intent: this effect is about to be performed and can change the world, or is to be witnessed."""

    effect: CallTool | RunCommand | SendHttp | Browse | CallNode | RunPlaybook | Send
    fingerprint: str
    ruling: dict[str, Any] = {}
    """What let it through the gate."""


class ModelAsked(Event, frozen=True):
    """A model call was begun. One without an outcome may have cost something: nobody knows how much, unless it is free."""

    model: str
    context: str
    prompt: Text
    fingerprint: str
    free: bool = False
    """Whether it was known before that it costs nothing."""
    ruling: dict[str, Any] = {}
    """What let it through the gate. Old journals do not say."""


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
    """A sub-program below `All` ended: what it returned, or how it failed."""

    value: Any = None
    failed: Failed | None = None
    failed_seq: int | None = None
    """The record of the effect whose failure ended the branch."""


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
    """The branch goes on from the record `seq`: it and what came after it on the branch is void."""

    seq: int
    path: str
    by: str = ""
    same: bool = False
    """Whether it goes on with the very effect that failed, which may have happened all the same: its key stays."""


class Suspended(Event, frozen=True):
    """Every branch waits; nothing of the run is in memory."""

    status: RunStatus
    reason: str = ""
    seconds: float = 0.0


class RunFinished(Event, frozen=True):
    status: RunStatus
    result: Any = None
    error: Failed | None = None
    step: str = ""
    failed_seq: int | None = None
    """The record of the effect whose failure ended the run."""
    seconds: float = 0.0


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
)

TOLD = (Planned, StepStarted, StepFinished, StepSkipped, ValueSet, Warned, ArtifactMade, Noted)
"""What a program may yield besides effects."""


# --- passing: published, never stored ----------------------------------------------------------------


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
    """The text streamed for this step so far is void: its attempt begins again."""

    run: str
    seq: int
    step: str

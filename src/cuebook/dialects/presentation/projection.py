"""Projections, which compute the state of a run from its events, in terms of its playbook's format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, Settings, WaitRow

if TYPE_CHECKING:
    from cuebook.dialects.presentation.panels import Listing, PanelContent

RunEvent: TypeAlias = Entry | TextChunk | TextReset
"""An event of a run: a journal entry, or streamed text that is not journaled yet."""
PublishedEvent: TypeAlias = Mapping[str, Any]
"""An event as a format publishes it; `type` is the format's name for it."""


class Said(msgspec.Struct, frozen=True):
    """A message from the program or to it."""

    by: Literal["program", "user"]
    text: str
    to: str = "user"
    agent: str = ""
    """The agent that sent or received it."""


class StackFrame(msgspec.Struct):
    """A playbook that is being executed."""

    agent: str
    playbook: str
    arguments: dict[str, Any]
    line: str = ""
    """The current line; empty for a playbook without a listing."""
    status: Literal["arrived", "begun", "done"] = "arrived"
    """`arrived`: the line has not been executed yet; `begun`: in part; `done`: it has taken effect."""
    pending: tuple[str, ...] = ()
    """Calls that have not run yet, as of the last checkpoint: `02#1 $n = Count(...)`."""


class Refusal(msgspec.Struct, frozen=True):
    """A reply that was refused, and the reason that the model was given."""

    playbook: str
    rule: str
    asks: str
    """The requirement of the rule."""
    problem: str
    at: str
    """The position in the reply."""
    position: str
    """The position of the frame, as in `Main:02, executed`."""
    legal: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    attempt: int = 1
    """Its number among consecutive refusals, from 1."""
    retries: int = 0
    """The maximum number of retries."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    type: str
    """The declared type; if there is none, the type of its value."""
    value: Any


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a program's run."""

    said: tuple[Said, ...]
    """All messages of the program and the user, in order."""
    lines: tuple[str, ...]
    """Every line that was executed, as in `Main:02`; a playbook without lines is listed by its name."""
    calls: tuple[str, ...]
    """The playbooks that were called."""
    stack: tuple[StackFrame, ...]
    """The playbooks that are being executed, the innermost last. For a failed run, the stack at the failure."""
    variables: dict[str, dict[str, Any]]
    """The variables, by agent and name."""
    triggers: tuple[str, ...]
    """The triggers that fired, as in `Enough:T1`."""
    refusals: tuple[Refusal, ...]
    """The replies that were refused, each with the rule and the reason that the model was given."""
    value: Any
    """The program's return value, once it has ended."""
    exited: bool
    """Whether the program exited before it reached its end."""
    turns: int
    """The number of times a model was called to continue the program."""
    without_model: int
    """The number of lines that needed no model. For an unfinished run, as of its last checkpoint."""

    @property
    def messages(self) -> tuple[str, ...]:
        """The program's messages to the user."""
        return tuple(one.text for one in self.said if one.by == "program" and one.to == "user")


class Conversation(ABC):
    """A run that talks with the user: the messages so far, and the position of the run."""

    said: list[Said]
    refused: list[Refusal]
    model_calls: int
    at_least: bool
    """Whether `without_model` may have increased since the last checkpoint."""

    @property
    @abstractmethod
    def stack(self) -> Sequence[StackFrame]:
        """From the bottom to the top. For a failed run, the stack at the failure."""

    @property
    @abstractmethod
    def without_model(self) -> int:
        """The number of lines that needed no model."""

    @property
    @abstractmethod
    def line_count(self) -> int:
        """The number of lines that were executed."""

    @abstractmethod
    def listing(self, frame: StackFrame) -> Listing:
        """The lines of the playbook that a frame executes."""

    @abstractmethod
    def typed(self) -> Mapping[str, Sequence[Variable]]:
        """The variables, by agent."""

    @abstractmethod
    def changes(self, entry: Entry) -> Sequence[str]:
        """The changes that the entry just seen made to the line, the stack and the variables, as lines of text."""

    @abstractmethod
    def speaker(self, asked: Entry) -> str | None:
        """The agent that speaks to the user in the reply to this model call; None if the reply has no such message."""

    @abstractmethod
    def spoken(self, reply: str) -> Sequence[str]:
        """The messages to the user at the beginning of such a reply."""

    @abstractmethod
    def position(self, path: str) -> str:
        """The current position on a branch, as in `line 02 of Main`; empty if unknown."""

    @abstractmethod
    def as_object(self) -> dict[str, Any]:
        """The whole conversation as plain values."""

    @abstractmethod
    def program_run(self) -> ProgramRun:
        """The whole conversation as frozen values."""

    @property
    def top(self) -> StackFrame | None:
        return self.stack[-1] if self.stack else None

    @property
    def messages(self) -> list[str]:
        """The messages to the user."""
        return [one.text for one in self.said if one.by == "program" and one.to == "user"]


class Update(NamedTuple):
    """The changes that an event makes to a projection."""

    said: Sequence[Said] = ()
    """New messages. Each one appears once, as soon as it is certain."""
    published: Sequence[PublishedEvent] = ()
    """The events that the format defines for this event: often none, sometimes several."""
    panels: Sequence[str] = ()
    """The names of the panels whose content changed."""


NOTHING = Update()


class Projection:
    """A run in terms of its playbook's format. It must see all events of the run, in order.

    The defaults are for a dialect whose format defines no such terms.
    """

    conversation: Conversation | None = None
    """The conversation, in a dialect whose runs talk with the user."""
    order: Sequence[str] = ()
    """The labels of the steps, if a page shows each step once and in this order, however often it runs. If empty, a
    page shows every visit to a step."""
    types: Mapping[str, str] = {}
    """The known types of the run's variables, by name."""
    branches: Mapping[str, str] = {}
    """The conditions of the branches that steps belong to, in words, by the labels of the steps."""

    def see(self, event: RunEvent) -> Update:
        return NOTHING

    def values(self) -> dict[str, Any] | None:
        """The result of each step, by label; None if there are only the values that the run sets."""
        return None

    def trace(self) -> dict[str, Any] | None:
        """The fields `trace` and `results` as the format defines them; None if it has no such fields."""
        return None

    def state(self, row: RunRow, waits: Iterable[WaitRow], text: str, settings: Settings) -> dict[str, Any] | None:
        """The state of the run as the format exports it; None if it has no such state.

        `waits` are the run's pending waits, `text` is the playbook that it started from.
        """
        return None

    def panel(self, name: str) -> PanelContent | None:
        """The current content of a panel that the dialect declares; None if the dialect does not provide it."""
        return None


def seen(projection: Projection, events: Iterable[RunEvent]) -> Projection:
    """The projection after these events."""
    for event in events:
        projection.see(event)
    return projection

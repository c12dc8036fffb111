"""Projections: the state of a run in the terms of its playbook's format, computed from its events."""

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
"""What happens in a run: an entry of its journal, or text that streams and is not journaled yet."""
PublishedEvent: TypeAlias = Mapping[str, Any]
"""An event as a format publishes it; `type` is the name that the format has for it."""


class Said(msgspec.Struct, frozen=True):
    """Something that was said, by the program or to it."""

    by: Literal["program", "user"]
    text: str
    to: str = "user"
    agent: str = ""
    """The agent that said it, or that heard it."""


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
    """What the rule asks for."""
    problem: str
    at: str
    """Where in the reply."""
    position: str
    """The position of the frame, as in `Main:02, executed`."""
    legal: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    attempt: int = 1
    """Its number among refusals in a row, from 1."""
    retries: int = 0
    """The maximum number of retries."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    type: str
    """The declared type, or else the type of its value."""
    value: Any


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a program, as far as it has come."""

    said: tuple[Said, ...]
    """By the program and by the user, in order."""
    lines: tuple[str, ...]
    """Every line that was executed, as in `Main:02`; a playbook without lines is listed by its name."""
    calls: tuple[str, ...]
    """The playbooks that were called."""
    stack: tuple[StackFrame, ...]
    """The playbooks that are being executed, the innermost last. For a failed run, the stack at the failure."""
    variables: dict[str, dict[str, Any]]
    """By agent and name."""
    triggers: tuple[str, ...]
    """The triggers that fired, as in `Enough:T1`."""
    refusals: tuple[Refusal, ...]
    """The replies that were refused, each with the rule and the reason that the model was given."""
    value: Any
    """What the program returned, once it has ended."""
    exited: bool
    """Whether the program ended itself instead of reaching its end."""
    turns: int
    """How often a model was asked to continue."""
    without_model: int
    """Lines that needed no model. For a run that has not ended, up to its last checkpoint."""

    @property
    def messages(self) -> tuple[str, ...]:
        """What the program said to the user."""
        return tuple(one.text for one in self.said if one.by == "program" and one.to == "user")


class Conversation(ABC):
    """A run that talks with a person: what was said so far, and where the run is."""

    said: list[Said]
    refused: list[Refusal]
    model_calls: int
    at_least: bool
    """Whether `without_model` may have grown since the last checkpoint."""

    @property
    @abstractmethod
    def stack(self) -> Sequence[StackFrame]:
        """From the bottom to the top. For a failed run, the stack at the failure."""

    @property
    @abstractmethod
    def without_model(self) -> int:
        """Lines that needed no model."""

    @property
    @abstractmethod
    def line_count(self) -> int:
        """How many lines were executed."""

    @abstractmethod
    def listing(self, frame: StackFrame) -> Listing:
        """The lines of the playbook that a frame executes."""

    @abstractmethod
    def typed(self) -> Mapping[str, Sequence[Variable]]:
        """The variables, by agent."""

    @abstractmethod
    def changes(self, entry: Entry) -> Sequence[str]:
        """What an entry changed in line, stack and variables, as lines of text. The entry was seen before."""

    @abstractmethod
    def speaker(self, asked: Entry) -> str | None:
        """The agent whose words to the user are in the reply to this model call; None if the reply holds no such words."""

    @abstractmethod
    def spoken(self, reply: str) -> Sequence[str]:
        """What the beginning of such a reply says to the user."""

    @abstractmethod
    def position(self, path: str) -> str:
        """What is being executed on a branch, as in `line 02 of Main`; empty if that is unknown."""

    @abstractmethod
    def as_object(self) -> dict[str, Any]:
        """All of it as plain values."""

    @abstractmethod
    def program_run(self) -> ProgramRun:
        """All of it as frozen values."""

    @property
    def top(self) -> StackFrame | None:
        return self.stack[-1] if self.stack else None

    @property
    def messages(self) -> list[str]:
        """What was said to the user."""
        return [one.text for one in self.said if one.by == "program" and one.to == "user"]


class Update(NamedTuple):
    """What an event adds to a projection."""

    said: Sequence[Said] = ()
    """What is said now, each thing once, as soon as it is certain."""
    published: Sequence[PublishedEvent] = ()
    """The same event under the names of the format: often none, or several."""
    panels: Sequence[str] = ()
    """The names of the panels whose content changed."""


NOTHING = Update()


class Projection:
    """A run as its playbook's format sees it. It must see all events of the run, in order.

    These defaults are for a dialect whose format has no terms of its own.
    """

    conversation: Conversation | None = None
    """For a dialect whose runs talk with a person."""
    order: Sequence[str] = ()
    """The labels of the steps, if a page shows each step once, in this order, however often it runs; otherwise a page
    shows each visit of a step."""
    types: Mapping[str, str] = {}
    """The types of the run's variables, by name, as far as they are known."""

    def see(self, event: RunEvent) -> Update:
        return NOTHING

    def values(self) -> dict[str, Any] | None:
        """The result of each step, by label; None if the values that the run sets are all there is."""
        return None

    def trace(self) -> dict[str, Any] | None:
        """The fields `trace` and `results` as the format has them; None if it has none."""
        return None

    def state(self, row: RunRow, waits: Iterable[WaitRow], text: str, settings: Settings) -> dict[str, Any] | None:
        """The state of the run as the format exports it; None if it has no such state.

        `waits` are what the run waits for, `text` is the playbook that it started from.
        """
        return None

    def panel(self, name: str) -> PanelContent | None:
        """The current content of a panel that the dialect declares; None if the panel shows only what every run has."""
        return None


def seen(projection: Projection, events: Iterable[RunEvent]) -> Projection:
    """The projection after these events."""
    for event in events:
        projection.see(event)
    return projection

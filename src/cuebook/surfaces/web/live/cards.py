"""Cards, one for each visit of a step on a run's page, and the time that steps worked and waited. No HTML here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from zlib import crc32

from cuebook.kernel.context import Text
from cuebook.kernel.events import Driven, Forked, RunFinished, Suspended
from cuebook.kernel.fold.state import NOT_REACHED
from cuebook.kernel.journal import ROOT, Entry, parent_key
from cuebook.kernel.run import StepRow, WaitRow
from cuebook.service.runs.tool_calls import Plan, ToolUse
from cuebook.service.runs.views import Answered, only_answered

Key = tuple[str, str, int]
BUSY = ("running", "tool_call")
"""The statuses of a step that is working."""


@dataclass(eq=False)
class Card:
    """One visit of a step."""

    row: StepRow
    key: str
    before: str = ""
    """The key of the card before it, in the order of all steps."""
    parent: Card | None = None
    """The card of the step that it is a sub-step of."""
    inner: list[Card] = field(default_factory=list)
    """The cards of its sub-steps."""
    follows: str = ""
    """The key of the card before it among those with the same parent."""
    chosen: dict[str, None] = field(default_factory=dict)
    """The branches that were chosen in it, and why."""
    attempt: tuple[int, int, int] | None = None
    """The last repeated model call: the record of its note, the number of the attempt, and how many there may be."""
    calls: dict[str, ToolUse] = field(default_factory=dict)
    """The tool calls of its models, by their keys."""
    hidden_calls: int = 0
    """How many earlier ones are not shown."""
    plan: Plan | None = None
    """The plan that its model keeps."""
    output: Text | None = None
    texts: dict[int, str] = field(default_factory=dict)
    """The finished replies of models, by the record of each call."""
    prompts: dict[int, Text] = field(default_factory=dict)
    """The prompts of these calls."""
    notes: list[tuple[int, str]] = field(default_factory=list)
    """Warnings and notes for people, each with its record."""
    answers: list[tuple[int, Answered]] = field(default_factory=list)
    """Questions and answers, each with its record."""
    passed_on: str = ""
    """The label of the inner step whose output it passes on, and which shows that output."""
    held: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Values to show when the step has ended, each with its record."""
    waits: dict[str, WaitRow] = field(default_factory=dict)
    """Its open waits."""
    errors: Text | None = None
    """The error output of its failed command."""
    planned: bool = False
    cost_before: float = 0.0
    """The cost of earlier visits, which are no longer shown."""
    cost_kept: float = 0.0
    """The cost of work that this run keeps from its parent."""
    begins: float = 0.0
    """How long the run had been driven when the step started, and when it ended."""
    ends: float | None = None
    stopped: str = ""
    """How it ended together with its run: cancelled, denied or expired."""

    @property
    def status(self) -> str:
        """The status of its row, or how it was stopped; `paused` if the run is waiting at its breakpoint."""
        if self.stopped:
            return self.stopped
        if any(wait.kind == "breakpoint" for wait in self.waits.values()):
            return "paused"
        return self.row.status

    @property
    def is_unreached(self) -> bool:
        """Whether the run has not reached it, or ended before it did."""
        row = self.row
        return not row.seq and (
            row.status == "pending" or (row.status == "skipped" and row.reason in ("", NOT_REACHED))
        )

    @property
    def before_text(self) -> str:
        """What precedes the text of its next model call: the replies so far."""
        return f"{self.tail}\n\n" if self.tail else ""

    @property
    def in_loop(self) -> bool:
        """Whether the step belongs to an item of a loop."""
        return self.row.path != ROOT and self.row.label.endswith("]")

    @property
    def only_answered(self) -> bool:
        """Whether its output is an answer, which is shown with its question."""
        return only_answered(self.row, self.output, [answered for _, answered in self.answers])

    @property
    def seconds(self) -> float:
        """How long the run was driven in this visit; 0 while it is open or if it was cut off."""
        return self.row.totals.seconds if self.row.finished is not None and not self.row.cut else 0.0

    @property
    def cost(self) -> float:
        return self.cost_before + self.row.totals.cost - self.cost_kept

    @property
    def tail(self) -> str:
        """The finished replies of models so far."""
        return "\n\n".join(text for text in self.texts.values() if text)

    def rewind(self, seq: int) -> bool:
        """Remove everything added from a record on; return whether there was anything."""
        void = self.row.seq == 0 or any(one >= seq for one in self.texts) or self.output is not None
        self.texts = {one: text for one, text in self.texts.items() if one < seq}
        self.prompts = {one: text for one, text in self.prompts.items() if one < seq}
        self.notes = [(one, words) for one, words in self.notes if one < seq]
        self.answers = [(one, answered) for one, answered in self.answers if one < seq]
        self.held = {name: (one, value) for name, (one, value) in self.held.items() if one < seq}
        if self.attempt is not None and self.attempt[0] >= seq:
            self.attempt = None
        self.waits.clear()
        if void and (self.row.finished is None or self.row.seq == 0):
            self.output, self.passed_on = None, ""
        if self.errors is not None and (self.row.seq == 0 or self.row.failed_at >= seq):
            self.errors, void = None, True
        return void


class WorkTime:
    """How long each step worked and waited, with every second counted once.

    A second in which several steps work is shared among them; a second in which no process drives the run is waiting.
    """

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds for which the run was driven."""
        self.worked: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self._counted: dict[str, float] | None = None
        """Where time is counted now; None before the run is first driven and after its end."""
        self._at = 0.0

    @property
    def waits(self) -> bool:
        return self._counted is self.waited

    def advance(self, at: float, steps: Sequence[str]) -> None:
        """Count the time until now for the steps that worked or waited during it."""
        passed, self._at = max(0.0, at - self._at), at
        if self._counted is None:
            return
        if not self.waits:
            self.now += passed
        for step in steps:
            self._counted[step] = self._counted.get(step, 0.0) + passed / len(steps)

    def see(self, entry: Entry) -> None:
        match entry.event:
            case Driven():
                self._counted = self.worked
            case Suspended():
                self._counted = self.waited
            case RunFinished():
                self._counted = None
            case Forked():  # the parent's time does not count
                self.worked, self.waited, self._counted = {}, {}, None
            case _:
                pass


def slug(path: str, label: str, visit: int) -> str:
    """The part of ids and URLs that identifies a step: its label, with its visit and branch only where needed."""
    return _plain(label) + (f":{visit}" if visit > 1 else "") + (f"@{crc32(path.encode()):08x}" if path else "")


def _plain(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", ".")


def within(path: str, key: Key) -> bool:
    """Whether a branch was started in this visit of a step, or below it."""
    while path != ROOT:
        path, label, visit, _ = parent_key(path)
        if (path, label, visit) == key:
            return True
    return False


def inside(inner: StepRow, outer: StepRow) -> bool:
    """Whether a step was started within another step: on the same branch after it, or on a branch of it."""
    return within(inner.path, outer.key) or (inner.path == outer.path and inner.seq > outer.seq)

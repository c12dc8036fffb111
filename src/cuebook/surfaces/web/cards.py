"""A card: one visit of a step as a page shows it, and which step stands in which. It knows no HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from zlib import crc32

from cuebook.kernel.context import Text
from cuebook.kernel.journal import ROOT, parent_key
from cuebook.kernel.run import StepRow, WaitRow
from cuebook.views import Answered, only_answered

Key = tuple[str, str, int]
BUSY = ("running", "tool_call")
"""How a step stands in which something is done."""


@dataclass(eq=False)
class Card:
    """One visit of a step."""

    row: StepRow
    key: str
    before: str = ""
    """The key of the card that it stands after."""
    output: Text | None = None
    texts: dict[int, str] = field(default_factory=dict)
    """What models said in it, by the record of each call; without those under way."""
    prompts: dict[int, Text] = field(default_factory=dict)
    """What they were asked."""
    notes: list[tuple[int, str]] = field(default_factory=list)
    """Warnings and what a person should know, each with its record."""
    answers: list[tuple[int, Answered]] = field(default_factory=list)
    """What it asked and what was answered, each with its record."""
    passed_on: str = ""
    """The label of the step within it whose output is its own, and is shown there."""
    held: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Values that are told when the step is over, each with its record."""
    waits: dict[str, WaitRow] = field(default_factory=dict)
    """What it waits for."""
    errors: Text | None = None
    """What its command said of why it failed."""
    planned: bool = False
    cost_before: float = 0.0
    """Of earlier visits that are shown no more."""
    cost_kept: float = 0.0
    """Of what another run had done before, which this one keeps."""
    begins: float = 0.0
    """How long the run had been driven when it began, and when it was over."""
    ends: float | None = None
    stopped: str = ""
    """How it was ended with its run, where it did not fail by itself: cancelled, denied, expired."""

    @property
    def status(self) -> str:
        """As its row has it, or how it was stopped; one that is over and at whose breakpoint the run waits is paused."""
        if self.stopped:
            return self.stopped
        if any(wait.kind == "breakpoint" for wait in self.waits.values()):
            return "paused"
        return self.row.status

    @property
    def only_answered(self) -> bool:
        """Whether its output is an answer, which is shown with its question."""
        return only_answered(self.row, self.output, [answered for _, answered in self.answers])

    @property
    def seconds(self) -> float:
        """For which the run was driven in this visit, once it is over; 0 of one that was cut off."""
        return self.row.totals.seconds if self.row.finished is not None and not self.row.cut else 0.0

    @property
    def cost(self) -> float:
        return self.cost_before + self.row.totals.cost - self.cost_kept

    @property
    def tail(self) -> str:
        """What models have said in it so far, but for what is under way."""
        return "\n\n".join(text for text in self.texts.values() if text)

    def rewind(self, seq: int) -> bool:
        """Takes back what came into it from a record on; whether something did."""
        void = self.row.seq == 0 or any(one >= seq for one in self.texts) or self.output is not None
        self.texts = {one: text for one, text in self.texts.items() if one < seq}
        self.prompts = {one: text for one, text in self.prompts.items() if one < seq}
        self.notes = [(one, words) for one, words in self.notes if one < seq]
        self.answers = [(one, answered) for one, answered in self.answers if one < seq]
        self.held = {name: (one, value) for name, (one, value) in self.held.items() if one < seq}
        self.waits.clear()
        if void and (self.row.finished is None or self.row.seq == 0):
            self.output, self.passed_on = None, ""
        if self.errors is not None and (self.row.seq == 0 or self.row.failed_at >= seq):
            self.errors, void = None, True
        return void


def slug(path: str, label: str, visit: int) -> str:
    """A step's part in ids and addresses: its label, and more only where that is not enough."""
    return _plain(label) + (f":{visit}" if visit > 1 else "") + (f"@{crc32(path.encode()):08x}" if path else "")


def _plain(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", ".")


def within(path: str, key: Key) -> bool:
    """Whether a branch was begun in this visit of a step, or below it."""
    while path != ROOT:
        path, label, visit, _ = parent_key(path)
        if (path, label, visit) == key:
            return True
    return False


def inside(inner: StepRow, outer: StepRow) -> bool:
    """Whether a step was begun in another: on the same branch after it, or on a branch of it."""
    return within(inner.path, outer.key) or (inner.path == outer.path and inner.seq > outer.seq)

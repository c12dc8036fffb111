"""A run: its settings, and its row, its steps and its waits as a store keeps them. `tally` makes them from its journal."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from cuebook.kernel.events import ENDED, RunStatus, StepStatus, WaitKind
from cuebook.kernel.journal import Place
from cuebook.kernel.outcomes import CostOrigin, Failed, Usage


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run may use before it pauses and asks. None means no limit."""

    money: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    steps: int | None = None


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the caller chose for a run; edits on resume or fork replace single fields."""

    model: str = ""
    """`provider/model` used where the playbook names none, or everywhere: see `model_wins`."""
    max_tokens: int | None = None
    temperature: float | None = None
    breakpoints: tuple[str, ...] = ()
    budget: Budget = Budget()
    unknown_cost: bool = False
    """Whether a model without a known price may be asked under a money budget."""
    pause_expiry: float | None = None
    """Seconds after which a pause or question without an expiry of its own expires; none means never."""
    answers: dict[str, str | tuple[str, ...]] = {}
    """Answers given beforehand, by the label of a question or of a step around it. Several are given in turn."""
    unattended: bool = False
    """Whether nobody is there to ask: questions are answered by their defaults, and breakpoints are passed."""
    workspace: str = ""
    """The folder that the run works in; it does nothing in another. Empty where it was not said."""
    folder: str = ""
    """Where the playbook's own files are. Empty where it came without a place: then they are the workspace's."""
    from_text: bool = False
    """Whether the playbook came as a text, and is no file of that folder."""
    options: dict[str, Any] = {}
    """What the caller chose for the dialect, by name. It cannot be changed later: the program depends on it."""
    model_wins: bool = False
    """Whether the model was chosen for this run: then it is asked also where the playbook names another."""

    def edited(self, edits: dict[str, Any]) -> Settings:
        if not edits:
            return self
        chosen = {"model_wins": True} if edits.get("model") and self.model else {}  # another one than at the start
        return msgspec.convert({**msgspec.to_builtins(self), **chosen, **edits}, Settings)

    def asked(self, named: str | None) -> str:
        """The model that is asked where the playbook names this one, or none."""
        return self.model if not named or (self.model_wins and self.model) else named


class Totals(msgspec.Struct, gc=False):
    """What a run has used so far, whatever became of it: a voided call is paid all the same."""

    steps: int = 0
    """Of the playbook, as planned; 0 where nothing was planned."""
    branched: int = 0
    """Those among them that stand on branches."""
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    """Steps of the playbook, each once: without sub-steps and further visits."""
    steps_done: int = 0
    """Completed visits, of sub-steps as well: what a budget of steps limits."""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unknown_costs: int = 0
    """Model calls whose cost nobody knows."""
    seconds: float = 0.0
    """Time in which the run was driven; waiting is free."""

    def kept(self) -> Totals:
        """What a fork keeps of its parent's: how far it was, and nothing of what that cost."""
        names = ("steps", "branched", "completed", "failed", "skipped", "steps_done")
        return Totals(**{name: getattr(self, name) for name in names})

    def add(self, usage: Usage) -> None:
        self.calls += 1
        self.input += usage.input
        self.output += usage.output
        self.cached += usage.cached
        self.reasoning += usage.reasoning
        if usage.cost is None:
            self.unknown_costs += 1
        else:
            self.cost += usage.cost

    @property
    def tokens(self) -> int:
        return self.input + self.output


class StepCount(msgspec.Struct, frozen=True):
    """How far a run is, in steps of its playbook."""

    done: int
    total: int
    skipped: int
    failed: int

    def words(self, unit: str = "") -> str:
        """As people read it: `5 of 7 steps, 2 skipped`."""
        counts = [f"{self.done:,} of {self.total:,}{f' {unit}' if unit else ''}"]
        counts += [
            f"{number:,} {word}" for number, word in ((self.failed, "failed"), (self.skipped, "skipped")) if number
        ]
        return ", ".join(counts)


class RunRow(msgspec.Struct, kw_only=True, gc=False):
    """A run at a glance."""

    id: str
    tenant: str
    owner: str
    dialect: str
    interpreter: int
    """The version of the dialect's interpreter that the run started with."""
    playbook: str
    """The digest of the exact text it started from."""
    name: str
    created: float
    updated: float
    status: RunStatus = "pending"
    reason: str = ""
    step: str = ""
    model: str = ""
    totals: Totals = msgspec.field(default_factory=Totals)
    error: Failed | None = None
    parent: str = ""
    parent_seq: int = 0
    """A fork's records begin here; those before are the parent's."""
    epoch: int = 0
    driver: str = ""

    @property
    def count(self) -> StepCount:
        """The one way in which steps are counted. What an ended run has not come to, it has skipped."""
        totals = self.totals
        reached = totals.completed + totals.failed
        total = max(totals.steps, reached + totals.skipped)
        ended = self.status in ENDED
        return StepCount(totals.completed, total, total - reached if ended else totals.skipped, totals.failed)


class StepRow(msgspec.Struct, gc=False):
    """One visit of a step."""

    path: str
    label: str
    visit: int
    title: str = ""
    status: StepStatus = "pending"
    reason: str = ""
    seq: int = 0
    """Where the visit begins in the journal: what restart and fork refer to."""
    position: int = 0
    """Among the steps that were planned."""
    counted: bool = False
    """Whether it is a step of the playbook, visited for the first time; no sub-step and no repetition."""
    cut: bool = False
    """It ended with its run or branch, not by itself: a retry may take it up again."""
    failed_at: int = 0
    """The record that says it failed: a retry that takes that back takes the step up again."""
    started: float | None = None
    finished: float | None = None
    since: float | None = None
    """From when its time is counted on; None where the run is at rest, or the step is over."""
    model: str = ""
    finish: str = ""
    origin: CostOrigin = "reported"
    """Where its cost comes from: the least certain of its calls counts."""
    totals: Totals = msgspec.field(default_factory=Totals)

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.path, self.label, self.visit)

    @property
    def name(self) -> str:
        """What a person calls it: its label, and from the second visit on which one it is."""
        return self.label if self.visit <= 1 else f"{self.label}#{self.visit}"


def stopped(run: RunRow, step: StepRow) -> str:
    """How a step was ended with its run, where it did not fail by itself: cancelled, denied or expired. Otherwise empty."""
    if not (step.cut and step.status == "failed" and run.status in ("cancelled", "expired")):
        return ""
    return "denied" if run.error is not None and run.error.code == "denied" else run.status


class WaitRow(msgspec.Struct, kw_only=True):
    """Something a run waits for."""

    id: str
    run: str
    tenant: str
    owner: str
    place: Place
    kind: WaitKind
    prompt: str
    purpose: str
    type: str = ""
    options: tuple[str, ...] = ()
    default: str | None = None
    details: dict[str, Any] = {}
    opened: float = 0.0
    expires: float | None = None
    state: Literal["open", "answered", "expired", "cancelled", "closed"] = "open"
    answer: dict[str, Any] = {}
    by: str = ""


class Signal(msgspec.Struct, frozen=True):
    """Something that reaches a run from outside. Anyone may send one; only the run's driver takes it."""

    run: str
    kind: Literal["cancel", "retry", "message", "late"]
    payload: dict[str, Any] = {}
    by: str = ""
    id: int = 0


_Row = TypeVar("_Row", RunRow, StepRow)


def copy_row(row: _Row) -> _Row:
    return msgspec.structs.replace(row, totals=msgspec.structs.replace(row.totals))

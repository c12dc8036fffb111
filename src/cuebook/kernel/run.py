"""A run: its settings, and its row, steps and waits as stored. `fold.state` computes them from the journal."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeVar

import msgspec

from cuebook.kernel.effects import Effort
from cuebook.kernel.events import ENDED, RunStatus, StepStatus, WaitKind
from cuebook.kernel.journal import Place
from cuebook.kernel.outcomes import CostOrigin, Failed, Usage


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits that a run may reach before it pauses and asks. None means no limit."""

    money: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    steps: int | None = None


ID_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"
ID_LENGTH = 12


def id_from(named: str) -> str:
    """The id of a run that must exist only once, from a text that names it."""
    number = int.from_bytes(hashlib.sha256(named.encode()).digest())
    letters = []
    for _ in range(ID_LENGTH):
        number, letter = divmod(number, len(ID_LETTERS))
        letters.append(ID_LETTERS[letter])
    return "".join(letters)


HOST = "host"
"""The model of runs whose model calls are answered by a connected assistant."""


WORKTREE = "worktree"
"""The option of runs that work in their own git worktree. Its value in a run's settings is the worktree's name."""


CHANGES_STEP, MERGE_STEP = "worktree.changes", "worktree.merge"
"""The steps of such a run after the last step of its playbook."""
BRANCH_MERGE_STEP = "worktree.merge:"
"""How the steps begin that merge the worktrees of parallel branches into that of the run; the branch's first step follows."""


def is_worktree_step(label: str) -> bool:
    """Whether a step belongs to the run's worktrees and not to its playbook."""
    return label in (CHANGES_STEP, MERGE_STEP) or label.startswith(BRANCH_MERGE_STEP)


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings that the caller chose for a run; edits on resume or fork replace individual fields."""

    model: str = ""
    """`provider/model` for playbooks that do not specify a model, or for all playbooks; see `model_wins`."""
    max_tokens: int | None = None
    temperature: float | None = None
    effort: Effort | None = None
    """How much models should reason; None means their own default."""
    breakpoints: tuple[str, ...] = ()
    budget: Budget = Budget()
    unknown_cost: bool = False
    """Whether a model without a known price may be called under a money budget."""
    pause_expiry: float | None = None
    """Seconds after which a pause or question without its own expiry expires; None means never."""
    answers: dict[str, str | tuple[str, ...]] = {}
    """Answers given in advance, by the label of a question or of an enclosing step. Several answers are used in
    turn."""
    unattended: bool = False
    """Whether the run is unattended: questions get their defaults, and breakpoints are skipped."""
    workspace: str = ""
    """The only folder that the run works in; empty if unspecified."""
    workspace_label: str = ""
    """The name under which machines offer this workspace; if empty, only its path counts."""
    folder: str = ""
    """The folder of the playbook's own files; empty if they are in the workspace."""
    from_text: bool = False
    """Whether the playbook was passed as text and is not a file in that folder."""
    options: dict[str, Any] = {}
    """The options for the dialect, by name. They cannot be changed later: the program depends on them."""
    model_wins: bool = False
    """Whether the model was chosen for this run and so replaces the playbook's models."""

    def edited(self, edits: dict[str, Any]) -> Settings:
        if not edits:
            return self
        chosen = {"model_wins": True} if edits.get("model") and self.model else {}  # not the initial model
        return msgspec.convert({**msgspec.to_builtins(self), **chosen, **edits}, Settings)

    def asked(self, named: str | None) -> str:
        """The model to call if the playbook specifies this model, or none."""
        return self.model if not named or (self.model_wins and self.model) else named


class Totals(msgspec.Struct, gc=False, omit_defaults=True):
    """A run's usage so far, including voided calls, which also cost money."""

    steps: int = 0
    """The number of planned steps of the playbook; 0 if nothing was planned."""
    branched: int = 0
    """How many of these steps are on branches."""
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    """Completed playbook steps, each counted once, not counting sub-steps or repeated visits."""
    steps_done: int = 0
    """Completed visits, including sub-steps. A step budget limits this number."""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unknown_costs: int = 0
    """Model calls whose cost is unknown."""
    seconds: float = 0.0
    """How long the run was driven, without waits."""

    def kept(self) -> Totals:
        """The totals of a fork at its start: the parent's progress without its cost."""
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


CHILD_TOTALS = ("steps_done", "calls", "input", "output", "cached", "reasoning", "cost", "unknown_costs")
"""The totals of a child run that are added to its parent's."""


class StepCount(msgspec.Struct, frozen=True):
    """The progress of a run, in steps of its playbook."""

    done: int
    total: int
    skipped: int
    failed: int

    def words(self, unit: str = "") -> str:
        """The count in words: `5 of 7 steps, 2 skipped`."""
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
    """The digest of the exact source it started from."""
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
    """Where a fork's records begin; earlier records are the parent's."""
    epoch: int = 0
    driver: str = ""
    workspace: str = ""
    """The label or the folder of its workspace; empty if it has none."""
    needs: tuple[str, ...] = ()
    """The other capabilities that its next effects need."""
    caller: str = ""
    """Of a child run: the run that started it, which also drives it. Its questions belong to the outermost run."""
    trigger: str = ""
    """What started it, such as `schedule:nightly`; empty if a person or a program did. See `kernel.triggers`."""

    @property
    def count(self) -> StepCount:
        """The only function that counts steps. A finished run has skipped the steps that it did not reach."""
        totals = self.totals
        reached = totals.completed + totals.failed
        total = max(totals.steps, reached + totals.skipped)
        ended = self.status in ENDED
        return StepCount(totals.completed, total, total - reached if ended else totals.skipped, totals.failed)


class StepRow(msgspec.Struct, gc=False, omit_defaults=True):
    """One visit to a step."""

    path: str
    label: str
    visit: int
    title: str = ""
    status: StepStatus = "pending"
    reason: str = ""
    seq: int = 0
    """Where the visit begins in the journal; restart and fork refer to it."""
    position: int = 0
    """Its position among the planned steps."""
    counted: bool = False
    """Whether this is the first visit to a step of the playbook, not a sub-step or a repetition."""
    cut: bool = False
    """Whether it ended only because its run or branch ended; a retry may continue it."""
    failed_at: int = 0
    """The record of its failure. A retry that voids this record continues the step."""
    started: float | None = None
    finished: float | None = None
    since: float | None = None
    """When its time began to be counted; None if the run is not being driven or the step is over."""
    model: str = ""
    finish: str = ""
    origin: CostOrigin = "reported"
    """The origin of its cost: the origin of the least certain call."""
    totals: Totals = msgspec.field(default_factory=Totals)

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.path, self.label, self.visit)

    @property
    def name(self) -> str:
        """Its display name: the label and, from the second visit on, the number of the visit."""
        return self.label if self.visit <= 1 else f"{self.label}#{self.visit}"


def stopped(run: RunRow, step: StepRow) -> str:
    """Why a step that did not fail on its own ended: cancelled, denied or expired; empty for other steps."""
    if not (step.cut and step.status == "failed" and run.status in ("cancelled", "expired")):
        return ""
    return "denied" if run.error is not None and run.error.code == "denied" else run.status


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The right of one assistant to answer a wait until a moment, and what it was refused so far."""

    claim: str
    by: str
    since: float
    """When this assistant took it."""
    until: float
    """After this moment another assistant may take it over. Until one does, the claim stays valid."""
    through: str = ""
    """The assistant's program."""
    refused: tuple[str, ...] = ()
    """Why results were refused, including those of assistants that had it before."""


class Asked(msgspec.Struct, frozen=True):
    """Whom a wait names, in its details: by the rule of an approval, or as those who may answer a question."""

    rule: dict[str, Any] = {}
    by: Any = ()


class WaitRow(msgspec.Struct, kw_only=True):
    """Something a run is waiting for."""

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
    lease: Lease | None = None
    """The assistant that works on it, if it is a wait of the kind `model`. Not part of the journal."""


class WaitMark(msgspec.Struct, frozen=True):
    """As much of a wait as says who sees it. Its JSON is that of the wait, of which the rest is not read."""

    id: str
    run: str
    owner: str
    details: Asked = Asked()


class RunOverride(msgspec.Struct, frozen=True):
    """An approval in advance for the rest of one run, given with the approval of one of its actions."""

    id: str
    domain: str
    pattern: str
    by: str
    created: float


FOR_RUN = "for_run"
"""Key in the answer to an approval: what it also allows for the rest of the run, by id, domain and pattern."""


def overrides_in(answer: dict[str, Any], by: str, at: float) -> tuple[RunOverride, ...]:
    """The overrides that an answer to an approval gives to its run."""
    return tuple(RunOverride(one["id"], one["domain"], one["pattern"], by, at) for one in answer.get(FOR_RUN, ()))


class Signal(msgspec.Struct, frozen=True):
    """Something that reaches a run from outside. Anyone may send a signal; only the run's driver consumes it."""

    run: str
    kind: Literal["cancel", "retry", "message", "late"]
    payload: dict[str, Any] = {}
    by: str = ""
    id: int = 0


_Row = TypeVar("_Row", RunRow, StepRow)


def copy_row(row: _Row) -> _Row:
    return msgspec.structs.replace(row, totals=msgspec.structs.replace(row.totals))

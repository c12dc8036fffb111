"""The fold: computes a run's row and steps from the entries of its journal, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from copy import copy
from typing import Any

import msgspec

from cuebook.kernel.capabilities import workspace_of
from cuebook.kernel.effects import CallTool
from cuebook.kernel.events import (
    KEY_REJECTED,
    STATUS_OF_WAIT,
    AnyEvent,
    BranchFinished,
    Driven,
    Forked,
    ModelAsked,
    Moved,
    Noted,
    Performed,
    Performing,
    Planned,
    PlannedStep,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
    StepStatus,
    Suspended,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import ROOT, Entry, Place, parent_key, same_line
from cuebook.kernel.outcomes import CHILD, USED, CostOrigin, Failed, PlaybookResult, Reply, Usage
from cuebook.kernel.run import HOST, RunRow, StepRow, Totals, copy_row
from cuebook.kernel.spending import Spent

_ORIGINS: tuple[CostOrigin, ...] = ("reported", "estimated", "unknown")


_TIMED: frozenset[type[AnyEvent]] = frozenset({Driven, Forked, Moved, Suspended, RunFinished})
"""The events that begin or end a drive, or happen outside one."""


class Stopwatch:
    """Measures how long a run was driven. A drive that ended normally recorded its duration; if it was interrupted or
    killed, the time up to its last entry counts.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = self.before = seconds
        """In total, and before the current drive."""
        self._began: float | None = None

    def see(self, entry: Entry) -> float:
        kind = type(entry.event)
        if kind not in _TIMED:
            if self._began is not None:
                seconds = self.before + entry.at - self._began
                if seconds > self.seconds:  # clocks may be set back
                    self.seconds = seconds
        elif kind is Driven:
            self.before, self._began = self.seconds, entry.at
        elif kind is Forked:  # the parent's time does not count for the fork
            self.seconds, self.before, self._began = 0.0, 0.0, None
        elif kind is Moved:  # the last drive was interrupted before it
            self.before, self._began = self.seconds, None
        else:
            self.seconds = self.before = self.before + entry.event.seconds  # type: ignore[union-attr]
            self._began = None
        return self.seconds

    def add(self, seconds: float) -> None:
        """Counts time that passed while the run was not being driven."""
        self.seconds += seconds
        self.before += seconds


def before_first_record(row: RunRow) -> RunRow:
    """The row of a run as it was before its first record. Only what identifies the run stays."""
    return msgspec.structs.replace(
        row,
        status="pending",
        reason="",
        step="",
        model="",
        workspace="",
        needs=(),
        totals=Totals(),
        error=None,
        updated=row.created,
    )


_FAILED = ("failed", "in_doubt")
NOT_REACHED = "not reached"
"""The reason for steps that the run did not reach."""


class RunState:
    """Folds entries into a run's row and steps, one at a time, at a cost that does not grow with the run.

    It remembers only open and pending steps; the store writes changed rows together with the records that changed them.
    """

    def __init__(self, row: RunRow, open_steps: list[StepRow] | None = None) -> None:
        self.row = row
        self.watch = Stopwatch(row.totals.seconds)
        self.open: dict[tuple[str, str, int], StepRow] = {}
        self.planned: dict[tuple[str, str, int], StepRow] = {}
        self._calls: dict[Place, int | None] = {}
        """Model calls in progress, with the number of earlier attempts that were lost; None for free models, whose cost is
        never unknown.
        """
        self._begun: dict[Place, tuple[float, str, bool]] = {}
        """When each of them began, its model, and whether its cost counts as unknown until it ends."""
        self.on_spent: Callable[[Spent], None] | None = None
        """Called with what calls use, by the writer of the records."""
        self.cut: list[StepRow] = []
        self._dropped: list[tuple[int, str]] = []
        self._done: list[tuple[int, str, StepStatus, bool]] = []
        """Where finished steps began, how they ended and whether they count; a rewind may void some of them."""
        self._row_changed = False
        self._steps_changed: dict[tuple[str, str, int], StepRow] = {}
        self.begun: Collection[str] = ()
        """Of a fork with a changed text: the steps of its plan that began in its parent."""
        for step in open_steps or []:
            self._remember(step)

    def apply(self, entry: Entry) -> None:
        fold = _FOLDS.get(type(entry.event))
        if fold is not None:
            fold(self, entry, entry.event)

    def know_done(self, steps: Iterable[StepRow]) -> None:
        """Sets the steps that were already finished: a rewind may void some of them."""
        over = [
            step for step in steps if step.seq and step.finished is not None and not step.cut and not step.failed_at
        ]
        self._done = [(step.seq, step.path, step.status, step.counted) for step in over]

    def saved(self) -> Callable[[], None]:
        """A snapshot to restore if an entry is not written after all."""
        row, watch, steps = copy_row(self.row), copy(self.watch), [copy_row(step) for step in self.open.values()]

        def restore() -> None:
            self.row, self.watch, self.open = row, watch, {step.key: step for step in steps}

        return restore

    @property
    def changed(self) -> bool:
        return self._row_changed or bool(self._steps_changed)

    def take_changes(self) -> tuple[RunRow | None, list[StepRow], list[tuple[int, str]]]:
        """The row and steps that changed since the last call, and the rewinds to apply.

        They are copies: entries that are folded while these are being written belong to later records.
        """
        row = copy_row(self.row) if self._row_changed else None
        steps = [copy_row(step) for step in self._steps_changed.values()]
        changes = (row, steps, self._dropped)
        self._row_changed, self._steps_changed, self._dropped = False, {}, []
        return changes

    def step_at(self, place: Place) -> StepRow | None:
        """The innermost open step that contains this place."""
        path, label, visit = place.path, place.step, place.visit
        while True:
            step = self.open.get((path, label, visit))
            if step is not None or path == ROOT:
                return step
            path, label, visit, _ = parent_key(path)

    # --- one method for each kind of entry that changes a row ---

    def _planned(self, entry: Entry, event: Planned) -> None:
        self._touch(entry)
        self._plan(entry.place.path, event.steps)
        branched = sum(step.branched for step in event.steps)
        self.row.totals.steps = max(self.row.totals.steps, len(self.planned) + branched)
        self.row.totals.branched = branched

    def _plan(self, path: str, steps: Iterable[PlannedStep], begun: Collection[str] = ()) -> None:
        visits: Counter[str] = Counter()
        for position, planned in enumerate(steps):
            if planned.branched or planned.label in begun:
                continue
            visits[planned.label] += 1
            step = StepRow(path, planned.label, visits[planned.label], planned.title, position=position, counted=True)
            self._remember(step)
            self._steps_changed[step.key] = step

    def _step_started(self, entry: Entry, event: StepStarted) -> None:
        self._touch(entry)
        place = entry.place
        step = self._planned_or_new(place, event.label)
        step.title = event.title or step.title
        step.status, step.seq, step.started, step.since = "running", entry.seq, entry.at, entry.at
        self.row.step = event.label
        self._remember(step)
        self._steps_changed[step.key] = step

    def _step_finished(self, entry: Entry, event: StepFinished) -> None:
        self._touch(entry)
        step = self.open.pop((entry.place.path, event.label, entry.place.visit), None)
        if step is None:
            return
        step.status, step.reason, step.finished = event.status, event.reason, entry.at
        _rest(step, entry.at)
        if event.status in _FAILED:
            step.failed_at = entry.seq
            self.cut.append(step)
        self._end(step)
        self._steps_changed[step.key] = step

    def _step_skipped(self, entry: Entry, event: StepSkipped) -> None:
        step = self._planned_or_new(entry.place, event.label)
        step.title, step.status, step.reason = event.title or step.title, "skipped", event.reason
        step.seq, step.finished = entry.seq, entry.at
        self._end(step)
        self._touch(entry)
        self._steps_changed[step.key] = step

    def _planned_or_new(self, place: Place, label: str) -> StepRow:
        key = (place.path, label, place.visit)
        planned = self.planned.pop(key, None)
        return planned if planned is not None else StepRow(*key, counted=self._counts(*key))

    def _counts(self, path: str, label: str, visit: int) -> bool:
        """Whether a step that begins here is one of the playbook's steps, not a sub-step or a repetition."""
        if any(step.path == path for step in self.open.values()) or (path != ROOT and not self.row.totals.branched):
            return False
        if visit <= 1:
            return True
        before = next((one for one in self.cut if one.counted and (one.path, one.label) == (path, label)), None)
        if before is None:
            return False
        before.counted = False  # it failed earlier; its new result counts
        self._count_end(before.status, -1)
        self._steps_changed[before.key] = before
        return True

    def _end(self, step: StepRow) -> None:
        """Counts a finished step."""
        if step.status == "completed":
            self.row.totals.steps_done += 1
        if step.counted:
            self._count_end(step.status)
        if step.status not in _FAILED:  # a retry continues failed steps
            self._done.append((step.seq, step.path, step.status, step.counted))

    def _count_end(self, status: StepStatus, by: int = 1) -> None:
        totals = self.row.totals
        if status == "completed":
            totals.completed += by
        elif status == "skipped":
            totals.skipped += by
        else:
            totals.failed += by

    def _started(self, entry: Entry, event: RunStarted) -> None:
        self._touch(entry)
        self.row.model = str(event.settings.get("model", ""))
        self.row.workspace = workspace_of(event.settings)

    def _moved(self, entry: Entry, event: Moved) -> None:
        self._touch(entry)
        self.row.workspace = event.workspace_label or event.workspace

    def _forked(self, entry: Entry, event: Forked) -> None:
        self._touch(entry)
        self.row.status, self.row.needs = "pending", ()
        self.row.totals = self.row.totals.kept()
        self.row.model = str(event.settings.get("model", self.row.model))
        if event.edit is not None:
            self.planned = {}
            self._plan(ROOT, event.edit.plan, self.begun)
            self.row.totals.steps = len(self.planned) + len(self.begun)

    def _driven(self, entry: Entry, event: Driven) -> None:
        self.watch.see(entry)
        for step in self.open.values():
            step.since = entry.at
            self._steps_changed[step.key] = step
        if self.row.status != "running" or self.row.reason or self.row.error:  # a claim sets a new run to running
            self._touch(entry)
            self.row.status, self.row.reason, self.row.error = "running", "", None

    def _asked(self, entry: Entry, event: ModelAsked) -> None:
        self._touch(entry)
        step = self.step_at(entry.place)
        again = step is not None and step.model == event.model
        self._calls[entry.place] = None if event.free else max(0, entry.place.attempt - 1) if again else 0
        if self.on_spent is not None:
            unknown = not event.free and event.model != HOST  # an assistant's cost is not ours
            self._begun[entry.place] = (entry.at, event.model, unknown)
            if unknown:
                self.on_spent(Spent(entry.at, event.model, 1))
        if not event.free:  # unknown until the outcome reports the cost
            for totals in (self.row.totals, *([step.totals] if step else [])):
                totals.unknown_costs += 1
        if step is not None:
            step.model = event.model
            self._steps_changed[step.key] = step

    def _performing(self, entry: Entry, event: Performing) -> None:
        if type(event.effect) is CallTool:
            self._set_step(entry, "tool_call")

    def _performed(self, entry: Entry, event: Performed) -> None:
        outcome = event.outcome
        if type(outcome) is Reply:
            self._count(entry, outcome.usage, outcome.model)
            step = self.step_at(entry.place)
            if step is not None:
                step.model, step.finish = outcome.model, outcome.finish
                step.origin = max(step.origin, outcome.usage.origin, key=_ORIGINS.index)
            if outcome.model == HOST:
                self._add_time(step, outcome.seconds)
        elif type(outcome) is PlaybookResult:
            self._add_child(entry, outcome.used)
        elif type(outcome) is Failed:
            if CHILD in outcome.details:
                self._add_child(entry, outcome.details.get(USED, {}))
            if outcome.details.get("in_doubt"):
                self._set_step(entry, "in_doubt")
                return
            used = outcome.details.get("usage")
            if used:
                self._count(entry, msgspec.convert(used, Usage))
            elif outcome.code != "cancelled":
                self._count(entry, None)
        if self.open:
            self._set_step(entry, "running")

    def _noted(self, entry: Entry, event: Noted) -> None:
        if event.name == KEY_REJECTED:
            self._count(entry, None)

    def _count(self, entry: Entry, usage: Usage | None, model: str = "") -> None:
        """Replaces the unknown cost of a model call with the cost in its outcome; a rejected call costs nothing."""
        if entry.place not in self._calls:
            return
        lost = self._calls.pop(entry.place)
        free = usage is not None and usage.cost == 0  # and the lost attempts were free too
        step = self.step_at(entry.place)
        if self.on_spent is not None:
            self._spend(entry, usage, model, lost if lost and free else 0)
        for totals in (self.row.totals, *([step.totals] if step else [])):
            if lost is not None:
                totals.unknown_costs -= 1 + min(lost if free else 0, totals.unknown_costs - 1)
            if usage is not None:
                totals.add(usage)
        if step is not None:
            self._steps_changed[step.key] = step
        self._touch(entry)

    def _spend(self, entry: Entry, usage: Usage | None, model: str, lost: int) -> None:
        assert self.on_spent is not None
        at, asked, unknown = self._begun.pop(entry.place, (entry.at, model, False))
        if unknown:
            self.on_spent(Spent(at, asked, -1 - lost))
        if usage is not None:
            self.on_spent(Spent(at, model or asked, usage=usage))

    def _add_child(self, entry: Entry, used: dict[str, Any]) -> None:
        """Adds what a child run used to the run and its step; the time of the step includes the child's."""
        step = self.step_at(entry.place)
        for totals in (self.row.totals, *([step.totals] if step else [])):
            for name, number in used.items():
                setattr(totals, name, getattr(totals, name) + number)
        if step is not None:
            self._steps_changed[step.key] = step
        self._touch(entry)

    def _add_time(self, step: StepRow | None, seconds: float) -> None:
        """Counts the time of an assistant, which works while the run waits for it."""
        self.watch.add(seconds)
        self.row.totals.seconds = self.watch.seconds
        self._row_changed = True
        if step is not None:
            step.totals.seconds += seconds
            self._steps_changed[step.key] = step

    def _wait_opened(self, entry: Entry, event: WaitOpened) -> None:
        self._set_step(entry, STATUS_OF_WAIT[event.kind][1])

    def _wait_closed(self, entry: Entry, event: WaitClosed) -> None:
        self._touch(entry)
        step = self.step_at(entry.place)
        if step is not None:
            step.status = "running"
            self._steps_changed[step.key] = step
        if event.kind == "model":  # another drive may have begun the call
            self._calls.setdefault(entry.place, 0)
        self.row.model = str(event.answer.get("settings", {}).get("model", self.row.model))

    def _branch_finished(self, entry: Entry, event: BranchFinished) -> None:
        if event.failed is not None:
            self._end_open_steps(entry, entry.place.path, event.failed.message, "failed")

    def _rewound(self, entry: Entry, event: Rewound) -> None:
        self._touch(entry)
        self._dropped.append((event.seq, event.path))
        self.row.error = None
        over, self._done = self._done, []
        for seq, path, status, counted in over:
            if seq < event.seq or not same_line(path, event.path):
                self._done.append((seq, path, status, counted))
                continue
            self.row.totals.steps_done -= status == "completed"
            if counted:
                self._count_end(status, -1)
        taken_up, self.cut = self.cut, []
        for step in [*self.open.values(), *taken_up]:
            beside = not same_line(step.path, event.path)
            over_then = step.seq and step.finished is not None
            if step.seq >= event.seq and not beside:
                self.open.pop(step.key, None)
                if step.counted and over_then:
                    self._count_end(step.status, -1)
            elif step.failed_at and (beside or step.failed_at < event.seq):
                self.cut.append(step)  # it failed before that and stays failed
            elif step.cut or step.failed_at:
                if step.counted and over_then:
                    self._count_end(step.status, -1)
                step.status = "running" if step.seq else "pending"
                step.cut, step.failed_at, step.reason, step.finished = False, 0, "", None
                self._remember(step)
                self._steps_changed[step.key] = step

    def _suspended(self, entry: Entry, event: Suspended) -> None:
        self._touch(entry)
        self.row.status, self.row.reason, self.row.needs = event.status, event.reason, event.needs
        for step in self.open.values():
            _rest(step, entry.at)
            self._steps_changed[step.key] = step

    def _finished(self, entry: Entry, event: RunFinished) -> None:
        self._touch(entry)
        self.row.status, self.row.error, self.row.needs = event.status, event.error, ()
        self.row.reason = event.error.code if event.error else ""
        self.row.step = event.step or self.row.step
        if event.status == "completed":
            self._end_open_steps(entry, None, "", "completed")
        else:
            self._end_open_steps(entry, None, event.error.message if event.error else event.status, "failed")
        for step in self.planned.values():
            step.status, step.reason = "skipped", NOT_REACHED
            self._cut(step)
        self.planned = {}

    def _end_open_steps(self, entry: Entry, path: str | None, reason: str, status: StepStatus) -> None:
        for key, step in list(self.open.items()):
            if path is not None and not key[0].startswith(path):
                continue
            del self.open[key]
            if step.status != "in_doubt":
                step.status = status
            step.reason, step.finished = reason, entry.at
            _rest(step, entry.at)
            if step.counted:
                self._count_end(step.status)
            self._cut(step)

    def _cut(self, step: StepRow) -> None:
        step.cut = True
        self.cut.append(step)
        self._steps_changed[step.key] = step

    def _set_step(self, entry: Entry, status: StepStatus) -> None:
        if not self.open:
            return
        step = self.step_at(entry.place)
        if step is not None and step.status not in (status, "in_doubt"):
            step.status = status
            self._steps_changed[step.key] = step

    def _touch(self, entry: Entry) -> None:
        self.row.updated = entry.at
        self.row.totals.seconds = self.watch.see(entry)
        self._row_changed = True

    def _remember(self, step: StepRow) -> None:
        if step.cut or step.failed_at:
            self.cut.append(step)
        elif step.status == "pending":
            self.planned[step.key] = step
        else:
            self.open[step.key] = step


def _rest(step: StepRow, at: float) -> None:
    """Adds the step's time up to now to its totals."""
    if step.since is not None:
        step.totals.seconds += max(0.0, at - step.since)
        step.since = None


_FOLDS: dict[type[AnyEvent], Callable[[RunState, Entry, Any], None]] = {
    Planned: RunState._planned,
    StepStarted: RunState._step_started,
    StepFinished: RunState._step_finished,
    StepSkipped: RunState._step_skipped,
    RunStarted: RunState._started,
    Forked: RunState._forked,
    Driven: RunState._driven,
    Moved: RunState._moved,
    ModelAsked: RunState._asked,
    Noted: RunState._noted,
    Performing: RunState._performing,
    WaitOpened: RunState._wait_opened,
    WaitClosed: RunState._wait_closed,
    Performed: RunState._performed,
    BranchFinished: RunState._branch_finished,
    Rewound: RunState._rewound,
    Suspended: RunState._suspended,
    RunFinished: RunState._finished,
}

"""Finds where a retried run continues: at the effect that failed, or at the step around it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuebook.kernel.events import (
    BranchFinished,
    ModelAsked,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    StepFinished,
    StepStarted,
)
from cuebook.kernel.journal import ROOT, Entry, Place, parent_key, without_void
from cuebook.kernel.outcomes import Failed

RETRY_FROM = "retry_from"
"""Key in the details of a failure: the step and the visit at which a retry begins; or a list of visits, each with its path,
that are done again in addition to what failed."""


def rewinds(entries: list[Entry], whole_step: bool, by: str = "", inherited: int = 0) -> list[Rewound]:
    """One rewind for each branch that continues. Finished work is kept, unless the whole step is to be repeated.

    A fork never rewinds past its own beginning.
    """
    live = without_void(entries)
    points: dict[str, int] = {}
    effects = set()
    """Rewinds that continue at an effect instead of the step around it."""
    for failure in _failures(live):
        begin = _step_begin(live, failure.place) if whole_step else _begin(live, failure)
        points[failure.place.path] = min(begin, points.get(failure.place.path, begin))
        if not whole_step and failure.place.index >= 0:
            effects.add(begin)
    for seq, path in _undone(live):
        points[path] = min(seq, points.get(path, seq))
        effects.discard(seq)
    if not points and not whole_step and _was_cut_off(live):
        return [
            Rewound(live[-1].seq + 1, ROOT, by, True)
        ]  # effects without an outcome continue, and nothing is rewound
    if not points:
        last = next((e.place for e in reversed(live) if isinstance(e.event, StepStarted)), Place())
        points[last.path] = _step_begin(live, last)
    return [Rewound(max(seq, inherited + 1, 2), path, by, seq in effects) for path, seq in points.items()]


def _failures(live: list[Entry]) -> list[Entry]:
    """The outcomes that ended the run: those that were cancelled, or the failure and its failed siblings below
    `All`."""
    again = _named_visit(live)
    if again is not None:
        return [again]
    cancelled: dict[str, Entry] = {}
    for entry in live:
        if _failed(entry) == "cancelled":
            cancelled.setdefault(entry.place.path, entry)
    if cancelled:
        return list(cancelled.values())
    if _was_cut_off(live):
        return [entry for entry in live if _is_in_doubt(entry)]
    finished = _end(live)
    numbers = {entry.seq: entry for entry in live}
    failure = numbers.get(finished.failed_seq or 0) if finished is not None else None
    if failure is None and finished is not None and finished.error is not None:
        failure = _visit(live, finished.error)
    if failure is not None:
        path = failure.place.path
        return [failure] if path == ROOT else [failure, *_in_all(live, numbers, parent_key(path)[:3])]
    # The program raised its own error: the branches that failed in that step are the reason.
    step = next((e.place for e in reversed(live) if isinstance(e.event, StepStarted) and e.place.path == ROOT), Place())
    return _in_all(live, numbers, step.key[:3])


def _named_visit(live: list[Entry]) -> Entry | None:
    """The visit at which the program itself says that a retry begins, because it has undone what followed."""
    named = _retry_from(live)
    return _visit(live, Failed("", "", details=named)) if isinstance(named, dict) else None


def _undone(live: list[Entry]) -> Iterator[tuple[int, str]]:
    """Where each branch continues that had steps undone, and where those around it do: after the step that holds it."""
    named = _retry_from(live)
    if not isinstance(named, list):
        return
    visits = {(one["path"], one["step"], one["visit"]) for one in named}
    around: set[tuple[str, str, int]] = set()
    for path in {path for path, _, _ in visits}:
        while path != ROOT:
            holder = parent_key(path)[:3]
            around.add(holder)
            path = holder[0]
    for entry in live:
        at = entry.place.key[:3]
        begun = isinstance(entry.event, StepStarted) and at in visits
        if begun or (isinstance(entry.event, StepFinished) and at in around):
            yield entry.seq, entry.place.path


def _retry_from(live: list[Entry]) -> Any:
    finished = _end(live)
    return None if finished is None or finished.error is None else finished.error.details.get(RETRY_FROM)


def _end(live: list[Entry]) -> RunFinished | None:
    return next((e.event for e in reversed(live) if isinstance(e.event, RunFinished)), None)


def _was_cut_off(live: list[Entry]) -> bool:
    """Whether the run was cancelled immediately, before anything in it could fail."""
    finished = _end(live)
    return finished is not None and finished.error is not None and finished.error.code == "cancelled"


def _visit(live: list[Entry], failed: Failed) -> Entry | None:
    """The beginning of the visit that a failure refers to, if the program specified one.

    If the visit had `finished`, its work is kept and only the first effect after it is repeated; if the next step was also
    chosen (`routed`), nothing is repeated.
    """
    named = (failed.details.get("step"), failed.details.get("visit"))
    of_visit = [entry for entry in live if (entry.place.step, entry.place.visit) == named]
    if failed.details.get("finished"):
        ends = [number for number, entry in enumerate(of_visit) if isinstance(entry.event, StepFinished)]
        after = of_visit[ends[-1] + 1 :] if ends else []
        asked = [entry for entry in after if isinstance(entry.event, ModelAsked | Performed)]
        return asked[0] if asked and not failed.details.get("routed") else after[-1] if after else None
    return next((entry for entry in of_visit if isinstance(entry.event, StepStarted)), None)


def _in_all(live: list[Entry], numbers: dict[int, Entry], visit: tuple[str, str, int]) -> list[Entry]:
    """The outcomes that ended branches in this visit to a step."""
    found: list[Entry] = []
    branches = {e.place.path for e in live if isinstance(e.event, BranchFinished)}
    for entry in live:
        path, event = entry.place.path, entry.event
        if path == ROOT or parent_key(path)[:3] != visit:
            continue
        if isinstance(event, BranchFinished) and event.failed_seq in numbers:
            found.append(numbers[event.failed_seq])
        elif isinstance(event, BranchFinished) and event.failed is not None:
            began = _visit(live, event.failed)
            found += [began] if began is not None and began.place.path == path else []
        elif _failed(entry) and path not in branches:  # a bare effect
            found.append(entry)
    return found


def _failed(entry: Entry) -> str:
    """The code of a failed outcome; empty for other outcomes."""
    event = entry.event
    return event.outcome.code if isinstance(event, Performed) and isinstance(event.outcome, Failed) else ""


def _is_in_doubt(entry: Entry) -> bool:
    outcome = entry.event.outcome if isinstance(entry.event, Performed) else None
    return isinstance(outcome, Failed) and bool(outcome.details.get("in_doubt"))


def _begin(live: list[Entry], failure: Entry) -> int:
    """The first record of the failed effect. An effect in doubt keeps its intent, because the doubt remains."""
    if failure.place.index < 0:  # not an effect, but a record from the program
        return failure.seq
    in_doubt = _is_in_doubt(failure)
    first = failure.seq
    for entry in reversed(live):
        if entry.seq >= failure.seq or entry.place.key != failure.place.key:
            continue
        if in_doubt and isinstance(entry.event, Performing):
            break
        first = entry.seq
    return first


def _step_begin(live: list[Entry], place: Place) -> int:
    """The beginning of the step visit at this place, or else of its branch."""
    of_branch = [entry for entry in live if entry.place.path == place.path]
    for entry in of_branch:
        same_visit = (entry.place.step, entry.place.visit) == (place.step, place.visit)
        if same_visit and isinstance(entry.event, StepStarted):
            return entry.seq
    return next((entry.seq for entry in of_branch if entry.seq > 1), live[-1].seq + 1)

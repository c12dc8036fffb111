"""Where a retried run goes on: the effect that failed, or the step around it. Pure."""

from __future__ import annotations

from cuebook.kernel.effects import Failed
from cuebook.kernel.events import BranchFinished, Performed, Performing, Rewound, RunFinished, StepStarted
from cuebook.kernel.journal import ROOT, Entry, Place, without_void


def rewinds(entries: list[Entry], whole_step: bool, by: str = "") -> list[Rewound]:
    """One for each branch that is to go on. What had finished is kept, unless the whole step is asked for."""
    live = without_void(entries)
    failures = _failures(live)
    points = {failure.place.path: _begin(live, failure) for failure in failures}
    if whole_step or not points:
        paths = list(points) or [ROOT]
        points = {path: _step_begin(live, path, points.get(path)) for path in paths}
    return [Rewound(seq, path, by) for path, seq in points.items()]


def _failures(live: list[Entry]) -> list[Entry]:
    """The outcomes that ended the run, at most one for each branch."""
    numbers = {entry.seq: entry for entry in live}
    finished = next((e.event for e in reversed(live) if isinstance(e.event, RunFinished)), None)
    found: dict[str, Entry] = {}
    for entry in live:
        outcome = entry.event.outcome if isinstance(entry.event, Performed) else None
        if isinstance(outcome, Failed) and outcome.code == "cancelled":
            found.setdefault(entry.place.path, entry)
    if found:
        return list(found.values())
    if finished is not None and finished.failed_seq in numbers:
        return [numbers[finished.failed_seq]]
    for entry in live:
        event = entry.event
        if isinstance(event, BranchFinished) and event.failed_seq in numbers:
            failure = numbers[event.failed_seq]
            found[failure.place.path] = failure
    return list(found.values())


def _begin(live: list[Entry], failure: Entry) -> int:
    """The first record of the failed effect. One that is in doubt keeps its intent: the doubt remains."""
    event = failure.event
    in_doubt = (
        isinstance(event, Performed) and isinstance(event.outcome, Failed) and event.outcome.details.get("in_doubt")
    )
    first = failure.seq
    for entry in reversed(live):
        if entry.seq >= failure.seq or not _same_effect(entry.place, failure.place):
            continue
        if in_doubt and isinstance(entry.event, Performing):
            break
        first = entry.seq
    return first


def _same_effect(one: Place, other: Place) -> bool:
    return (one.path, one.step, one.visit, one.index) == (other.path, other.step, other.visit, other.index)


def _step_begin(live: list[Entry], path: str, before: int | None) -> int:
    """Where the last step of the branch begins, or else the branch."""
    last = before if before is not None else live[-1].seq + 1
    of_branch = [entry for entry in live if entry.place.path == path and entry.seq <= last]
    for entry in reversed(of_branch):
        if isinstance(entry.event, StepStarted):
            return entry.seq
    return next((entry.seq for entry in of_branch if entry.seq > 1), last)

"""Edit and continue: what becomes of each step of a run if it continues with a changed text, and where it continues.

A run keeps its steps up to the first one that differs, in the order in which it ran them, and those after it that cannot depend on
the difference; everything else is done again. Steps match by label, so a renamed step is removed and new. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.dialect import EditableSteps
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import RunPlaybook
from cuebook.kernel.engine.children import child_id
from cuebook.kernel.errors import Refused
from cuebook.kernel.events import Performing, StepFinished
from cuebook.kernel.fold.retry import RETRY_FROM
from cuebook.kernel.journal import ROOT, Entry, parent_key, root_step
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service.runs.kept_steps import Later, later_kept

_DONE = frozenset({"completed", "skipped"})
_MOST_REWINDS = 100
"""How many retries of a run are considered when its children are named."""


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a step."""

    step: str
    verdict: Literal["kept", "redone", "changed", "removed", "new", "pending"]
    because: str
    title: str = ""


class EditPlan(msgspec.Struct, frozen=True):
    """How a run would continue with a changed text."""

    run: str
    playbook: str
    """The digest of the changed text."""
    point: StepRow
    """Where it continues; everything before is kept."""
    verdicts: tuple[Verdict, ...]
    later: tuple[str, ...] = ()
    """The steps after that point that are kept as well."""
    children: tuple[str, ...] = ()
    """The unfinished children of the run, which are cancelled."""

    @property
    def id(self) -> str:
        """Identifies the plan: it differs if the run or the text has changed since."""
        shown = (self.run, self.playbook, self.point.seq, self.verdicts, *((self.children,) if self.children else ()))
        return digest_of(msgspec.json.encode(shown).decode())[:16]

    def as_object(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "plan": self.id,
            "continues_at": self.point.label or None,
            "steps": [msgspec.to_builtins(one) for one in self.verdicts],
            **({"cancels": list(self.children)} if self.children else {}),
        }


def plan_of(
    row: RunRow,
    old: Playbook,
    new: Playbook,
    steps: Sequence[StepRow],
    entries: Sequence[Entry],
    below: Sequence[RunRow] = (),
) -> EditPlan:
    """The plan for continuing a run. `entries` are the valid ones, and `below` its unfinished children. Raises `Refused` if
    it cannot be continued.
    """
    if new.dialect.name != old.dialect.name:
        raise Refused(
            f"Run {row.id} is a {old.dialect.noun}, but the new text is a {new.dialect.noun}; nothing was changed.",
            fix="Start a new run with it.",
        )
    before, after = old.dialect.editable(old.document), new.dialect.editable(new.document)
    visits = sorted((step for step in steps if step.seq), key=lambda step: step.seq)
    if not visits:
        raise Refused(f"Run {row.id} has not begun a step, so there is nothing to keep.", fix="Start a new run.")
    at, why = min(_first_difference(visits, before, after, entries), _first_undone(visits, row), key=lambda one: one[0])
    if new.dialect.continues_at_entries:
        at = new.dialect.entry_before(new.document, [one.label for one in visits], min(at, len(visits) - 1))
    point = _point(visits, at, entries)
    kept = {one.label for one in visits if one.seq < point.seq}
    again = {one.label: one for one in visits if one.seq >= point.seq}
    acted = _acting(entries)
    undone = row.error is not None and RETRY_FROM in row.error.details
    later = Later((), {}) if undone else later_kept(visits, kept, before, after, acted)
    kept |= set(later.kept)
    again = {label: one for label, one in again.items() if label not in later.kept}
    children = _callers(row, below, entries)
    titles = {one.label: one.title for one in (*old.outline, *new.outline)}
    found = []
    for label in dict.fromkeys((*_labels(new, after), *_labels(old, before))):
        verdict, because = _verdict(label, before, after, kept, again, later.because.get(label) or why)
        if label in later.kept:
            because = "it is unchanged, and does not depend on what differs"
        if label in children:
            because += f"; its child run {children[label]} is cancelled, and what it did stays done"
        if label in again and verdict in ("redone", "changed") and label in acted:
            because += "; what it did is done again"
        elif verdict == "removed" and label in acted:
            because += "; what it did stays done"
        found.append(Verdict(label, verdict, because, titles.get(label, "")))
    return EditPlan(row.id, new.digest, point, tuple(found), later.kept, tuple(one.id for one in below))


def _labels(playbook: Playbook, editable: EditableSteps) -> Sequence[str]:
    known = [label for label in playbook.labels if label in editable.digests]
    return [*known, *(label for label in editable.digests if label not in known)]


def _first_difference(
    visits: Sequence[StepRow], before: EditableSteps, after: EditableSteps, entries: Sequence[Entry]
) -> tuple[int, str]:
    """The first visit that cannot be kept, and why everything from there on is done again."""
    expected = list(after.order)
    ended = {
        (entry.place.path, entry.event.label, entry.place.visit)
        for entry in entries
        if isinstance(entry.event, StepFinished)
    }
    for number, visit in enumerate(visits):
        label = visit.label
        if label not in before.digests:
            continue  # a step that the runtime added
        if label not in after.digests:
            return number, f"step {label} before it was removed"
        if after.digests[label] != before.digests[label]:
            return number, f"step {label} before it changed"
        if visit.path == ROOT and expected and label in before.order and visit.visit == 1:
            if expected[0] != label:
                return number, f"the order changed at step {expected[0]}"
            expected.pop(0)
        around = visit.key not in ended and number + 1 < len(visits)  # a step with others inside
        if visit.status not in _DONE and not around:
            return number, f"step {label} before it had not finished"
    return len(visits), ""


def _first_undone(visits: Sequence[StepRow], row: RunRow) -> tuple[int, str]:
    """The first visit that the run undid when it ended, and why everything from there on is done again."""
    named = row.error.details.get(RETRY_FROM) if row.error is not None else None
    for number, visit in enumerate(visits):
        if named and (visit.label, visit.visit) == (named["step"], named["visit"]):
            return number, f"step {visit.label} was undone"
    return len(visits), ""


def _callers(row: RunRow, below: Sequence[RunRow], entries: Sequence[Entry]) -> dict[str, str]:
    """The unfinished children, by the steps that wait for them."""
    ids = {one.id for one in below}
    found: dict[str, str] = {}
    for entry in entries if ids else ():
        if not isinstance(entry.event, Performing) or not isinstance(entry.event.effect, RunPlaybook):
            continue
        named = (child_id(row.id, entry.place.key, number) for number in range(_MOST_REWINDS))
        child = next((one for one in named if one in ids), None)
        if child is not None:
            found[root_step(entry.place)] = child
    return found


def _point(visits: Sequence[StepRow], at: int, entries: Sequence[Entry]) -> StepRow:
    """The visit at which the run continues. A visit on a branch continues where its branches began."""
    ends = {
        (entry.event.label, entry.place.visit): entry.seq
        for entry in entries
        if isinstance(entry.event, StepFinished) and entry.place.path == ROOT
    }
    if at < len(visits) and visits[at].path == ROOT:
        return visits[at]
    if at < len(visits):
        path = visits[at].path
        while parent_key(path)[0] != ROOT:
            path = parent_key(path)[0]
        _, label, visit, _ = parent_key(path)
        around = next((one for one in visits if (one.path, one.label, one.visit) == (ROOT, label, visit)), visits[0])
        end = ends.get((around.label, around.visit))
        return around if end is None or end > visits[at].seq else msgspec.structs.replace(around, label="", seq=end + 1)
    last = next(one for one in reversed(visits) if one.path == ROOT)
    end = ends.get((last.label, last.visit), last.seq)
    return StepRow(ROOT, "", 0, seq=end + 1)


def _acting(entries: Sequence[Entry]) -> set[str]:
    """The steps that did something in the world."""
    found = set()
    for entry in entries:
        if isinstance(entry.event, Performing) and entry.event.effect.changes:
            found |= {root_step(entry.place), entry.place.step}
    return found


def _verdict(
    label: str, before: EditableSteps, after: EditableSteps, kept: set[str], again: dict[str, StepRow], why: str
) -> tuple[Any, str]:
    if label not in after.digests:
        return "removed", "it is not in the new text"
    if label not in before.digests:
        return "new", "it is not in the old text"
    if after.digests[label] != before.digests[label]:
        return (
            "changed",
            "its text differs" if label in again or label in kept else "its text differs; it was not reached",
        )
    if label in again:
        unfinished = again[label].status not in _DONE
        return "redone", "it had not finished" if unfinished else why or "a step before it is done again"
    return ("kept", "it is unchanged") if label in kept else ("pending", "it was not reached")

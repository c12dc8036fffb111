"""Edit and continue: what becomes of each step of a run if it continues with a changed text, and where it continues.

A run keeps its steps up to the first one that differs, in the order in which it ran them; everything from there on is done again.
Steps match by label, so a renamed step is removed and new. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.dialect import EditableSteps
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import Refused
from cuebook.kernel.events import Performing, StepFinished
from cuebook.kernel.journal import ROOT, Entry, parent_key
from cuebook.kernel.run import RunRow, StepRow

_DONE = frozenset({"completed", "skipped"})


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

    @property
    def id(self) -> str:
        """Identifies the plan: it differs if the run or the text has changed since."""
        shown = (self.run, self.playbook, self.point.seq, self.verdicts)
        return digest_of(msgspec.json.encode(shown).decode())[:16]

    def as_object(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "plan": self.id,
            "continues_at": self.point.label or None,
            "steps": [msgspec.to_builtins(one) for one in self.verdicts],
        }


def plan_of(row: RunRow, old: Playbook, new: Playbook, steps: Sequence[StepRow], entries: Sequence[Entry]) -> EditPlan:
    """The plan for continuing a run. `entries` are the valid ones. Raises `Refused` if it cannot be continued."""
    if new.dialect.name != old.dialect.name:
        raise Refused(
            f"Run {row.id} is a {old.dialect.noun}, but the new text is a {new.dialect.noun}; nothing was changed.",
            fix="Start a new run with it.",
        )
    before, after = old.dialect.editable(old.document), new.dialect.editable(new.document)
    visits = sorted((step for step in steps if step.seq), key=lambda step: step.seq)
    if not visits:
        raise Refused(f"Run {row.id} has not begun a step, so there is nothing to keep.", fix="Start a new run.")
    at, why = _first_difference(visits, before, after, entries)
    if new.dialect.continues_at_entries:
        at = new.dialect.entry_before(new.document, [one.label for one in visits], min(at, len(visits) - 1))
    point = _point(visits, at, entries)
    kept = {one.label for one in visits if one.seq < point.seq}
    again = {one.label: one for one in visits if one.seq >= point.seq}
    acted = _acting(entries)
    titles = {one.label: one.title for one in (*old.outline, *new.outline)}
    found = []
    for label in dict.fromkeys((*_labels(new, after), *_labels(old, before))):
        verdict, because = _verdict(label, before, after, kept, again, why)
        if label in again and verdict in ("redone", "changed") and label in acted:
            because += "; what it did is done again"
        elif verdict == "removed" and label in acted:
            because += "; what it did stays done"
        found.append(Verdict(label, verdict, because, titles.get(label, "")))
    return EditPlan(row.id, new.digest, point, tuple(found))


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
            path, step = entry.place.path, entry.place.step
            while path != ROOT:
                path, step, _, _ = parent_key(path)
            found |= {step, entry.place.step}
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

"""What a store keeps of a run beside its journal, made again from the journal alone and compared with what is there. Pure.

Rows are written by the fold of their time: a change of the fold needs a migration that writes them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.kernel.events import ENDED, Driven, RunStarted, WaitClosed, WaitOpened
from cuebook.kernel.journal import Entry, Verdict, same_line, without_void
from cuebook.kernel.ports import Whole
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitRow
from cuebook.kernel.tally import Tally

_SECOND = 1.0
"""What a row and its record may differ by in when they were made."""
_OF_RUN = ("status", "reason", "step", "model", "totals", "error", "updated")
_OF_WAIT = ("kind", "prompt", "purpose", "type", "options", "default", "expires")
_LATE = "late"
"""Among a wait's details: what a driver that had lost the run came back with. Where it comes after the wait was opened, no
record has it.
"""


def projected(row: RunRow, entries: Sequence[Entry]) -> tuple[RunRow, dict[tuple[str, str, int], StepRow]]:
    """The row and the steps of a run by its journal; `row` says which run it is, and where its own records begin."""
    begins = row.parent_seq if row.parent else 1
    fresh = msgspec.structs.replace(
        row, status="pending", reason="", step="", model="", totals=Totals(), error=None, updated=row.created
    )
    tally, steps = Tally(fresh), {}
    for entry in without_void(entry for entry in entries if entry.seq < begins):
        tally.apply(entry)
    for step in tally.take_changes()[1]:
        steps[step.key] = step
    for entry in entries:
        if entry.seq < begins:
            continue
        if type(entry.event) is Driven and tally.row.status == "pending":
            tally.row.status = "running"  # its claim has said so
        tally.apply(entry)
        _, changed, dropped = tally.take_changes()
        for seq, path in dropped:
            steps = {key: step for key, step in steps.items() if step.seq < seq or not same_line(key[0], path)}
        for step in changed:
            steps[step.key] = step
    return tally.row, steps


def compared(whole: Whole, entries: Sequence[Entry], verdict: Verdict) -> Verdict:
    """The verdict, or a worse one where a row does not say what the journal says."""
    for seq, problem in _differences(whole, entries):
        return msgspec.structs.replace(verdict, broken_at=seq, problem=problem)
    return verdict


def _differences(whole: Whole, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """Each with the record that says otherwise."""
    row, last = whole.row, entries[-1].seq
    begins = row.parent_seq if row.parent else 1
    if whole.odd:
        yield last, whole.odd
    begun = entries[0].event
    if isinstance(begun, RunStarted) and (begun.dialect, begun.interpreter) != (row.dialect, row.interpreter):
        yield 1, f"the run is shown with dialect '{row.dialect}', and the journal says '{begun.dialect}'"
    wanted, steps = projected(row, entries)
    if wanted.status == "pending" and row.epoch:
        wanted.status = "running"
    for name in _OF_RUN:
        if getattr(row, name) != getattr(wanted, name):
            yield last, _otherwise("the run", name, getattr(row, name), getattr(wanted, name))
    if abs(row.created - next(entry.at for entry in entries if entry.seq >= begins)) > _SECOND:
        yield begins, "the run is said to have been created at another time than the journal says"
    found = {step.key: step for step in whole.steps}
    for key in [*steps, *(key for key in found if key not in steps)]:
        name = f"step {key[1]}" + (f" (visit {key[2]})" if key[2] > 1 else "")
        if key not in found or key not in steps:
            yield last, f"{name} is {'missing' if key not in found else 'shown, and the journal has no such step'}"
        elif found[key] != steps[key]:
            yield steps[key].seq or last, _step_otherwise(name, found[key], steps[key])
    yield from _differing_waits(whole, [entry for entry in entries if entry.seq >= begins])


def _step_otherwise(name: str, found: StepRow, wanted: StepRow) -> str:
    field = next(field for field in StepRow.__struct_fields__ if getattr(found, field) != getattr(wanted, field))
    return _otherwise(name, field, getattr(found, field), getattr(wanted, field))


def _differing_waits(whole: Whole, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    opened = {entry.event.wait: entry for entry in entries if isinstance(entry.event, WaitOpened)}
    closed = {entry.event.wait: entry.event for entry in entries if isinstance(entry.event, WaitClosed)}
    still = {entry.event.wait for entry in without_void(entries) if isinstance(entry.event, WaitOpened)}
    found = {wait.id: wait for wait in whole.waits}
    for name in found.keys() - opened.keys():
        yield entries[-1].seq, f"the wait {name} is shown, and the journal has no such wait"
    for name, entry in opened.items():
        wait = found.get(name)
        if wait is None:
            yield entry.seq, f"the wait {name} is missing"
            continue
        over = name in closed or name not in still or whole.row.status in ENDED
        for problem in _wait_otherwise(wait, entry, closed.get(name), over):
            yield entry.seq, problem


def _wait_otherwise(wait: WaitRow, entry: Entry, closed: WaitClosed | None, over: bool) -> Iterator[str]:
    event, name = entry.event, f"the wait {wait.id}"
    for field in _OF_WAIT:
        if getattr(wait, field) != getattr(event, field):
            yield _otherwise(name, field, getattr(wait, field), getattr(event, field))
    if _without_late(wait.details) != _without_late(event.details):  # type: ignore[union-attr]
        yield f"{name} shows other details than the journal has"
    if wait.place != entry.place or abs(wait.opened - entry.at) > _SECOND:
        yield f"{name} is said to be of another step or time than the journal says"
    if (wait.state == "closed") != over:
        yield f"{name} is {wait.state}, and by the journal it is {'over' if over else 'not over'}"
    if closed is not None and (wait.answer or wait.by) and (wait.answer, wait.by) != (closed.answer, closed.by):
        yield f"{name} shows another decision than the journal has"


def _without_late(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name != _LATE}


def _otherwise(what: str, field: str, found: Any, wanted: Any) -> str:
    if isinstance(found, str | int | float) and isinstance(wanted, str | int | float):
        return f"{what} is shown with {field} '{found}', and the journal says '{wanted}'"
    return f"{what} is shown with another {field} than the journal says"

"""Verifies a run: its journal is complete and belongs to it, its texts are unchanged, and its rows match the journal. Pure.

The chain of a journal proves none of this: an empty journal has no broken link, and a truncated one ends in a valid record. Rows
are written by the fold of their time, so a change to the fold needs a migration that rewrites them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.engine.waits import WHOLE
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import (
    ENDED,
    AnyEvent,
    ContentsPurged,
    Driven,
    Forked,
    ModelAsked,
    RunFinished,
    RunStarted,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.fold.state import RunState, before_first_record
from cuebook.kernel.journal import (
    PURGED,
    ROOT,
    Entry,
    Purge,
    Record,
    Verdict,
    blocks_in,
    root_step,
    same_line,
    time_of,
    without_void,
)
from cuebook.kernel.ports import Whole
from cuebook.kernel.run import RunRow, StepRow, WaitRow
from cuebook.kernel.votes import VOTES

Load = Callable[[str], str]
"""Returns a text by its digest; raises `NotFound` if it no longer exists."""

_BEGINNINGS = (RunStarted.__name__, Forked.__name__)
_TEXT = re.compile(rb'\{"digest":"([0-9a-f]{64})","length":\d+\}')
_CONTEXT = re.compile(rb'"(?:context|since)":"([0-9a-f]{64})"')
_ADDED = re.compile(rb'"since":"[0-9a-f]{64}","added":')
_TOLERANCE = 1.0
"""Seconds by which the times of a row and its record may differ."""
_OF_RUN = ("status", "reason", "step", "model", "workspace", "needs", "totals", "error", "updated")
_OF_WAIT = ("kind", "prompt", "purpose", "type", "options", "default", "expires")
_LATE = "late"
"""Key in a wait's details: the outcome from a driver that had lost the run. If it arrived after the wait was opened, no record
contains it.
"""


# --- the journal ---


def belongs(records: Sequence[Record], verdict: Verdict, said: Mapping[str, str]) -> Verdict:
    """The verdict, marked as broken if the records do not belong to the expected run.

    `said` is what other sources say about the run, keyed by the fields of `Beginning`. Fields that a journal lacks, because
    it is old or its beginning was purged, are not compared.
    """
    if verdict.broken_at is not None:
        return verdict
    if not records or records[0].kind != RunStarted.__name__:
        return worse(verdict, 1, "the beginning of the run is missing")
    begun: dict[str, Any] = {}
    seq, run = 1, ""
    for record in records:
        if record.kind in _BEGINNINGS:
            begun, seq = _decoded(record), record.seq
            run = str(begun.get("run", record.run))
        if record.run != run:
            return worse(verdict, record.seq, "the record belongs to another run")
    for name, value in said.items() if "run" in begun else ():
        if begun.get(name, "") != value:
            return worse(verdict, seq, f"the journal says {name} '{begun.get(name, '')}', not '{value}'")
    return verdict


def keeps_up(records: Sequence[Record], verdict: Verdict, row: RunRow, steps: Sequence[StepRow]) -> Verdict:
    """The verdict, marked as broken if the row and steps, read before the records, are ahead of them."""
    if verdict.broken_at is not None:
        return verdict
    begins = row.parent_seq if row.parent else 1
    if len(records) < begins or records[begins - 1].kind not in _BEGINNINGS:
        return worse(verdict, begins, "the beginning of the run is missing")
    last = len(records)
    if max(map(time_of, records)) < row.updated or any(step.seq > last for step in steps):
        return worse(verdict, last + 1, "records are missing at the end of the journal")
    if row.status in ENDED and not any(_ends(record, row) for record in records[begins - 1 :]):
        return worse(verdict, last + 1, f"the run is marked as {row.status}, but no record says so")
    return verdict


def purges_in(records: Iterable[Record]) -> dict[str, list[Purge]]:
    """The purges that journals tell of, by run."""
    found: dict[str, list[Purge]] = {}
    for record in records:
        if record.kind == ContentsPurged.__name__ and not record.body.startswith(PURGED):
            body = _decoded(record)
            purge = Purge(1, record.seq - 1, body.get("by", ""), time_of(record), body.get("reason", ""))
            found.setdefault(record.run, []).append(purge)
    return found


def accounted(records: Sequence[Record], verdict: Verdict, purges: Mapping[str, Sequence[Purge]]) -> Verdict:
    """The verdict, with what was purged, when and by whom; marked as broken if a record was purged and no journal says so."""
    if verdict.broken_at is not None:
        return verdict
    found: dict[Purge, None] = {}
    for record in records:
        if record.body.startswith(PURGED):
            purge = next((one for one in purges.get(record.run, ()) if record.seq <= one.last), None)
            if purge is None:
                return worse(verdict, record.seq, "its contents were removed, and no record says by whom")
            found[purge] = None
    return msgspec.structs.replace(verdict, purges=tuple(found))


def worse(verdict: Verdict, seq: int, problem: str) -> Verdict:
    return Verdict(verdict.records, verdict.head, seq, problem)


def _decoded(record: Record) -> dict[str, Any]:
    if record.body.startswith(PURGED):
        return {}
    body: dict[str, Any] = msgspec.json.decode(record.body)
    return body


def _ends(record: Record, row: RunRow) -> bool:
    if record.kind != RunFinished.__name__:
        return False
    return record.body.startswith(PURGED) or _decoded(record).get("status") == row.status


# --- its texts ---


class Found(msgspec.Struct, frozen=True):
    """A text that a record refers to."""

    seq: int
    """The first record that refers to it."""
    digest: str
    text: str | None
    """None if it no longer exists."""


def texts_behind(records: Iterable[Record], load: Load) -> Iterator[Found]:
    """Yields each text that the records refer to, once."""
    seen: set[tuple[str, bool]] = set()
    for record in records:
        seen |= _held(record)
        waiting = list(_named(record))
        while waiting:
            digest, is_block = one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            text = _loaded(digest, load)
            yield Found(record.seq, digest, text)
            if is_block and text is not None:
                waiting += _parts(text)


def unchanged(records: Sequence[Record], verdict: Verdict, load: Load) -> Verdict:
    """The verdict, marked as broken if a text was changed. Missing texts, such as purged ones, are only listed."""
    if verdict.broken_at is not None:
        return verdict
    missing: dict[str, None] = {}
    for found in texts_behind(records, load):
        if found.text is None:
            missing[found.digest] = None
        elif digest_of(found.text) != found.digest:
            return worse(verdict, found.seq, "a text that it refers to was changed")
    return msgspec.structs.replace(verdict, missing=tuple(missing))


def _named(record: Record) -> Iterator[tuple[str, bool]]:
    """The digests that a record contains, and whether each is a block of a context."""
    if _TEXT.search(record.body):
        for digest in _references(record.body):
            yield digest, False
    if record.kind == ModelAsked.__name__:
        for digest in _CONTEXT.findall(record.body):
            yield digest.decode(), True


def _held(record: Record) -> set[tuple[str, bool]]:
    """The blocks of a context that the record itself contains, so that they are not among the texts."""
    if record.kind != ModelAsked.__name__ or not _ADDED.search(record.body):
        return set()
    try:
        event = msgspec.json.decode(record.body, type=ModelAsked, dec_hook=_short)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return set()  # it was changed; its digest shows that
    return {(digest, True) for digest in blocks_in(event)}


def _short(wanted: type, value: Any) -> Text:
    return Text(value if isinstance(value, str) else "")


def _references(body: bytes) -> list[str]:
    """The texts that a body refers to. Data may look like a reference; only its place in the event makes it one."""
    found: list[str] = []

    def show(wanted: type, value: Any) -> Text:
        if isinstance(value, str):
            return Text(value)
        found.append(str(value["digest"]))
        return Text("")

    try:
        event = msgspec.json.decode(body, type=AnyEvent, dec_hook=show)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return found  # it was purged or changed; its digest shows that
    whole = event.details.get(WHOLE) if isinstance(event, WaitOpened) else None
    return [*found, str(whole["digest"])] if isinstance(whole, dict) and "digest" in whole else found


def _parts(block: str) -> Iterator[tuple[str, bool]]:
    """The preceding block, the text and the attachments of a block."""
    try:
        parent, _, held, *rest = msgspec.json.decode(block, type=list[Any])
    except (msgspec.DecodeError, ValueError):
        return  # it was changed; its digest shows that
    if not isinstance(parent, str) or not isinstance(held, str):
        return
    if parent:
        yield parent, True
    yield held, False
    for file in rest[3] if len(rest) > 3 and isinstance(rest[3], list) else ():
        if isinstance(file, list) and len(file) > 1 and isinstance(file[1], str):
            yield file[1], False


def _loaded(digest: str, load: Load) -> str | None:
    try:
        return load(digest)
    except NotFound:
        return None


# --- the rows ---


def projected(row: RunRow, entries: Sequence[Entry]) -> tuple[RunRow, dict[tuple[str, str, int], StepRow]]:
    """The row and steps of a run, computed from its journal. `row` identifies the run and where its own records begin."""
    begins = row.parent_seq if row.parent else 1
    state, steps = RunState(before_first_record(row)), {}
    for entry in without_void(entry for entry in entries if entry.seq < begins):
        state.apply(entry)
    for step in state.take_changes()[1]:
        steps[step.key] = step
    for entry in entries:
        if entry.seq < begins:
            continue
        if type(entry.event) is Driven and state.row.status == "pending":
            state.row.status = "running"  # as its claim did
        if isinstance(entry.event, Forked) and entry.event.edit is not None:
            steps = {key: step for key, step in steps.items() if step.seq}
            state.begun = {step.label for step in steps.values() if step.path == ROOT}
        state.apply(entry)
        _, changed, dropped = state.take_changes()
        for seq, path in dropped:
            steps = {key: step for key, step in steps.items() if step.seq < seq or not same_line(key[0], path)}
        for step in changed:
            steps[step.key] = step
    return state.row, steps


def compared(whole: Whole, entries: Sequence[Entry], verdict: Verdict) -> Verdict:
    """The verdict, marked as broken if a row differs from the journal."""
    for seq, problem in _differences(whole, entries):
        return msgspec.structs.replace(verdict, broken_at=seq, problem=problem)
    return verdict


def _differences(whole: Whole, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """The differences between the rows and the journal, each with the record concerned."""
    row, last = whole.row, entries[-1].seq
    begins = row.parent_seq if row.parent else 1
    if whole.odd:
        yield last, whole.odd
    begun = entries[0].event
    if isinstance(begun, RunStarted) and (begun.dialect, begun.interpreter) != (row.dialect, row.interpreter):
        yield 1, f"the run is shown with dialect '{row.dialect}', but the journal says '{begun.dialect}'"
    wanted, steps = projected(row, entries)
    if wanted.status == "pending" and row.epoch:
        wanted.status = "running"
    for name in _OF_RUN:
        if getattr(row, name) != getattr(wanted, name):
            yield last, _difference("the run", name, getattr(row, name), getattr(wanted, name))
    if abs(row.created - next(entry.at for entry in entries if entry.seq >= begins)) > _TOLERANCE:
        yield begins, "the run was not created at the time recorded in the journal"
    found = {step.key: step for step in whole.steps}
    for key in [*steps, *(key for key in found if key not in steps)]:
        name = f"step {key[1]}" + (f" (visit {key[2]})" if key[2] > 1 else "")
        if key not in found or key not in steps:
            yield last, f"{name} is {'missing' if key not in found else 'shown, but the journal has no such step'}"
        elif found[key] != steps[key]:
            yield steps[key].seq or last, _step_difference(name, found[key], steps[key])
    yield from _different_waits(whole, [entry for entry in entries if entry.seq >= begins])


def _step_difference(name: str, found: StepRow, wanted: StepRow) -> str:
    field = next(field for field in StepRow.__struct_fields__ if getattr(found, field) != getattr(wanted, field))
    return _difference(name, field, getattr(found, field), getattr(wanted, field))


def _different_waits(whole: Whole, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    opened = {entry.event.wait: entry for entry in entries if isinstance(entry.event, WaitOpened)}
    closed = {entry.event.wait: entry.event for entry in entries if isinstance(entry.event, WaitClosed)}
    still = {entry.event.wait for entry in without_void(entries) if isinstance(entry.event, WaitOpened)}
    found = {wait.id: wait for wait in whole.waits}
    first = entries[0].event if entries else None
    kept = first.edit.kept if isinstance(first, Forked) and first.edit is not None else ()
    for name in found.keys() - opened.keys():
        yield entries[-1].seq, f"the wait {name} is shown, but the journal has no such wait"
    for name, entry in opened.items():
        wait = found.get(name)
        if wait is None and whole.row.caller:
            continue  # it is listed by the outermost run
        if wait is None and name in closed and root_step(entry.place) in kept:
            continue  # it belongs to the run that this one continues
        if wait is None:
            yield entry.seq, f"the wait {name} is missing"
            continue
        over = name in closed or name not in still or whole.row.status in ENDED
        for problem in _wait_differences(wait, entry, closed.get(name), over):
            yield entry.seq, problem


def _wait_differences(wait: WaitRow, entry: Entry, closed: WaitClosed | None, over: bool) -> Iterator[str]:
    event, name = entry.event, f"the wait {wait.id}"
    for field in _OF_WAIT:
        if getattr(wait, field) != getattr(event, field):
            yield _difference(name, field, getattr(wait, field), getattr(event, field))
    if _without_late(wait.details) != _without_late(event.details):  # type: ignore[union-attr]
        yield f"{name} shows details that differ from the journal"
    if wait.place != entry.place or abs(wait.opened - entry.at) > _TOLERANCE:
        yield f"{name} has a step or time that differs from the journal"
    if (wait.state == "closed") != over:
        yield f"{name} is {wait.state}, but according to the journal it is {'over' if over else 'not over'}"
    shown = wait.answer
    if (
        closed is not None and closed.how != "answered" and VOTES not in closed.answer
    ):  # it ended before they decided it
        shown = {name: value for name, value in shown.items() if name != VOTES}
    if closed is not None and (shown or wait.by) and (shown, wait.by) != (closed.answer, closed.by):
        yield f"{name} shows a decision that differs from the journal"


def _without_late(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name != _LATE}


def _difference(what: str, field: str, found: Any, wanted: Any) -> str:
    if isinstance(found, str | int | float) and isinstance(wanted, str | int | float):
        return f"{what} is shown with {field} '{found}', but the journal says '{wanted}'"
    return f"{what} is shown with other {field} than in the journal"

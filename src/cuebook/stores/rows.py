"""The columns of a store's tables and their conversion to rows, shared by all databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cuebook.kernel.capabilities import Offer, lasting
from cuebook.kernel.events import ENDED
from cuebook.kernel.journal import Record
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Batch, Whole
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitMark, WaitRow
from cuebook.stores.refusals import damaged

RUN = (
    "id, tenant, owner, dialect, interpreter, playbook, name, created, updated, status, reason, step, model,"
    " totals, error, parent, parent_seq, epoch, driver, workspace, needs, caller, trigger"
)
RECORD = "seq, path, kind, head, body, chain"
_RUN_COLUMNS = RUN.split(", ")
RUN_MARKS = len(_RUN_COLUMNS)
"""The number of these columns."""
HEADS = ("RunStarted", "Forked", "Moved", "WaitClosed", "CancelRequested", "Rewound")
"""The kinds of records that count even if they precede a checkpoint: settings, inputs and decisions."""
NAMES_OF_HEADS = ", ".join(f"'{kind}'" for kind in HEADS)
NAMES_OF_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED))
NONE = "[]"
"""The JSON of a run without needs."""
_json = msgspec.json.encode


def run_values(row: RunRow) -> tuple[Any, ...]:
    """The columns of a new run."""
    return (
        row.id, row.tenant, row.owner, row.dialect, row.interpreter, row.playbook, row.name, row.created,
        row.updated, row.status, row.reason, row.step, row.model, _json(row.totals).decode(), None,
        row.parent, row.parent_seq, row.epoch, row.driver, row.workspace, _json(row.needs).decode(),
        row.caller, row.trigger,
    )  # fmt: skip


def without_row(batch: Batch, row: RunRow) -> Batch:
    """The first batch of a run, without its row if that was just added as it is."""
    return msgspec.structs.replace(batch, row=None) if batch.row is row and row.error is None else batch


def shown_values(row: RunRow) -> tuple[Any, ...]:
    """The columns of a run that its driver changes: updated, reason, step, model, totals, error (empty for NULL), workspace,
    needs and status.
    """
    error = _json(row.error).decode() if row.error else ""
    needs = _json(row.needs).decode() if row.needs else NONE
    totals = _json(row.totals).decode()
    return (row.updated, row.reason, row.step, row.model, totals, error, row.workspace, needs, row.status)


def step_values(key: int, step: StepRow) -> tuple[Any, ...]:
    """The columns of a step's row."""
    return (key, step.path, step.label, step.visit, step.seq, step.status, _json(step).decode())


def wait_values(key: int, wait: WaitRow) -> tuple[Any, ...]:
    """The columns of a wait's row: id, run, tenant, owner, state, expires, opened, kind and body."""
    opened = msgspec.structs.replace(wait, state="open", answer={}, by="")
    return (
        wait.id, key, wait.tenant, wait.owner, wait.state, wait.expires, wait.opened, wait.kind,
        _json(opened).decode(),
    )  # fmt: skip


def run_row(row: Sequence[Any]) -> RunRow:
    named = dict(zip(_RUN_COLUMNS, row, strict=True))
    try:
        named["totals"] = msgspec.json.decode(named["totals"], type=Totals)
        named["needs"] = _needs(named["needs"])
        named["error"] = msgspec.json.decode(named["error"], type=Failed) if named["error"] else None
    except (msgspec.DecodeError, TypeError) as error:  # a damaged schema can turn a text into NULL
        raise damaged(f"The row of run {named['id']} cannot be read: {error}.") from None
    return RunRow(**named)


class DueRun(NamedTuple):
    """A run with work to do, as far as it decides who may drive it."""

    run: str
    dialect: str
    interpreter: int
    workspace: str
    needs: tuple[str, ...]
    ending: bool
    """Whether it was cancelled."""

    @property
    def is_handed_over(self) -> bool:
        """Whether it waits for a process with certain capabilities."""
        return bool(lasting(self.needs))

    def fits(self, offer: Offer | None) -> bool:
        return offer is None or offer.fits(self, ending=self.ending)


def due_run(row: Sequence[Any]) -> DueRun:
    run, dialect, interpreter, workspace, needs, ending = row
    return DueRun(run, dialect, interpreter, workspace, _needs(needs), bool(ending))


def _needs(kept: str) -> tuple[str, ...]:
    return () if kept == NONE else msgspec.json.decode(kept, type=tuple[str, ...])


def wait_row(row: Sequence[Any]) -> WaitRow:
    try:
        wait = msgspec.json.decode(row[0], type=WaitRow)
        wait.state, wait.answer, wait.by = row[1], msgspec.json.decode(row[2]), row[3]
    except msgspec.DecodeError as error:
        raise damaged(f"A wait cannot be read: {error}.") from None
    return wait


def wait_mark(body: Any) -> WaitMark:
    try:
        return msgspec.json.decode(body, type=WaitMark)
    except msgspec.DecodeError as error:
        raise damaged(f"A wait cannot be read: {error}.") from None


def step_row(run: str, body: Any) -> StepRow:
    try:
        return msgspec.json.decode(body, type=StepRow)
    except (msgspec.DecodeError, TypeError) as error:
        raise damaged(f"The steps of run {run} cannot be read: {error}.") from None


def whole_of(
    row: RunRow, steps: Sequence[Sequence[Any]], waits: Sequence[Sequence[Any]], records: list[Record]
) -> Whole:
    """Everything about a run, from rows whose JSON is followed by the columns that repeat parts of it.

    A step: body, path, label, visit, seq, status. A wait: body, state, answer, decider, id, tenant, owner, expires, opened, kind.
    """
    found = Whole(row, [], [wait_row(one[:4]) for one in waits], records)
    for body, *columns in steps:
        step = step_row(row.id, body)
        found.steps.append(step)
        if columns != [*step.key, step.seq, step.status]:
            found.odd = f"the row of step {step.label} contradicts itself"
    for wait, (*_, id, tenant, owner, expires, opened, kind) in zip(found.waits, waits, strict=True):
        shown = (wait.id, wait.run, wait.tenant, wait.owner, wait.expires, wait.opened, wait.kind)
        if shown != (id, row.id, tenant, owner, expires, opened, kind):
            found.odd = f"the row of the wait {id} contradicts itself"
    return found

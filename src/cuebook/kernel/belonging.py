"""Whether a journal is whole and that of the run it is said to be of. The chain alone shows neither: an empty journal has no
broken link, one that was cut ends well, and who started a run stands outside it as well. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.kernel.events import ENDED, Forked, RunFinished, RunStarted
from cuebook.kernel.journal import PURGED, Record, Verdict, time_of
from cuebook.kernel.run import RunRow, StepRow

_BEGINNINGS = (RunStarted.__name__, Forked.__name__)


def belongs(records: Sequence[Record], verdict: Verdict, said: Mapping[str, str]) -> Verdict:
    """The verdict, or a worse one where the records are not those of the run that is meant.

    `said` is what is told of it elsewhere, by the names of a beginning's fields. What a journal does not say (an old one, or
    one whose beginning was purged) is not compared.
    """
    if verdict.broken_at is not None:
        return verdict
    if not records or records[0].kind != RunStarted.__name__:
        return worse(verdict, 1, "the beginning of the run is missing")
    begun: dict[str, Any] = {}
    seq, run = 1, ""
    for record in records:
        if record.kind in _BEGINNINGS:
            begun, seq = _told(record), record.seq
            run = str(begun.get("run", record.run))
        if record.run != run:
            return worse(verdict, record.seq, "it is a record of another run")
    for name, value in said.items() if "run" in begun else ():
        if begun.get(name, "") != value:
            return worse(verdict, seq, f"the journal says {name} '{begun.get(name, '')}', and not '{value}'")
    return verdict


def keeps_up(records: Sequence[Record], verdict: Verdict, row: RunRow, steps: Sequence[StepRow]) -> Verdict:
    """The verdict, or a worse one where a row and steps that were read before the records know more than these."""
    if verdict.broken_at is not None:
        return verdict
    begins = row.parent_seq if row.parent else 1
    if len(records) < begins or records[begins - 1].kind not in _BEGINNINGS:
        return worse(verdict, begins, "the beginning of the run is missing")
    last = len(records)
    if max(map(time_of, records)) < row.updated or any(step.seq > last for step in steps):
        return worse(verdict, last + 1, "records are missing at the end of the journal")
    if row.status in ENDED and not any(_ends(record, row) for record in records[begins - 1 :]):
        return worse(verdict, last + 1, f"the run is said to be {row.status}, and no record says so")
    return verdict


def worse(verdict: Verdict, seq: int, problem: str) -> Verdict:
    return Verdict(verdict.records, verdict.head, seq, problem)


def _told(record: Record) -> dict[str, Any]:
    if record.body.startswith(PURGED):
        return {}
    told: dict[str, Any] = msgspec.json.decode(record.body)
    return told


def _ends(record: Record, row: RunRow) -> bool:
    if record.kind != RunFinished.__name__:
        return False
    return record.body.startswith(PURGED) or _told(record).get("status") == row.status

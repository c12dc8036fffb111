"""Logs what happens to the runs of this process.

A line names the run, its playbook and its step, who did something, and codes; never what an input, a prompt, a reply or the words
of an error say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from cuebook.kernel.events import (
    CancelRequested,
    ContentsPurged,
    Driven,
    Forked,
    Moved,
    Noted,
    Performed,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Suspended,
    TextChunk,
    TextReset,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry, visit_at
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import RunRow
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.runs")

_ATTEMPTS = {
    "model_attempt": ("model.attempt", logging.WARNING, ("model", "number", "of", "kind", "wait")),
    "model_fallback": ("model.fallback", logging.WARNING, ("model", "to", "kind")),
    "model_waiting": ("model.waiting", logging.INFO, ("provider", "at_once", "requests_per_minute")),
    "model_waited": ("model.waited", logging.INFO, ("provider", "seconds")),
}
"""Notes about the calls to providers: the name of the event, its level, and the fields that may be logged."""
_QUIET = ("timer", "message")
"""Waits that are part of a playbook's course."""


def label_of(step: str) -> str:
    """The label of a step without the key of its item, which comes from the data that a loop goes through."""
    return step.partition("[")[0]


class RunLog:
    """An observer of an engine."""

    def __init__(self, row_of: Callable[[str], RunRow | None]) -> None:
        """`row_of` returns the row of a run that this process drives."""
        self._row_of = row_of

    def see(self, seen: Entry | TextChunk | TextReset) -> None:
        if isinstance(seen, Entry):
            write = _WRITERS.get(type(seen.event))
            if write is not None:
                write(self, seen, seen.event)

    def _write(self, entry: Entry, event: str, level: int = logging.INFO, /, **fields: Any) -> None:
        if not log.isEnabledFor(level):
            return
        row = self._row_of(entry.run)
        step = label_of(visit_at(entry.place)[0])
        log_event(log, event, level, run=entry.run, playbook=row.name if row else "", **{"step": step, **fields})

    # --- runs ---

    def _started(self, entry: Entry, event: RunStarted | Forked) -> None:
        fields: dict[str, Any] = {"playbook": event.name, "by": event.owner, "tenant": event.tenant}
        fields |= {"trigger": event.trigger, "caller": event.caller}
        fields["parent"] = event.parent if isinstance(event, Forked) else ""
        log_event(log, "run.started", run=entry.run, **fields)

    def _driven(self, entry: Entry, event: Driven) -> None:
        self._write(entry, "run.driving", machine=event.machine)

    def _suspended(self, entry: Entry, event: Suspended) -> None:
        self._write(entry, "run.waits", status=event.status, reason=event.reason, needs=list(event.needs) or None)

    def _finished(self, entry: Entry, event: RunFinished) -> None:
        row = self._row_of(entry.run)
        fields: dict[str, Any] = {"status": event.status, "step": label_of(event.step)}
        if event.error is not None:
            fields |= {"code": event.error.code}
        if row is not None:
            totals = row.totals
            fields |= {"by": row.owner, "seconds": round(totals.seconds, 3), "calls": totals.calls}
            fields |= {"tokens": totals.tokens, "cost": round(totals.cost, 6), "unknown_costs": totals.unknown_costs}
        self._write(entry, "run.ended", logging.WARNING if event.status == "failed" else logging.INFO, **fields)

    def _rewound(self, entry: Entry, event: Rewound) -> None:
        self._write(entry, "run.rewound", by=event.by)

    def _cancelled(self, entry: Entry, event: CancelRequested) -> None:
        self._write(entry, "run.cancelling", by=event.by, hard=event.hard or None)

    def _moved(self, entry: Entry, event: Moved) -> None:
        self._write(entry, "run.moved", by=event.by)

    def _purged(self, entry: Entry, event: ContentsPurged) -> None:
        self._write(entry, "run.purged", by=event.by)

    # --- steps and effects ---

    def _step_started(self, entry: Entry, event: StepStarted) -> None:
        self._write(entry, "step.started", logging.DEBUG, step=label_of(event.label))

    def _step_finished(self, entry: Entry, event: StepFinished) -> None:
        level = logging.WARNING if event.status == "failed" else logging.DEBUG
        fields = {"step": label_of(event.label), "status": event.status, "seconds": round(event.seconds, 3)}
        self._write(entry, "step.ended", level, **fields)

    def _performed(self, entry: Entry, event: Performed) -> None:
        kind = event.fingerprint.partition(" ")[0]
        failed = event.outcome if isinstance(event.outcome, Failed) else None
        level = logging.DEBUG if failed is None else logging.INFO
        self._write(entry, "effect.ended", level, kind=kind, code="" if failed is None else failed.code)

    def _noted(self, entry: Entry, event: Noted) -> None:
        if event.name in _ATTEMPTS:
            name, level, fields = _ATTEMPTS[event.name]
            self._write(entry, name, level, **{one: event.data.get(one) for one in fields})

    def _warned(self, entry: Entry, event: Warned) -> None:
        self._write(entry, "run.warning", code=event.code)

    # --- waits ---

    def _opened(self, entry: Entry, event: WaitOpened) -> None:
        level = logging.DEBUG if event.kind in _QUIET else logging.INFO
        self._write(entry, "wait.opened", level, wait=event.wait, kind=event.kind)

    def _closed(self, entry: Entry, event: WaitClosed) -> None:
        level = logging.DEBUG if event.kind in _QUIET or event.how == "answered" else logging.INFO  # `wait.decided`
        self._write(entry, "wait.closed", level, wait=event.wait, kind=event.kind, how=event.how, by=event.by)


_WRITERS: dict[type, Callable[[RunLog, Entry, Any], None]] = {
    RunStarted: RunLog._started,
    Forked: RunLog._started,
    Driven: RunLog._driven,
    Suspended: RunLog._suspended,
    RunFinished: RunLog._finished,
    Rewound: RunLog._rewound,
    CancelRequested: RunLog._cancelled,
    Moved: RunLog._moved,
    ContentsPurged: RunLog._purged,
    StepStarted: RunLog._step_started,
    StepFinished: RunLog._step_finished,
    Performed: RunLog._performed,
    Noted: RunLog._noted,
    Warned: RunLog._warned,
    WaitOpened: RunLog._opened,
    WaitClosed: RunLog._closed,
}

"""Notices: what people may want to know about a run, as jobs that are put in the run's own transaction.

Nothing here knows whom to notify, or how: the service that takes these jobs does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import FOR_PEOPLE, Performed, RunFinished, Suspended
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import CHILD, SUPERSEDED_RUN, USED, Failed, PlaybookResult, Reply
from cuebook.kernel.ports import Job, Outbox
from cuebook.kernel.run import RunRow, WaitRow

NOTICE = "notice"
"""The kind of these jobs."""
What = Literal["waiting", "failed", "ended", "budget", "schedule"]
WHAT: tuple[What, ...] = get_args(What)
_ROUNDING = 1e-9
"""Sums of small amounts are not exact."""
_SHOWN = 400
"""Characters of a text that a notice keeps."""


def notice(
    tenant: str,
    what: What,
    *,
    at: float,
    key: str,
    run: str = "",
    wait: str = "",
    playbook: str = "",
    owner: str = "",
    text: str = "",
) -> Job:
    """A notice, to be put with `Batch.jobs` or `Service.notify`. Of two notices with the same key, only the first counts."""
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    said = {"what": what, "run": run, "wait": wait, "playbook": playbook, "owner": owner, "text": text}
    return Job(tenant=tenant, kind=NOTICE, name=key, due=at, body={"at": at, **{k: v for k, v in said.items() if v}})


def notices_of(row: RunRow, entries: Sequence[Entry], opened: Sequence[WaitRow]) -> list[Job]:
    """The notices that follow from records: a run began to wait for a person, failed or ended."""
    return [*_of_waits(row, opened), *_of_records(row, entries)]


def marks_of(marks: Sequence[float]) -> Outbox:
    """Puts a notice when the spending of a run, with that of the runs it started, passes one of these amounts of money."""

    def passed(row: RunRow, entries: Sequence[Entry], opened: Sequence[WaitRow]) -> list[Job]:
        if row.caller or not marks or row.totals.cost < marks[0]:
            return []
        before = row.totals.cost - sum(map(_cost, entries))
        return [
            notice(
                row.tenant,
                "budget",
                at=entries[-1].at,
                key=f"{row.id}.{entries[-1].seq}.mark.{mark:g}",
                run=row.id,
                playbook=row.name,
                owner=row.owner,
                text=f"It has spent ${row.totals.cost:.2f}, which is more than ${mark:g}.",
            )
            for mark in marks
            if before < mark - _ROUNDING <= row.totals.cost
        ]

    return passed


def _cost(entry: Entry) -> float:
    """What a record adds to the cost of its run."""
    outcome = entry.event.outcome if type(entry.event) is Performed else None
    if type(outcome) is Reply:
        return outcome.usage.cost or 0.0
    if type(outcome) is PlaybookResult:
        return float(outcome.used.get("cost", 0.0))
    if type(outcome) is Failed:
        used = outcome.details.get("usage") or (outcome.details.get(USED, {}) if CHILD in outcome.details else {})
        return float(used.get("cost") or 0.0)
    return 0.0


def _of_waits(row: RunRow, opened: Sequence[WaitRow]) -> Iterator[Job]:
    for wait in opened:
        if wait.kind in FOR_PEOPLE:
            yield _notice(row, "waiting", wait.opened, wait.id, wait.prompt, wait.id)


def _of_records(row: RunRow, entries: Sequence[Entry]) -> Iterator[Job]:
    for entry in entries:
        event, key = entry.event, f"{row.id}.{entry.seq}"
        if type(event) is Suspended and event.reason == NonDeterminism.code:
            yield _notice(row, "waiting", entry.at, key, "Its program no longer fits its journal.")
        if type(event) is not RunFinished or row.caller:  # the run that started a child reports on it
            continue
        error = event.error
        if error is not None and error.code == SUPERSEDED_RUN:
            continue
        failed = event.status in ("failed", "expired")
        yield _notice(row, "failed" if failed else "ended", entry.at, key, "" if error is None else error.message)


def _notice(row: RunRow, what: What, at: float, key: str, text: str, wait: str = "") -> Job:
    return notice(
        row.tenant, what, at=at, key=key, run=row.id, wait=wait, playbook=row.name, owner=row.owner, text=text
    )

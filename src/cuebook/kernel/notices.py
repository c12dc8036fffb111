"""Notices: what people may want to know about a run, as jobs that are put in the run's own transaction.

Nothing here knows whom to notify, or how: the service that takes these jobs does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import FOR_PEOPLE, RunFinished, Suspended
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import SUPERSEDED_RUN
from cuebook.kernel.ports import Job
from cuebook.kernel.run import RunRow, WaitRow

NOTICE = "notice"
"""The kind of these jobs."""
What = Literal["waiting", "failed", "ended", "budget", "schedule"]
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

"""Cancels, retries or resumes many runs: each as if it were the only one, with its own permission and its own record.

A run that cannot be continued, or that the user may not touch, is refused with the reason; the others are not affected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, CuebookError, Refused
from cuebook.kernel.events import ENDED, PAUSES, UNDER_WAY, WAITING, CancelRequested, Rewound
from cuebook.kernel.ports import RunFilter
from cuebook.kernel.run import RunRow, Signal
from cuebook.service.runs.children import check_not_child
from cuebook.service.runs.lists import RunPage
from cuebook.service.service import Service
from cuebook.stores.refusals import check_signal, no_run

BulkAct = Literal["cancel", "retry", "resume"]
MOST = 500
"""Runs that one call considers."""
STATUSES: Mapping[BulkAct, Sequence[str]] = {
    "cancel": tuple(sorted(UNDER_WAY | WAITING)),
    "retry": ("cancelled", "expired", "failed"),
    "resume": ("paused",),
}
"""Which runs are considered if no status is given."""
Check = Callable[[RunRow], Awaitable[None]]
"""Raises a `CuebookError` if a surface has a reason not to touch a run."""


class NotDone(msgspec.Struct, frozen=True):
    """A run that was left as it was."""

    run: str
    code: str
    reason: str
    fix: str = ""


class Acted(msgspec.Struct):
    """What was done, or would be."""

    done: list[str] = []
    refused: list[NotDone] = []
    next: str = ""
    """The cursor with which the next call continues; empty if there are no more runs."""


class BulkActs:
    """Acts on the runs of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def act(
        self,
        act: BulkAct,
        which: RunFilter,
        who: Principal = Principal(),
        *,
        limit: int = 100,
        cursor: str = "",
        reason: str = "",
        whole_step: bool = False,
        dry_run: bool = False,
        check: Check | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> Acted:
        """Acts on at most `limit` of the runs that fit, newest first. `said` is how the user chose them, for the audit."""
        page = await self.page(act, which, who, limit=limit, cursor=cursor)
        named = () if which.get("status") else which.get("among") or ()
        acted = Acted(next=page.next)
        if named and not cursor and not page.next:
            for run in sorted(set(named) - {row.id for row in page.rows}):
                acted.refused.append(_not_done(run, no_run(run)))
        for row in page.rows:
            try:
                await self._check(act, row, who)
                if check is not None:
                    await check(row)
                if not dry_run:
                    await self._do(act, row, who, reason, whole_step)
                acted.done.append(row.id)
            except CuebookError as error:
                acted.refused.append(_not_done(row.id, error))
        if acted.done and not dry_run:
            counts = {"done": len(acted.done), "refused": len(acted.refused)}
            words = {"reason": reason} if reason else {}
            await self._service.record_act(f"runs.{act}", "", who, {**dict(said or {}), **words, **counts})
        return acted

    async def page(
        self, act: BulkAct, which: RunFilter, who: Principal = Principal(), *, limit: int = 100, cursor: str = ""
    ) -> RunPage:
        """The runs that would be considered. Without a status, or ids, only those in a status that the act is for."""
        if not any(value not in (None, (), []) for value in which.values()):
            raise BadInput("Nothing says which runs are meant.", fix="For example: a playbook, or a status.")
        asked = which.copy()
        if not asked.get("status") and asked.get("among") is None:
            asked["status"] = STATUSES[act]
            if act == "resume":
                asked["among"] = {row.id for row in await self._service.interrupted(who)}
        return await self._service.page(asked, limit=min(limit, MOST), cursor=cursor, who=who)

    async def _check(self, act: BulkAct, row: RunRow, who: Principal) -> None:
        """Raises what the act would raise."""
        service = self._service
        if act == "cancel":
            await service.check_cancel(row, who)
            check_signal(Signal(row.id, "cancel"), row.status, under_way=False)
            if await self._is_cancelling(row):
                words = "a second cancel would stop it at once, without undoing what it did"
                raise Refused(f"Run {row.id} is already being cancelled: {words}.", fix=f"`cuebook cancel {row.id}`")
        elif act == "retry":
            who.require("runner", "retry runs")
            await service.check_retry(row, who)
            check_signal(Signal(row.id, "retry"), row.status, under_way=False)
        else:
            who.require("runner", "resume runs")
            check_not_child(row, "resumed")
            pauses = [wait for wait in await service.waits(row.id) if wait.kind in PAUSES]
            if not pauses and not await service.is_interrupted(row.id):
                status = row.status.replace("_", " ")
                raise Refused(f"Run {row.id} is {status}: there is no pause to end.", fix=f"`cuebook show {row.id}`")

    async def _do(self, act: BulkAct, row: RunRow, who: Principal, reason: str, whole_step: bool) -> None:
        if act == "cancel":
            await self._service.cancel(row.id, reason, who)
        elif act == "retry":
            await self._service.retry(row.id, whole_step=whole_step, who=who)
        else:
            await self._service.resume(row.id, who)

    async def _is_cancelling(self, row: RunRow) -> bool:
        """Whether a run is undoing what it did. One that was retried since it was cancelled is not."""
        kinds = (CancelRequested.__name__, Rewound.__name__)
        last = [record.kind async for record in self._service.records(row.id, kinds)][-1:]
        return row.status not in ENDED and last == [CancelRequested.__name__]


def _not_done(run: str, error: CuebookError) -> NotDone:
    return NotDone(run, error.code, error.message, error.fix or "")

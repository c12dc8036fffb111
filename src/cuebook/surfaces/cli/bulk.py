"""Cancels, retries or resumes the runs that options select: shows which, asks, acts on each, and drives those it can."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from cuebook.kernel.errors import BadInput, CuebookError, Elsewhere
from cuebook.kernel.ports import RunFilter
from cuebook.kernel.run import RunRow
from cuebook.service.runs.bulk import MOST, Acted, BulkAct, NotDone
from cuebook.service.service import Principal, Service
from cuebook.service.worker import leave_to_workers
from cuebook.surfaces import display
from cuebook.surfaces.cli import selection, session
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.ask import someone_is_there
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.wiring import Wiring

OPTIONS: list[click.Parameter] = [
    *selection.OPTIONS,
    click.Option(["--dry-run"], is_flag=True, help="With such options: only show what would be done."),
    click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation."),
]
_DONE = {"cancel": "cancelled", "retry": "retried", "resume": "resumed"}
_FAILED = {"failed", "cancelled", "expired"}
"""The ends of a run that is retried or resumed which are not what was wanted."""
_AT_ONCE = 10
"""Runs that this process drives at the same time."""
_SHOWN = 10
_TOGETHER = 100
"""Runs that one call acts on."""


def is_meant(given: Given) -> bool:
    """Whether options select runs. Raises `BadInput` if a run is named as well, or nothing is."""
    asked = selection.asked_of(given)
    if given["run"] and asked.says_something:
        raise BadInput("RUN cannot be combined with options that select runs.", fix="Leave out RUN, or the options.")
    if not given["run"] and not asked.says_something:
        raise BadInput(
            "Missing argument 'RUN'.", fix="Name a run, or select many, for example with --status or --playbook."
        )
    if given["run"] and given["dry_run"]:
        raise BadInput("--dry-run is for options that select runs.", fix="Leave it out.")
    return asked.says_something


def act(given: Given, act: BulkAct) -> int:
    """Acts on the runs that the options select. The exit code is 1 if one was refused, or was driven and failed."""
    asked = selection.asked_of(given)
    wires = session.wiring_of(given)

    async def work(service: Service) -> int:
        who = await session.acting(service, given)
        left = {row.id for row in await service.interrupted(who)}
        rows = await _selected(service, act, asked.checked(service.clock(), left, "--"), who)
        if rows and not given["dry_run"] and not given["yes"]:
            _confirm(given, act, rows)
        acted = Acted()
        for first in range(0, len(rows), _TOGETHER):
            part = await service.bulk.act(
                act,
                RunFilter(among=[row.id for row in rows[first : first + _TOGETHER]]),
                who,
                limit=_TOGETHER,
                reason=given.get("reason") or "",
                whole_step=bool(given.get("whole_step")),
                dry_run=given["dry_run"],
                check=None if act == "cancel" else lambda row: _check_here(service, wires, row),
                said=asked.words,
            )
            acted.done += part.done
            acted.refused += part.refused
        ended = {} if given["dry_run"] else await _driven(service, acted)
        return _report(given, act, acted, ended)

    return session.look(given, work)


async def _selected(service: Service, act: BulkAct, which: RunFilter, who: Principal) -> list[RunRow]:
    rows: list[RunRow] = []
    cursor = ""
    while True:
        page = await service.bulk.page(act, which, who, limit=MOST, cursor=cursor)
        rows += page.rows
        cursor = page.next
        if not cursor:
            return rows


async def _check_here(service: Service, wires: Wiring, row: RunRow) -> None:
    """Raises the reason why this process could not continue a run, before anything is changed."""
    service.check_program(row)
    if service.gate is not None and not service.is_shared:
        service.gate.check_place(row)
    if row.model:
        wires.providers.check(row.model)


def _confirm(given: Given, act: BulkAct, rows: Sequence[RunRow]) -> None:
    for row in rows[:_SHOWN]:
        complain(f"{row.id}  {display.moment(row.created)}  {display.status_of(row)}  {row.name}")
    if len(rows) > _SHOWN:
        complain(f"... and {len(rows) - _SHOWN:,} more; --dry-run lists them all.")
    if not someone_is_there(given):
        raise BadInput(
            f"Nothing was changed: to {act} {display.counted(len(rows), 'run')} needs your confirmation.",
            fix="Repeat the command with --yes.",
        )
    if not click.confirm(f"{act.capitalize()} {display.counted(len(rows), 'run')}?", default=False, err=True):
        raise BadInput("Nothing was changed.", fix="`cuebook runs` takes the same options.")


async def _driven(service: Service, acted: Acted) -> dict[str, str]:
    """Drives the runs until they wait or end, a few at a time; returns their statuses."""
    room = asyncio.Semaphore(_AT_ONCE)
    ended: dict[str, str] = {}

    async def drive(run: str) -> None:
        async with room:
            try:
                row = await service.row(run)
                if not service.is_dispatched(row):
                    row = await service.drive(run)
                ended[run] = row.status
            except Elsewhere as error:
                if service.is_shared:
                    await leave_to_workers(service, run)
                else:
                    complain(f"cuebook: {error}")
            except CuebookError as error:  # the others continue
                complain(f"cuebook: {error}")

    await asyncio.gather(*(drive(run) for run in acted.done))
    return ended


def _report(given: Given, act: BulkAct, acted: Acted, ended: dict[str, str]) -> int:
    dry = bool(given["dry_run"])
    if given["as_json"]:
        refused = [msgspec.to_builtins(one) for one in acted.refused]
        done: list[Any] = [{"run": run, "status": ended.get(run)} for run in acted.done]
        sys.stdout.write(views.json_line({"act": act, "done": done, "refused": refused, "dry_run": dry}))
    else:
        if dry:
            for run in acted.done:
                say(run)
        would = "would be " if dry else ""
        words = [f"{display.counted(len(acted.done), 'run')} {would}{_DONE[act]}"]
        if acted.refused:
            words.append(f"{display.counted(len(acted.refused), 'run')} refused")
        say(", ".join(words) + ".")
        now = Counter(ended.values())
        if now and set(now) != {_DONE[act]}:
            say(
                "Now " + ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in now.most_common()) + "."
            )
        _explain(acted.refused)
    return 1 if acted.refused or (act != "cancel" and set(ended.values()) & _FAILED) else 0


def _explain(refused: list[NotDone]) -> None:
    for one in refused[:_SHOWN]:
        complain(f"refused {one.run}: {one.reason} {one.fix}".rstrip())
    if len(refused) > _SHOWN:
        complain(f"... and {len(refused) - _SHOWN:,} more; --json lists them all.")

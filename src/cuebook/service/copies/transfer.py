"""Copies runs from one store to another, waiting ones included, and checks each copy by its chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Literal

import msgspec

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import RunExists
from cuebook.kernel.events import ENDED
from cuebook.kernel.fold.verify import texts_behind
from cuebook.kernel.journal import Verdict, verify
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.kernel.triggers import NAMED_TRIGGERS
from cuebook.service.secrets.sensitive import INDEX, payload
from cuebook.service.start import programs_of

KEPT = (
    *("user", "secret", "override", "trust", "state", "budget", "budget_mark", "budget_release"),
    *("notify_preferences", "slack_link", "standing", "former_user", "groups_of_user", "comparison"),
)
"""The kinds of decisions that apply to all runs of a store, and the values that runs keep for later ones."""

_PERSONAL = ("user", "notify_preferences", "slack_link", "standing", "groups_of_user")
"""Those that end when the person is removed, and do not come back with a copy."""

_TOGETHER = 500
"""Lines about removed runs that are added in one transaction."""
EARLIER = (
    "an earlier state of it is there, and a copy never changes a run, because another process may be driving it;"
    " copy to a new file or an empty database instead"
)


class Copied(msgspec.Struct, frozen=True):
    """The result for one run."""

    run: str
    result: Literal["copied", "present", "driven", "broken"]
    unfinished: bool = False
    detail: str = ""


Check = Callable[[str], Awaitable[Verdict]]


def full_check(store: Store) -> Check:
    """The check that `cuebook audit --verify` makes: of a run's journal, its rows, its playbook and its texts."""
    return Engine(store, programs_of(None)).verify


async def copy_runs(
    source: Store,
    target: Store,
    see: Callable[[Copied], None],
    check: Check | None = None,
    *,
    driven: bool = False,
    only: Collection[str] | None = None,
) -> list[Copied]:
    """Copies every run that the target does not have, parents before their forks. Changes nothing in the source.

    A run that is being driven is skipped, because its journal is still growing, and so is one that fails the check of its
    chain, or the `check` that is given. With `driven`, such a run is copied as it is at one moment, as if its driver had been
    killed then. With `only`, no other runs are copied.
    """
    rows = {row.id: row for row in await source.runs(limit=None)}
    results: dict[str, Copied] = {}
    for run in sorted(rows if only is None else only, key=lambda run: rows[run].created):
        for one in reversed(_lineage(rows, run)):
            if one not in results:
                results[one] = await _copy(source, target, rows[one], check, driven)
                see(results[one])
    return list(results.values())


async def copy_decisions(source: Store, target: Store) -> int:
    """Copies users, secrets, overrides, trust, budgets, schedules and triggers that the target does not have; returns how
    many. What runs used is copied too, and so are the lines about runs that were removed, and the audit of administrative
    acts, unless the target has another one. A user whom the target has removed stays removed.
    """
    copied = 0
    for kind in KEPT:
        for tenant in await source.tenants(kind):
            present, gone = await target.kept(tenant, kind), await target.kept(tenant, "former_user")
            users = await target.kept(tenant, "user") if kind == "former_user" else {}
            for name, body in (await source.kept(tenant, kind)).items():
                whose = {"slack_link": body.get("person"), "standing": body.get("by")}.get(kind, name)
                was_removed = kind in _PERSONAL and whose in gone
                if name not in present and name not in users and not was_removed:
                    await target.keep(tenant, kind, name, body)
                    copied += 1
    copied += await copy_sensitive(source, target) + await _copy_triggers(source, target)
    await target.take_spending(await source.spending())
    for tenant in {*await source.tenants_with_runs(), *await source.act_tenants()}:
        removals = await source.removals(tenant, limit=None)
        for first in range(0, len(removals), _TOGETHER):
            await target.bring_in_removals(removals[first : first + _TOGETHER])
    await _copy_acts(source, target)
    return copied


async def copy_sensitive(source: Store, target: Store, only: Collection[str] | None = None) -> int:
    """Copies the values of sensitive inputs that the target does not have. With `only`, no other runs' are."""
    copied = 0
    for tenant in await source.tenants(INDEX):
        for run, body in (await source.kept(tenant, INDEX)).items():
            if only is not None and run not in only:
                continue
            values = (await source.kept(tenant, payload(run))).get("inputs")
            if values is not None and not await target.is_kept(tenant, payload(run), "inputs"):
                await target.keep(tenant, INDEX, run, body)
                await target.keep(tenant, payload(run), "inputs", values)
                copied += 1
    return copied


async def _copy_triggers(source: Store, target: Store) -> int:
    """Copies the schedules and other triggers. From then on they fire in both stores, if both are served."""
    copied = 0
    for kind in NAMED_TRIGGERS:
        for job in await source.jobs(kind):
            copied += await target.put_job(msgspec.structs.replace(job, version=0)) is not None
    return copied


async def _copy_acts(source: Store, target: Store) -> None:
    """Copies the audit of administrative acts, as far as the target has the beginning of the same one."""
    for tenant in await source.act_tenants():
        seq, head = await target.act_head(tenant)
        if seq and [one.chain for one in await source.acts(tenant, after=seq - 1, limit=1)] != [head]:
            continue  # it has an audit of its own
        while page := await source.acts(tenant, after=seq):
            await target.bring_in_acts(tenant, page)
            seq = page[-1].seq


def _lineage(rows: dict[str, RunRow], run: str) -> list[str]:
    """The run and the runs that it was forked from, youngest first."""
    found = [run]
    while (parent := rows[found[-1]].parent) and parent in rows:
        found.append(parent)
    return found


async def _copy(source: Store, target: Store, row: RunRow, check: Check | None, driven: bool) -> Copied:
    unfinished = row.status not in ENDED
    if not driven and await source.alive(row.id):
        return Copied(row.id, "driven", unfinished, "a process is driving it")
    verdict = verify((await source.whole(row.id)).records)
    if verdict.broken_at is not None:
        return Copied(row.id, "broken", unfinished, f"record {verdict.broken_at} of its journal was changed")
    verdict = verdict if check is None else await check(row.id)
    if verdict.broken_at is not None:
        return Copied(row.id, "broken", unfinished, f"it is broken at record {verdict.broken_at}: {verdict.problem}")
    copy = await source.take_out(row.id)
    ours = [record.chain for record in copy.records]
    unfinished = copy.row.status not in ENDED  # it may have ended since the runs were listed
    behind = texts_behind(copy.records, source.text)
    copy.texts = {found.digest: found.text for found in behind if found.text is not None}
    for digest in copy.files:
        await _copy_file(source, target, row.tenant, digest)
    try:
        await target.bring_in(copy)
    except RunExists:
        known = await _chain(target, row.id)
        if known[: len(ours)] == ours:
            return Copied(row.id, "present", unfinished)
        earlier = ours[: len(known)] == known
        return Copied(row.id, "present", unfinished, EARLIER if earlier else "another run with this id is there")
    if await _chain(target, row.id) != ours:
        return Copied(row.id, "broken", unfinished, "the copy differs from the original")
    return Copied(row.id, "copied", unfinished)


async def _chain(store: Store, run: str) -> list[bytes]:
    """The chain values of a run's own records."""
    return [record.chain for record in (await store.take_out(run)).records]


async def _copy_file(source: Store, target: Store, tenant: str, digest: str) -> None:
    """Copies a file piece by piece, unless the target has it. A file that was purged stays missing."""
    if await target.has_file(tenant, digest) or not await source.has_file(tenant, digest):
        return
    number = size = 0
    while (piece := await source.piece(tenant, digest, number)) is not None:
        await target.put_piece(tenant, digest, number, piece)
        number, size = number + 1, size + len(piece)
    await target.put_file(tenant, digest, size)

"""Removes runs for an admin: deletes them, or purges their contents and keeps the chain of their journals.

A run goes together with its children. What others depend on stays, and the reason is said, unless the removal is forced;
then the reason is recorded. The store is never locked for long: each step is a short transaction, with a pause after it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from cuebook.gate.gate import revoked_in
from cuebook.gate.roles import Principal
from cuebook.gate.sensitive import is_mark, marks_in
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import BadInput, Busy, CuebookError, NotFound, Refused
from cuebook.kernel.events import ENDED, Forked, RunStarted
from cuebook.kernel.ports import Removal, RunMark, Space, Swept
from cuebook.kernel.run import RunRow
from cuebook.service.parts import RemoveFiles, no_files
from cuebook.service.retention.clock import is_steady
from cuebook.service.retention.criteria import Criteria
from cuebook.service.secrets.sensitive import INDEX, payload
from cuebook.service.worker import EVERYONE, SERVED
from cuebook.stores.refusals import PURGED_RUN

_AT_ONCE = 10
"""Runs whose rows are deleted in one transaction."""
_LISTED = 500
"""Runs that are looked at together."""


class Blocked(msgspec.Struct, frozen=True):
    """A run that was not removed."""

    run: str
    reason: str
    fix: str = ""


class Outcome(msgspec.Struct):
    """What a removal did, or would do."""

    deleted: list[str] = []
    purged: list[str] = []
    blocked: list[Blocked] = []
    triggers: list[str] = []
    """Schedules and other triggers of a person whose data is erased."""
    size: int = 0
    """Bytes of the records and files of these runs. Files that other runs have too are not freed."""


Record = Callable[[str, str, Principal, dict[str, Any]], Awaitable[object]]
"""Records an administrative act: what, its subject, who, and details."""


class Retention:
    """Removes runs of one store."""

    def __init__(
        self,
        engine: Engine,
        record: Record,
        is_limited: Callable[[Principal], bool] = lambda who: False,
        digest: Callable[[str], str] = lambda value: "",
        remove_private_files: RemoveFiles = no_files,
    ) -> None:
        """`is_limited` says whether there may be runs that a user does not see. `remove_private_files` removes what performers
        keep of a run on this machine.
        """
        self._engine = engine
        self._is_limited = is_limited
        self._digest = digest
        self._remove_private_files = remove_private_files
        self._store = engine.store
        self._record = record

    # --- looking ---

    async def usage(self, who: Principal = Principal()) -> list[Space]:
        """The space that all runs use. It names their playbooks and counts them, so it is for those who see all runs."""
        who.require("admin" if self._is_limited(who) else "viewer", "see the space that the runs of others use")
        return await self._store.usage(who.tenant)

    async def removals(self, who: Principal = Principal(), *, limit: int | None = 100) -> list[Removal]:
        """The runs that were deleted or purged, newest first. Nobody knows whose they were, so only those who see all runs
        see them.
        """
        who.require("viewer", "view runs")
        if self._is_limited(who):
            return []
        return await self._store.removals(who.tenant, limit=limit)

    async def removal_of(self, run: str, tenant: str) -> Removal | None:
        found = await self._store.removals(tenant, run)
        return found[0] if found else None

    async def clock_is_steady(self) -> bool:
        """Whether the clock can be trusted to decide what is old."""
        return await is_steady(self._store)

    async def tenants(self) -> list[str]:
        """The tenants that have runs."""
        return await self._store.tenants_with_runs()

    # --- removing ---

    async def delete(
        self,
        run: str,
        who: Principal = Principal(),
        *,
        force: bool = False,
        contents: bool = False,
        reason: str = "",
    ) -> Outcome:
        """Deletes a run with its children, or with `contents`, only purges their contents. Raises `Refused` or `Busy`."""
        who.require("admin", "delete runs")
        row = await self._store.run(run)
        outcome = Outcome()
        await self._remove([row], who, outcome, set(), force=force, contents=contents, reason=reason)
        await self.sweep()
        for one in outcome.blocked:
            raise Refused(one.reason, fix=one.fix)
        await self._record_removal("delete", row.id, outcome, who, {"reason": reason, "forced": force})
        return outcome

    async def prune(
        self,
        criteria: Criteria,
        who: Principal = Principal(),
        *,
        contents: bool = False,
        force: bool = False,
        reason: str = "",
        dry_run: bool = False,
        pause: float = 0.0,
    ) -> Outcome:
        """Removes the runs that fit. Runs that others depend on and runs that wait stay, unless that is forced. `pause` is how many seconds to wait between runs."""
        who.require("admin", "delete runs")
        if not criteria.says_something:
            raise BadInput("Nothing says which runs to remove.", fix="For example: --older-than 30d.")
        outcome, going = Outcome(), set[str]()
        async for rows in self._chosen(criteria, who.tenant):
            if contents:
                rows = [row for row in rows if row.reason != PURGED_RUN]
            await self._remove(
                rows,
                who,
                outcome,
                going,
                force=force,
                contents=contents,
                reason=reason,
                dry_run=dry_run,
                pause=pause,
            )
        if not dry_run:
            await self.sweep()
            told = {"criteria": msgspec.to_builtins(criteria), "reason": reason, "forced": force}
            await self._record_removal("prune", criteria.playbook, outcome, who, told)
        return outcome

    async def _chosen(self, criteria: Criteria, tenant: str) -> AsyncIterator[list[RunRow]]:
        """The runs that fit, a part at a time, so that no list grows with the store."""
        now = self._engine.clock()
        which = criteria.candidates(now)
        which["tenant"] = tenant
        seen: Counter[str] = Counter()
        while rows := await self._store.runs(limit=_LISTED, **which):
            which["before"] = RunMark(rows[-1].created, rows[-1].id)
            measured = [] if criteria.larger_than is None else [row.id for row in rows]
            sizes = await self._store.sizes(tenant, measured) if measured else {}
            yield criteria.selected(rows, now, sizes, seen)
            await asyncio.sleep(0)  # a long list must not hold up everything else in this process

    async def erase(
        self,
        who: Principal = Principal(),
        *,
        owner: str = "",
        inputs: Mapping[str, str] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Outcome:
        """Deletes all runs of a user, or all runs with these inputs, with the runs that were forked from them, and first the
        triggers that would start more of them.
        """
        who.require("admin", "erase data")
        if not owner and not inputs:
            raise BadInput("Nothing says whose data to erase.", fix="Pass --owner NAME or --input NAME=VALUE.")
        from cuebook.service.triggers.erasure import forget_triggers

        outcome, fits = Outcome(), partial(self._fit, inputs) if inputs else None
        outcome.triggers = await forget_triggers(self._store, who.tenant, owner, fits, dry_run=dry_run)
        rows = await self._store.runs(tenant=who.tenant, limit=None)
        by_id = {row.id: row for row in rows}
        found = [
            row for row in rows if owner in ("", row.owner) and (not inputs or await self._has_inputs(row.id, inputs))
        ]
        concerned = {_outermost(row, by_id).id for row in found}
        for row in reversed(rows):  # oldest first, so that forks of forks are found
            if row.parent in by_id and _outermost(by_id[row.parent], by_id).id in concerned:
                concerned.add(_outermost(row, by_id).id)
        chosen = [row for row in rows if row.id in concerned]
        words = "a person's data" + (", by owner" if owner else "")
        words += f", by the input {', '.join(sorted(inputs))}" if inputs else ""
        await self._remove(chosen, who, outcome, set(), force=force, reason=words, dry_run=dry_run)
        if not dry_run:
            await self.sweep()
        if owner and not dry_run:
            from cuebook.service import comparisons
            from cuebook.service.budgets import erasure as budgets
            from cuebook.service.notifications import erasure as notifications

            await budgets.forget_person(self._store, who.tenant, owner)
            await notifications.forget_person(self._store, who.tenant, owner)
            await comparisons.forget_owner(self._store, who.tenant, owner)
        if not dry_run:
            told = {"inputs": sorted(inputs or ()), "forced": force}
            await self._record_removal("erase", "", outcome, who, told)  # not whose data it was
        return outcome

    async def sweep(self) -> Swept:
        """Frees the space of everything that was removed, step by step."""
        total = Swept(more=True)
        while total.more:
            began = time.perf_counter()
            swept = await self._store.sweep(self._engine.clock())
            total = Swept(total.rows + swept.rows, total.texts + swept.texts, total.files + swept.files, swept.more)
            await _let_others_write(began)
        return total

    # --- inside ---

    async def _record_removal(
        self, what: str, subject: str, outcome: Outcome, who: Principal, details: dict[str, Any]
    ) -> None:
        """Records what was removed, unless it was nothing. The names of inputs are recorded, but never their values."""
        counts = {"deleted": len(outcome.deleted), "purged": len(outcome.purged), "kept": len(outcome.blocked)}
        if outcome.triggers:
            counts["triggers"] = len(outcome.triggers)
        if outcome.deleted or outcome.purged or outcome.triggers:
            told = {name: one for name, one in details.items() if one}
            await self._record(f"runs.{what}", subject, who, {**told, **counts})

    async def _has_inputs(self, run: str, wanted: Mapping[str, str]) -> bool:
        """Whether a run was started or continued with these inputs."""
        kinds = (RunStarted.__name__, Forked.__name__)
        given: dict[str, Any] = {}
        async for record in self._store.records(run, kinds=kinds):
            try:
                event = self._engine.codec.entry(record).event
            except CuebookError:  # it was purged
                continue
            if isinstance(event, RunStarted):
                given.update(event.inputs)
            elif isinstance(event, Forked):
                given.update({**event.values, **(event.edit.inputs if event.edit is not None else {})})
        return self._fit(wanted, given)

    def _fit(self, wanted: Mapping[str, str], given: Mapping[str, Any]) -> bool:
        return all(name in given and self._is(given[name], value) for name, value in wanted.items())

    def _is(self, given: Any, value: str) -> bool:
        """Whether an input has this value. A sensitive one has a mark with the value's digest, also after it was purged."""
        if is_mark(given):
            return any(digest == self._digest(value) for _, digest in marks_in(given))
        return _as_text(given) == value

    async def _remove(
        self,
        rows: Sequence[RunRow],
        who: Principal,
        outcome: Outcome,
        going: set[str],
        *,
        force: bool = False,
        contents: bool = False,
        reason: str = "",
        dry_run: bool = False,
        pause: float = 0.0,
    ) -> None:
        """Removes these runs, except their space. `going` collects what goes in all parts of a removal."""
        going |= {row.id for row in rows}
        together: list[Removal] = []
        gone: set[str] = set()
        for row in rows:
            family = await self._family(row)
            against, forks = await self._against(family, going, contents)
            if against is not None and not (force and against.forcible):
                outcome.blocked.append(Blocked(row.id, against.reason, against.fix))
                going.discard(row.id)
                continue
            words = "; ".join(part for part in (reason, against.reason if against else "") if part)
            emptied = contents or forks
            (outcome.purged if emptied else outcome.deleted).append(row.id)
            if dry_run:
                outcome.size += sum((await self._store.sizes(row.tenant, [one.id for one in family])).values())
                continue
            gone.update(one.id for one in family)
            removals = [self._removal(one, who, words, emptied, against is not None) for one in reversed(family)]
            if not emptied:
                together += removals
            if emptied or against is not None or len(together) >= _AT_ONCE or pause:
                together = await self._take(together, force, outcome)
            if emptied:
                for one in removals:
                    await self._engine.purge(one)
                    await self._forget_rest([one])
            if pause:
                await self.sweep()
                await asyncio.sleep(pause)
        if not dry_run:
            await self._take(together, force, outcome)
            await self._forget_messages(who.tenant, gone)

    async def _forget_messages(self, tenant: str, runs: set[str]) -> None:
        if runs:
            from cuebook.service import comparisons
            from cuebook.service.notifications.erasure import forget_runs

            await forget_runs(self._store, tenant, runs)
            await comparisons.forget_runs(self._store, tenant, runs)

    async def _take(self, removals: list[Removal], force: bool, outcome: Outcome) -> list[Removal]:
        """Deletes these runs, some in each transaction; if one cannot be deleted any more, each in its own."""
        for first in range(0, len(removals), _AT_ONCE):
            part = removals[first : first + _AT_ONCE]
            began = time.perf_counter()
            try:
                await self._store.remove(part, force=force)
            except (Busy, NotFound, Refused) as error:
                if len(part) > 1:
                    for one in part:
                        await self._take([one], force, outcome)
                    continue
                outcome.deleted = [one for one in outcome.deleted if one != part[0].run]
                if not isinstance(error, NotFound):
                    outcome.blocked.append(Blocked(part[0].run, error.message, error.fix or ""))
                continue
            await self._forget_rest(part)
            await _let_others_write(began)
        return []

    async def _forget_rest(self, removals: Sequence[Removal]) -> None:
        """Removes what was kept about runs of a tenant, and their files beside the store."""
        from cuebook.service.budgets.erasure import forget_runs

        runs = [one.run for one in removals]
        await asyncio.to_thread(lambda: [self._remove_private_files(run) for run in runs])
        await forget_runs(self._store, removals[0].tenant, runs)
        for one in removals:
            await self._forget_decisions(one)

    async def _forget_decisions(self, removal: Removal) -> None:
        """Removes what was kept about a run."""
        for kind, name in ((payload(removal.run), "inputs"), (INDEX, removal.run)):
            if await self._store.is_kept(removal.tenant, kind, name):  # few runs have any, and reading locks nothing
                await self._store.forget(removal.tenant, kind, name, overwrite=kind != INDEX)
        if await self._store.is_kept(EVERYONE, SERVED, removal.run):
            await self._store.forget(EVERYONE, SERVED, removal.run)
        for name in await self._store.kept(removal.tenant, revoked_in(removal.run)):
            await self._store.forget(removal.tenant, revoked_in(removal.run), name)

    async def _family(self, row: RunRow) -> list[RunRow]:
        """The run and the runs that it started, directly or not."""
        found = [row]
        for one in found:
            found += await self._store.runs(tenant=row.tenant, caller=one.id, limit=None)
        return found

    async def _against(
        self, family: Sequence[RunRow], going: set[str], contents: bool
    ) -> tuple[_Objection | None, bool]:
        """What speaks against removing a run, and whether others were forked from it."""
        row = family[0]
        forks = [one async for one in self._forks(family, going)]
        found: _Objection | None = None
        if row.caller and row.caller not in going:
            fix = f"Delete run {row.caller}, or use --force."
            found = _Objection(f"Run {row.id} is a child of run {row.caller}.", fix)
        if forks:
            empties = "Delete that run first; --force purges the contents and keeps the journal's chain."
            found = _Objection(f"Run {forks[0].id} was forked from run {forks[0].parent}.", empties)
        for one in family:
            if one.status not in ENDED:
                words = f"Run {one.id} is {one.status.replace('_', ' ')}."
                fix = f"`cuebook cancel {row.id}` ends it."
                can = not (contents or forks)
                found = _Objection(words, fix + (" --force deletes it as it is." if can else ""), can)
            if await self._store.alive(one.id):
                words, fix = f"Run {one.id} is being driven.", "Wait until it waits or ends, or cancel it."
                found = _Objection(words, fix, not (contents or forks))
        return found, bool(forks)

    async def _forks(self, family: Sequence[RunRow], going: set[str]) -> AsyncIterator[RunRow]:
        mine = {one.id for one in family}
        for one in family:
            for fork in await self._store.runs(tenant=one.tenant, parent=one.id, limit=None):
                if fork.id not in going and fork.id not in mine:
                    yield fork

    def _removal(self, row: RunRow, who: Principal, reason: str, emptied: bool, forced: bool) -> Removal:
        return Removal(
            run=row.id,
            tenant=row.tenant,
            what="purged" if emptied else "deleted",
            name=row.name,
            created=row.created,
            status=row.status,
            by=who.name,
            at=self._engine.clock(),
            reason=reason,
            forced=forced,
        )


class _Objection(msgspec.Struct, frozen=True):
    reason: str
    fix: str
    forcible: bool = True


def _outermost(row: RunRow, rows: Mapping[str, RunRow]) -> RunRow:
    """The run that started this one, directly or not; the run itself if no run did."""
    while row.caller and row.caller in rows:
        row = rows[row.caller]
    return row


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def _let_others_write(began: float) -> None:
    """Leaves the store to others for as long as it was just used."""
    await asyncio.sleep(max(0.002, min(0.1, time.perf_counter() - began)))

"""`Queries`, the read-only half of the service: runs, steps, waits, journals, views, the inbox, audits and event streams.

Every query acts for a user, with their roles and within their tenant, unless its section says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.gate.policy import Override
from cuebook.gate.roles import Principal
from cuebook.gate.tokens import Tokens
from cuebook.kernel.capabilities import Offer
from cuebook.kernel.engine.engine import Engine, Observer
from cuebook.kernel.engine.files import KeptFile, kept_in, read
from cuebook.kernel.engine.waits import in_full
from cuebook.kernel.errors import BadInput, NotFound, Refused
from cuebook.kernel.events import FOR_PEOPLE, ModelAsked, TextChunk, TextReset
from cuebook.kernel.fold.replay import Recorded
from cuebook.kernel.journal import Entry, Record, Verdict, without_void
from cuebook.kernel.ports import Fate, Gate, Removal, RunFilter
from cuebook.kernel.run import RunRow, Settings, StepRow, WaitRow
from cuebook.kernel.short_ids import is_mistyped, normal
from cuebook.service.access.visibility import Rule, Visibility
from cuebook.service.admin import Today
from cuebook.service.playbook_state import States
from cuebook.service.runs.children import check_not_purged
from cuebook.service.runs.views import RunView, Sent, sent, view_of, with_results
from cuebook.service.start import playbook_of
from cuebook.service.stream import Stream
from cuebook.service.waits import lasting_approvals
from cuebook.service.waits.decisions import typed_changes
from cuebook.service.worker import EVERYONE, SERVED
from cuebook.stores.refusals import ALIKE, no_wait

if TYPE_CHECKING:
    from cuebook.kernel.fold.dry_replay import Rehearsal
    from cuebook.service.audit.export import Audited, Export
    from cuebook.service.insight.meters import Meters
    from cuebook.service.insight.metrics import Metrics
    from cuebook.service.insight.sight import Sight
    from cuebook.service.runs.lists import RunPage

T = TypeVar("T")

_NAMED = 5
"""The number of matches listed in the error for an ambiguous id."""
SHORTEST_NAME = 5
"""The minimum length of a shortened wait id."""


class Queries(States):
    """Read-only queries about runs."""

    def __init__(self, engine: Engine, today: Today, tokens: Tokens, visible: Rule = "all") -> None:
        """`visible` says whose runs users other than admins see."""
        super().__init__(engine.store, today, engine.clock)
        self._engine = engine
        self.visibility = Visibility(engine.store, engine.codec, visible)
        self.stream = Stream(engine)
        self.tokens = tokens

    # --- one run by its full id, of any tenant ---

    async def row(self, run: str) -> RunRow:
        """The current row of a run."""
        return await self._store.run(run)

    async def steps(self, run: str) -> list[StepRow]:
        return await self._store.steps(run)

    async def waits(self, run: str) -> list[WaitRow]:
        """The open waits of a run."""
        return await self._store.waits(run=run)

    async def wait_row(self, wait: str) -> WaitRow:
        """The current row of a wait, open or closed."""
        return await self._store.wait(wait)

    def entries(self, run: str, after: int = 0) -> AsyncIterator[Entry]:
        """A run's journal after a given record, without purged entries."""
        return self._engine.entries(run, after)

    def records(self, run: str, kinds: Sequence[str]) -> AsyncIterator[Record]:
        """The records of these kinds of a run, as they are stored."""
        return self._store.records(run, kinds=kinds)

    async def is_driven(self, run: str) -> bool:
        """Whether this or another process is driving a run."""
        return await self._store.alive(run)

    def drives(self, run: str) -> bool:
        """Whether this process is driving a run."""
        return self._engine.drives(run)

    async def is_driven_elsewhere(self, run: str) -> bool:
        """Whether another process is driving a run."""
        return (await self._store.run(run)).driver != self._engine.driver and await self._store.alive(run)

    async def fate_of_driver(self, run: str) -> Fate:
        """What is known of the process that drives a run, or drove it last."""
        return await self._store.fate((await self._store.run(run)).driver)

    async def is_due(self, run: str, *, here: bool = False) -> bool:
        """Whether a run has pending work and no process is driving it; with `here`, and this process may drive it."""
        offer = self._engine.offer if here else None
        return bool(await self._store.ready(self._clock(), self._engine.driver, run, offer))

    async def ready(self) -> list[str]:
        """The runs that have pending work, that no process is driving, and that this process may drive."""
        return await self._store.ready(self._clock(), self._engine.driver, offer=self._engine.offer)

    @property
    def offer(self) -> Offer | None:
        """What this process can do for the runs that it drives; None if that was not said."""
        return self._engine.offer

    @property
    def is_shared(self) -> bool:
        """Whether other machines may drive the runs of this store."""
        return self._store.shared

    def clock(self) -> float:
        return self._clock()

    def masked(self, value: T) -> T:
        """Masks the secrets in a value; returns the same object if it contains none."""
        return self._engine.redactor.value(value)

    @property
    def gate(self) -> Gate | None:
        return self._engine.gate

    # --- for a user ---

    async def get(self, run: str, who: Principal = Principal()) -> RunRow:
        """Finds a run by its id or a prefix of it."""
        who.require("viewer", "view runs")
        try:
            return await self.visibility.check(await self._store.run(run), who)
        except NotFound:
            alike = await self.runs_called(run, who) if run else []
            if len(alike) == 1:
                return alike[0]
            if alike:
                raise _ambiguous(run, "runs", [row.id for row in alike]) from None
            limited = self.visibility.is_limited(who)
            for gone in await self._store.removals(who.tenant, run) if run and not limited else ():
                raise _deleted(gone) from None
            raise

    async def runs(
        self, *, limit: int | None = 100, who: Principal = Principal(), **which: Unpack[RunFilter]
    ) -> list[RunRow]:
        """Runs that no other run started, newest first."""
        who.require("viewer", "view runs")
        which["caller"] = ""
        return await self.visibility.runs(who, limit=limit, **which)

    async def page(
        self, which: RunFilter, *, limit: int = 100, cursor: str = "", who: Principal = Principal()
    ) -> RunPage:
        """A page of such a list: its beginning, or what follows the page that ended with this cursor."""
        from cuebook.service.runs.lists import mark_of, page_of

        asked = which.copy()
        if cursor:
            asked["before"] = mark_of(cursor)
        return page_of(await self.runs(limit=limit + 1, who=who, **asked), limit)

    async def all_runs(self, who: Principal = Principal()) -> list[RunRow]:
        """All runs, newest first, also those that other runs started."""
        who.require("viewer", "view runs")
        return await self.visibility.runs(who, limit=None)

    async def superseded_by(self, row: RunRow, who: Principal = Principal()) -> str:
        """The run that continues this one with a changed text; empty if there is none, or if this user does not see it."""
        forks = await self._store.runs(tenant=row.tenant, parent=row.id, limit=None)
        if self.visibility.is_limited(who):
            forks = await self.visibility.visible(forks, who)
        return next((one.id for one in forks if one.playbook != row.playbook), "")

    async def children(self, run: str, who: Principal = Principal()) -> list[RunRow]:
        """The child runs that a run has started, oldest first."""
        row = await self.get(run, who)
        return (await self._store.runs(tenant=row.tenant, caller=row.id, limit=None))[::-1]

    async def runs_called(self, beginning: str, who: Principal = Principal()) -> list[RunRow]:
        """Runs whose id starts with this prefix, newest first, up to a limit."""
        who.require("viewer", "view runs")
        found = await self.visibility.visible(await self._store.runs_called(who.tenant, beginning), who)
        return sorted(found, key=lambda row: row.created, reverse=True)

    async def is_interrupted(self, run: str) -> bool:
        """Whether a run is interrupted: it could continue, but no process drives it or will do so without being asked."""
        return bool(await self._store.undriven(self._clock(), run)) and not await self.is_left_to_workers(run)

    async def is_left_to_workers(self, run: str) -> bool:
        """Whether a worker that shares the store continues a run as soon as it can."""
        return self._store.shared and await self._store.is_kept(EVERYONE, SERVED, run)

    async def interrupted(self, who: Principal = Principal()) -> list[RunRow]:
        """The interrupted runs, newest first."""
        rows = await self.runs(among=await self._store.undriven(self._clock()), limit=None, who=who)
        return [row for row in rows if not await self.is_left_to_workers(row.id)]

    async def playbook_of(self, row: RunRow) -> Playbook | None:
        """The playbook that a run was started from; None for a Python program."""
        return await playbook_of(self._store, row)

    async def playbook_text(self, row: RunRow) -> str:
        """The text that a run was started from: a playbook with its imports, or a Python program."""
        return await self._store.playbook(row.playbook)

    async def typed_changes(self, row: RunRow, given: Mapping[str, Any]) -> dict[str, Any]:
        """Converts values that a user entered as text to the types that the run's playbook declares."""
        playbook = await self.playbook_of(row) if given else None
        if playbook is None:
            return dict(given)
        return typed_changes(playbook, without_void([entry async for entry in self._engine.entries(row.id)]), given)

    async def view(self, run: str, who: Principal = Principal()) -> RunView:
        row = await self.get(run, who)
        every = [entry async for entry in self._engine.entries(row.id)]
        entries = without_void(every)
        view = view_of(row, await self._store.steps(row.id), await self._store.waits(run=row.id), entries)
        allowed = await lasting_approvals.overrides_of(self._store, row, every)
        started = tuple(await self.children(row.id, who))
        view = msgspec.structs.replace(view, overrides=allowed, children=started)
        return with_results(view, await self.playbook_of(row), entries)

    async def run_overrides(self, run: str, who: Principal = Principal()) -> tuple[Override, ...]:
        """What was allowed in advance for one run, including what was revoked since."""
        row = await self.get(run, who)
        return await lasting_approvals.overrides_of(
            self._store, row, [one async for one in self._engine.entries(row.id)]
        )

    async def revoke_override(self, name: str, who: Principal = Principal()) -> None:
        """Ends an override, of all runs or of one run."""
        run, dot, _ = name.partition(lasting_approvals.SEPARATOR)
        if not dot:
            return await super().revoke_override(name, who)
        who.require("approver", "revoke overrides")
        row = await self.get(run, who)
        known = await self.run_overrides(row.id, who)
        await lasting_approvals.revoke(self._store, row, known, name, who, self._clock())
        await self.record_act("override.revoke", name, who, {"run": row.id})

    async def sent(self, run: str, asked: int | str, who: Principal = Principal()) -> list[Sent]:
        """The request to a model, for the call with this record or the last call of the step with this label."""
        row = await self.get(run, who)
        entries = [entry async for entry in self._engine.entries(row.id)]
        calls = [(entry, entry.event) for entry in entries if isinstance(entry.event, ModelAsked)]
        found = [event for entry, event in calls if asked in (entry.seq, entry.place.step)]
        if not found:
            known = ", ".join(dict.fromkeys(entry.place.step for entry, _ in calls)) or "none"
            raise NotFound(f"Run {row.id} has no model call at {asked}.", fix=f"Steps with model calls: {known}.")
        return sent(found[-1], [event for _, event in calls], self._store.text)

    async def settings(self, run: str, who: Principal = Principal()) -> tuple[Settings, Settings]:
        """A run's settings at its start, and its current settings."""
        entries = [entry async for entry in self._engine.entries((await self.get(run, who)).id)]
        return Recorded(entries[:1], 0).settings, Recorded(without_void(entries), 0).settings

    async def inbox(self, who: Principal = Principal(), *, limit: int | None = None, offset: int = 0) -> list[WaitRow]:
        """The waits that need someone's decision, oldest first."""
        who.require("viewer", "view runs")
        return await self.visibility.waits(who, FOR_PEOPLE, limit=limit, offset=offset)

    async def inbox_ids(self, who: Principal = Principal()) -> list[str]:
        """The ids of all waits that need someone's decision."""
        who.require("viewer", "view runs")
        return await self.visibility.wait_ids(who, FOR_PEOPLE)

    async def waiting(self, name: str, who: Principal = Principal()) -> WaitRow:
        """Finds a wait by its resume token, its id or a prefix of its id. Open waits take precedence over decided
        waits."""
        who.require("viewer", "view runs")
        name = name if "." in normal(name) else normal(name)  # a token has a dot
        wait = self.tokens.wait_of(name)
        try:
            row = await self._store.wait(wait)
        except NotFound:
            if len(wait) < SHORTEST_NAME or "." in name:
                raise
            called = await self._store.waits_called(who.tenant, wait)
            named = [one for one in called if one.kind in FOR_PEOPLE and await self.visibility.sees_wait(one, who)]
            alike = [one for one in named if one.state == "open"] or named
            if not alike and is_mistyped(wait):
                fix = "Copy it again; `cuebook inbox` lists the open waits."
                raise NotFound(
                    f"The id {wait} was mistyped: its last character does not match the others.", fix=fix
                ) from None
            if not alike:
                raise
            if len(alike) > 1:
                raise _ambiguous(wait, "waits", [one.id for one in alike]) from None
            row = alike[0]
        if not await self.visibility.sees_wait(row, who):
            raise no_wait(wait)
        return row

    def in_full(self, wait: WaitRow) -> WaitRow:
        """A wait with the full text of what is to be decided; lists show only part of it."""
        return in_full(wait, self._store.text)

    async def audit(self, run: str, who: Principal = Principal()) -> Audited:
        """The evidence from a run, with the result of verifying its chain."""
        from cuebook.service.audit.export import audited_from

        row = await self.get(run, who)
        verdict = await self._engine.verify(row.id)
        records = [record async for record in self._store.records(row.id)]
        return audited_from(row.id, row.name, row.owner, records, verdict, self._engine.codec)

    async def export(self, run: str, who: Principal = Principal()) -> Export:
        """Exports a run as one file, which can be verified without the store."""
        from cuebook.service.audit.export import export_of

        row = await self.get(run, who)
        verdict = await self._engine.verify(row.id)
        if verdict.broken_at is not None:
            raise Refused(f"Run {row.id} is broken at record {verdict.broken_at}: {verdict.problem}.")
        records = [record async for record in self._store.records(row.id)]
        return export_of(row.name, row.owner, records, self._store.text, await self._store.playbook(row.playbook))

    async def files(self, run: str, who: Principal = Principal()) -> list[KeptFile]:
        """The files that a run's steps have produced, in order."""
        row = await self.get(run, who)
        return kept_in(without_void([entry async for entry in self._engine.entries(row.id)]))

    async def file(self, run: str, digest: str, who: Principal = Principal()) -> tuple[KeptFile, AsyncIterator[bytes]]:
        """A file of a run, and its content in pieces. Raises `NotFound` if the run has no such file, or it was purged."""
        row = await self.get(run, who)
        found = next((one for one in await self.files(row.id, who) if one.digest == digest), None)
        if found is None or not await self._store.has_file(row.tenant, digest):
            raise NotFound(f"Run {row.id} has no file {digest[:12]}.", fix="`cuebook files RUN` lists its files.")
        return found, read(self._store, row.tenant, digest)

    async def verify(self, run: str, who: Principal = Principal()) -> Verdict:
        return await self._engine.verify((await self.get(run, who)).id)

    async def replay(self, run: str, who: Principal = Principal()) -> Rehearsal:
        row = await self.get(run, who)
        check_not_purged(row, "replayed")
        return await self._engine.replay(row.id)

    def observe(self, observer: Observer) -> Callable[[], None]:
        return self._engine.observe(observer)

    def metrics(self, meters: Meters, version: str) -> Metrics:
        """The metrics of this process, whose store is measured from now on."""
        from cuebook.service.insight.metrics import Metrics, time_commits

        time_commits(self._store, meters)
        return Metrics(meters, self._store, version)

    def driven_row(self, run: str) -> RunRow | None:
        """The row of a run that this process is driving."""
        driver = self._engine.driving(run)
        return None if driver is None else driver.row

    def sight(self, run: str) -> Sight | None:
        """A run that this process is driving, for its observers."""
        from cuebook.service.insight.sight import sight_of

        return sight_of(self._engine.driving(run))

    async def events(
        self, run: str, after: str = "0", *, follow: bool = True, who: Principal = Principal()
    ) -> AsyncIterator[Entry | TextChunk | TextReset]:
        """Yields the events after an event id, and then new events until the run waits or ends.

        An id is a record number, or `number.offset` for a position in the text that the record's call streams.
        """
        run = (await self.get(run, who)).id
        async for event in self.stream.events(run, after, follow=follow):
            yield event


def _ambiguous(name: str, what: str, found: Sequence[str]) -> BadInput:
    fitting = f"at least {ALIKE}" if len(found) == ALIKE else str(len(found))
    shown = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    return BadInput(f"'{name}' matches {fitting} {what}: {shown}.", fix="Use more characters of the id.")


def _deleted(gone: Removal) -> NotFound:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(gone.at))
    reason = f" ({gone.reason})" if gone.reason else ""
    return NotFound(
        f"Run {gone.run} was deleted by {gone.by} on {when}{reason}.", fix="`cuebook runs` lists the others."
    )

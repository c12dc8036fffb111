"""Who sees which runs: everyone's, those of one's teams, or one's own, as `[access] runs` says.

A run that someone does not see is not found, so that its id reveals nothing. Admins see all runs of their tenant. Whoever an
approval or a question names sees the run from then on, with its children.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal, Unpack, get_args

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import FOR_PEOPLE, WaitOpened
from cuebook.kernel.journal import PURGED, Codec
from cuebook.kernel.ports import RunFilter, Store
from cuebook.kernel.run import RunRow, WaitMark, WaitRow
from cuebook.kernel.votes import is_listed, rule_of
from cuebook.stores.refusals import no_run

Rule = Literal["all", "team", "owner"]
RULES: tuple[Rule, ...] = get_args(Rule)


class Visibility:
    """Applies the rule to the runs and waits of a store."""

    def __init__(self, store: Store, codec: Codec, rule: Rule = "all") -> None:
        self._store = store
        self._codec = codec
        self.rule = rule

    def is_limited(self, who: Principal) -> bool:
        """Whether there may be runs that this user does not see."""
        return self.rule != "all" and not who.may("admin")

    async def owners(self, who: Principal) -> frozenset[str] | None:
        """The users whose runs this user sees; None means everyone's."""
        if not self.is_limited(who):
            return None
        if self.rule == "owner":
            return frozenset((who.name,))
        kept = await self._store.kept(who.tenant, "user")
        teams = {name: {*body.get("teams", ()), *body.get("group_teams", ())} for name, body in kept.items()}
        own = teams.get(who.name, set())
        return frozenset((who.name, *(name for name, theirs in teams.items() if own & theirs)))

    # --- runs ---

    async def sees(self, row: RunRow, who: Principal) -> bool:
        if row.tenant != who.tenant:
            return False
        owners = await self.owners(who)
        return owners is None or row.owner in owners or await self._is_asked_by(row, who)

    async def check(self, row: RunRow, who: Principal) -> RunRow:
        """The run. Raises `NotFound` if this user does not see it."""
        if not await self.sees(row, who):
            raise no_run(row.id)
        return row

    async def visible(self, rows: Iterable[RunRow], who: Principal) -> list[RunRow]:
        """The runs among these that this user sees."""
        rows = list(rows)
        return [row for row in rows if await self.sees(row, who)] if self.is_limited(who) else rows

    async def runs(self, who: Principal, *, limit: int | None = 100, **which: Unpack[RunFilter]) -> list[RunRow]:
        """The runs that this user sees, newest first, of those that fit."""
        which["tenant"] = who.tenant
        owners = await self.owners(who)
        if owners is not None:
            which["visible"] = owners
            which["shown"] = {wait.run for wait in await self._named(who)}
        return await self._store.runs(limit=limit, **which)

    # --- waits ---

    async def sees_wait(self, wait: WaitRow, who: Principal) -> bool:
        if wait.tenant != who.tenant:
            return False
        owners = await self.owners(who)
        return owners is None or wait.owner in owners or names(wait, who) or await self._is_asked(wait.run, who)

    async def waits(
        self, who: Principal, kinds: Sequence[str], *, limit: int | None = None, offset: int = 0
    ) -> list[WaitRow]:
        """The open waits of these kinds that this user sees, oldest first."""
        owners = await self.owners(who)
        if owners is None:
            return await self._store.waits(tenant=who.tenant, kinds=kinds, limit=limit, offset=offset)
        ids = await self.wait_ids(who, kinds)
        if limit is not None or offset:
            return [one for id in ids[offset:][:limit] if (one := await self._open(id)) is not None]
        shown = frozenset(ids)
        return [one for one in await self._store.waits(tenant=who.tenant, kinds=kinds) if one.id in shown]

    async def wait_ids(self, who: Principal, kinds: Sequence[str]) -> list[str]:
        """The ids of these waits. Every page shows their number, so the waits themselves are not read."""
        owners = await self.owners(who)
        if owners is None:
            return await self._store.wait_ids(who.tenant, kinds)
        marks = await self._store.wait_marks(who.tenant, kinds)
        named = {one.run for one in marks if one.owner not in owners and _names(one, who)}
        return [one.id for one in marks if one.owner in owners or one.run in named]

    # --- inside ---

    async def _named(self, who: Principal) -> list[WaitMark]:
        """The open waits that name this user."""
        return [one for one in await self._store.wait_marks(who.tenant, FOR_PEOPLE) if _names(one, who)]

    async def _open(self, wait: str) -> WaitRow | None:
        """A wait, unless it has ended."""
        try:
            found = await self._store.wait(wait)
        except NotFound:
            return None
        return found if found.state == "open" else None

    async def _is_asked_by(self, row: RunRow, who: Principal) -> bool:
        """Whether this run, or the outermost one that started it, has asked this user something."""
        while row.caller:
            outer = await self._row(row.caller)
            if outer is None:
                return False
            row = outer
        return await self._is_asked(row.id, who)

    async def _is_asked(self, run: str, who: Principal) -> bool:
        return any([is_named(opened.details, who) async for opened in self._opened(run)])

    async def _opened(self, run: str) -> AsyncIterator[WaitOpened]:
        """What a run has asked so far, answered or not: people still see what they have decided."""
        async for record in self._store.records(run, kinds=(WaitOpened.__name__,)):
            if not record.body.startswith(PURGED):
                event = self._codec.entry(record).event
                if isinstance(event, WaitOpened):
                    yield event

    async def _row(self, run: str) -> RunRow | None:
        try:
            return await self._store.run(run)
        except NotFound:
            return None


def _names(mark: WaitMark, who: Principal) -> bool:
    asked = mark.details
    return bool(asked.rule or asked.by) and is_named({"rule": asked.rule, "by": asked.by}, who)


def names(wait: WaitRow, who: Principal) -> bool:
    """Whether a wait says that this user decides on it or answers it, by name or by a role."""
    return is_named(wait.details, who)


def is_named(details: dict[str, Any], who: Principal) -> bool:
    by = (*rule_of(details).by, *details.get("by", ()))
    return bool(by) and is_listed(by, who.name, who.roles)

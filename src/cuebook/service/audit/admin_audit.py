"""The audit of administrative acts, for admins: a list, and the check of its chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import GENESIS, ActRecord, ChainCheck

PAGE = 1000


class AdminAudit:
    """Reads the audit of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def acts(
        self,
        who: Principal = Principal(),
        *,
        after: int = 0,
        since: float = 0.0,
        newest: bool = False,
        limit: int = PAGE,
    ) -> list[ActRecord]:
        """Acts with a number above `after`, oldest first; with `newest`, the last ones."""
        who.require("admin", "read the audit of administrative acts")
        return await self._store.acts(who.tenant, after=after, since=since, newest=newest, limit=limit)

    async def pages(self, who: Principal = Principal(), since: float = 0.0) -> AsyncIterator[list[ActRecord]]:
        """All acts since a moment, a page at a time."""
        after = 0
        while page := await self.acts(who, after=after, since=since):
            yield page
            after = page[-1].seq

    async def before(self, seq: int, who: Principal = Principal()) -> str:
        """The chain value that the act with this number continues."""
        found = await self.acts(who, after=seq - 2, limit=1) if seq > 1 else []
        return found[0].chain if found and found[0].seq == seq - 1 else GENESIS

    async def verify(self, who: Principal = Principal()) -> ChainCheck:
        """Checks the whole chain, and that no act is missing at its end."""
        check = ChainCheck()
        async for page in self.pages(who):
            check.see(page)
        # Read last: acts may be recorded meanwhile.
        check.see(await self.acts(who, after=check.count))
        check.end(*await self._store.act_head(who.tenant))
        return check


def act_object(record: ActRecord) -> dict[str, Any]:
    """An act as JSON."""
    act = record.act
    return {
        "seq": record.seq,
        "at": act.at,
        "what": act.what,
        "subject": act.subject,
        "by": act.by,
        "surface": act.surface,
        "address": act.address,
        "refused": act.refused,
        "details": msgspec.to_builtins(act.details),
        "chain": record.chain,
    }

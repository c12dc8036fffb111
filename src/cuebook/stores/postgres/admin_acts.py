"""The audit of administrative acts in a Postgres store. The row of a tenant's head is locked while an act is appended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from cuebook.kernel.ports.admin_acts import GENESIS, ActRecord, AdminAct, KeptChange, chained
from cuebook.stores.postgres import operations
from cuebook.stores.postgres.database import Transaction
from cuebook.stores.refusals import changed_meanwhile, does_not_follow

_HEAD = "SELECT seq, chain FROM admin_heads WHERE tenant = %s"


async def _record(db: Transaction, act: AdminAct, changes: Sequence[KeptChange]) -> ActRecord:
    seq, chain = await _locked_head(db, act.tenant)  # first: it also keeps others from the decisions below
    for change in changes:
        query = "SELECT body FROM kept WHERE tenant = %s AND kind = %s AND name = %s FOR UPDATE"
        found = await db.one(query, (change.tenant, change.kind, change.name))
        if (None if found is None else msgspec.json.decode(found[0])) != change.before:
            raise changed_meanwhile(change.kind, change.name)
    for change in changes:
        if change.after is None:
            await operations.forget(db, change.tenant, change.kind, change.name)
        else:
            await operations.keep(db, change.tenant, change.kind, change.name, change.after)
    made = chained(act, seq + 1, chain)
    await _append(db, act.tenant, made)
    return made


async def _bring_in(db: Transaction, tenant: str, records: Sequence[ActRecord]) -> None:
    if (await _locked_head(db, tenant))[0] != records[0].seq - 1:
        raise does_not_follow(tenant)
    for one in records:
        await _append(db, tenant, one)


async def _locked_head(db: Transaction, tenant: str) -> tuple[int, str]:
    await db.do("INSERT INTO admin_heads VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", (tenant, GENESIS))
    seq, chain = await db.one(f"{_HEAD} FOR UPDATE", (tenant,))
    return seq, chain


async def _append(db: Transaction, tenant: str, made: ActRecord) -> None:
    await db.do(
        "INSERT INTO admin_acts (tenant, seq, at, body, chain) VALUES (%s, %s, %s, %s, %s)",
        (tenant, made.seq, made.act.at, made.body, made.chain),
    )
    await db.do("UPDATE admin_heads SET seq = %s, chain = %s WHERE tenant = %s", (made.seq, made.chain, tenant))


class ActTables:
    """The part of the store that keeps the audit of administrative acts."""

    _write: Callable[..., Awaitable[Any]]
    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]

    async def record_act(self, act: AdminAct, changes: Sequence[KeptChange] = ()) -> ActRecord:
        made: ActRecord = await self._write(_record, act, changes)
        return made

    async def bring_in_acts(self, tenant: str, records: Sequence[ActRecord]) -> None:
        await self._write(_bring_in, tenant, records)

    async def acts(
        self, tenant: str, *, after: int = 0, since: float = 0.0, newest: bool = False, limit: int | None = 1000
    ) -> list[ActRecord]:
        query = (
            "SELECT seq, body, chain FROM admin_acts WHERE tenant = %s AND seq > %s AND at >= %s"
            f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT %s"
        )
        rows = await self._all(query, (tenant, after, since, limit))
        return [ActRecord(*row) for row in (rows[::-1] if newest else rows)]

    async def act_head(self, tenant: str) -> tuple[int, str]:
        rows = await self._all(_HEAD, (tenant,))
        return (rows[0][0], rows[0][1]) if rows else (0, GENESIS)

    async def act_tenants(self) -> list[str]:
        rows = await self._all("SELECT tenant FROM admin_heads WHERE seq > 0 ORDER BY tenant", ())
        return [row[0] for row in rows]

"""What runs used, in a SQLite store: one row for each day, person, playbook and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.spending import COUNTED, Cap, Part, Spending, fits, sum_named

if TYPE_CHECKING:
    from cuebook.stores.sqlite.transaction import Transaction

_COLUMNS = ", ".join(("tenant", "day", "owner", "playbook", "model", *COUNTED))
_INSERT = f"INSERT INTO spending ({_COLUMNS}) VALUES ({','.join('?' * (5 + len(COUNTED)))})"
_ADD = f"{_INSERT} ON CONFLICT DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in COUNTED)}"
_SUMS = ", ".join(f"total({name})" if name in ("cost", "held") else f"ifnull(sum({name}), 0)" for name in COUNTED)


def add(transaction: Transaction, rows: Sequence[Spending]) -> None:
    transaction.connection.executemany(_ADD, [msgspec.structs.astuple(row) for row in rows])


def _sum(rows: Any, tenant: str, day: str) -> Spending:
    return Spending(tenant, day, "", "", "", *rows[0])


def _query(
    tenant: str, since: str, until: str, owner: str | None, playbook: str | None, part: Part | None = None
) -> tuple[str, tuple[Any, ...]]:
    """The query for a sum, or for one for each name of a part of the keys."""
    named = {"owner": owner, "playbook": playbook}
    given = {name: value for name, value in named.items() if value is not None}
    only = "".join(f" AND {name} = ?" for name in given)
    named_first, grouped = (f"{part}, ", f" GROUP BY {part} ORDER BY {part}") if part else ("", "")
    query = f"SELECT {named_first}{_SUMS} FROM spending WHERE tenant = ? AND day >= ? AND day <= ?{only}{grouped}"
    return query, (tenant, since, until, *given.values())


def _hold(transaction: Transaction, more: Spending, caps: Sequence[Cap]) -> int | None:
    transaction.flush()  # what the same commit has counted
    for number, cap in enumerate(caps):
        query, values = _query(more.tenant, more.day, more.day, cap.owner, cap.playbook)
        used = _sum(transaction.connection.execute(query, values).fetchall(), more.tenant, more.day)
        if not fits(cap, used, more):
            return number
    add(transaction, [more])
    return None


def _take(transaction: Transaction, rows: Sequence[Spending]) -> int:
    query = _INSERT.replace("INSERT", "INSERT OR IGNORE", 1)
    done = transaction.connection.executemany(query, [msgspec.structs.astuple(row) for row in rows])
    return done.rowcount


def _forget(transaction: Transaction, tenant: str, owner: str) -> None:
    transaction.flush()
    db = transaction.connection
    mine = f"SELECT {_COLUMNS} FROM spending WHERE tenant = ? AND owner = ?"
    rows = [Spending(*row) for row in db.execute(mine, (tenant, owner)).fetchall()]
    db.execute("DELETE FROM spending WHERE tenant = ? AND owner = ?", (tenant, owner))
    add(transaction, [msgspec.structs.replace(row, owner="") for row in rows])


class SpendingTables:
    """The part of the store that knows what runs used."""

    _writer: Any

    def _all(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        raise TypeError("only a store reads")

    async def spending(self, tenant: str | None = None, since: str = "", until: str = "9999") -> list[Spending]:
        rows = self._all(
            f"SELECT {_COLUMNS} FROM spending WHERE (? IS NULL OR tenant = ?) AND day >= ? AND day <= ?"
            " ORDER BY tenant, day, owner, playbook, model",
            (tenant, tenant, since, until),
        )
        return [Spending(*row) for row in rows]

    async def spent(
        self, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> Spending:
        return _sum(self._all(*_query(tenant, since, until, owner, playbook)), tenant, since)

    async def spending_by(
        self, part: Part, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> list[Spending]:
        query, values = _query(tenant, since, until, owner, playbook, part)
        return [sum_named(part, tenant, *row) for row in self._all(query, values)]

    async def hold(self, more: Spending, caps: Sequence[Cap]) -> int | None:
        number: int | None = await self._writer.submit(_hold, more, caps)
        return number

    async def add_spending(self, more: Sequence[Spending]) -> None:
        await self._writer.submit(add, more)

    async def take_spending(self, rows: Sequence[Spending]) -> int:
        return int(await self._writer.submit(_take, rows))

    async def forget_owner(self, tenant: str, owner: str) -> None:
        await self._writer.submit(_forget, tenant, owner)

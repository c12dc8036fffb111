"""What runs used, in a Postgres store: one row for each day, person, playbook and model.

These rows are locked last in each transaction, in the order of their keys, so that processes cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from cuebook.kernel.spending import COUNTED, Cap, Part, Spending, fits, sum_named
from cuebook.stores.postgres.database import Transaction

_KEY = ("tenant", "day", "owner", "playbook", "model")
_COLUMNS = ", ".join((*_KEY, *COUNTED))
_MONEY = ("cost", "held")
_TYPES = ("text",) * len(_KEY) + tuple("float8" if name in _MONEY else "bigint" for name in COUNTED)
_ADDED = ", ".join(f"{name} = spending.{name} + excluded.{name}" for name in COUNTED)
_SUMS = ", ".join(f"coalesce(sum({name}), 0)::{'float8' if name in _MONEY else 'bigint'}" for name in COUNTED)
_UNNESTED = ", ".join(f"%s::{kind}[]" for kind in _TYPES)
_ADD = f"""
    INSERT INTO spending ({_COLUMNS})
    SELECT * FROM unnest({_UNNESTED}) AS v({_COLUMNS}) ORDER BY {", ".join(_KEY)}
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET {_ADDED}"""
_TAKE = f"{_ADD.partition('ON CONFLICT')[0]} ON CONFLICT DO NOTHING RETURNING day"
OF_RUNS = f"""
    INSERT INTO spending ({_COLUMNS})
    SELECT {", ".join(f"v.{name}" for name in _KEY)}, {", ".join(f"sum(v.{name})" for name in COUNTED)}
    FROM unnest(%b::bigint[], %b::int[], {_UNNESTED.replace("%s", "%b")}) AS v(run, epoch, {_COLUMNS})
    JOIN runs r ON r.key = v.run AND r.epoch = v.epoch
    GROUP BY {", ".join(f"v.{name}" for name in _KEY)} ORDER BY {", ".join(f"v.{name}" for name in _KEY)}
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET {_ADDED}"""
"""Adds what the records of runs say, each if its batch has the run's current epoch."""
_LOCK = 0x7370_656E
"""`spen` in ASCII: keeps these locks apart from others."""


def columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*rows, strict=True))


def values_of(row: Spending) -> tuple[Any, ...]:
    return msgspec.structs.astuple(row)


def _query(
    tenant: str, since: str, until: str, owner: str | None, playbook: str | None, part: Part | None = None
) -> tuple[str, tuple[Any, ...]]:
    """The query for a sum, or for one for each name of a part of the keys."""
    named = {"owner": owner, "playbook": playbook}
    given = {name: value for name, value in named.items() if value is not None}
    only = "".join(f" AND {name} = %s" for name in given)
    named_first, grouped = (f"{part}, ", f" GROUP BY {part} ORDER BY {part}") if part else ("", "")
    query = f"SELECT {named_first}{_SUMS} FROM spending WHERE tenant = %s AND day >= %s AND day <= %s{only}{grouped}"
    return query, (tenant, since, until, *given.values())


async def _add(db: Transaction, rows: Sequence[Spending]) -> None:
    if rows:
        await db.do(_ADD, columns([values_of(row) for row in rows]))


async def _hold(db: Transaction, more: Spending, caps: Sequence[Cap]) -> int | None:
    # All who set something aside for this tenant do so one after another, so that each sees what the others did.
    await db.do("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (more.tenant, _LOCK))
    for number, cap in enumerate(caps):
        found = await db.one(*_query(more.tenant, more.day, more.day, cap.owner, cap.playbook))
        if not fits(cap, Spending(more.tenant, more.day, "", "", "", *(found or ())), more):
            return number
    await _add(db, [more])
    return None


async def _take(db: Transaction, rows: Sequence[Spending]) -> int:
    return len(await db.all(_TAKE, columns([values_of(row) for row in rows]))) if rows else 0


async def _forget(db: Transaction, tenant: str, owner: str) -> None:
    gone = await db.all(f"DELETE FROM spending WHERE tenant = %s AND owner = %s RETURNING {_COLUMNS}", (tenant, owner))
    await _add(db, [msgspec.structs.replace(Spending(*row), owner="") for row in gone])


class SpendingTables:
    """The part of the store that knows what runs used."""

    _write: Callable[..., Awaitable[Any]]
    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]

    async def spending(self, tenant: str | None = None, since: str = "", until: str = "9999") -> list[Spending]:
        rows = await self._all(
            f"SELECT {_COLUMNS} FROM spending WHERE (%s::text IS NULL OR tenant = %s) AND day >= %s AND day <= %s"
            " ORDER BY tenant, day, owner, playbook, model",
            (tenant, tenant, since, until),
        )
        return [Spending(*row) for row in rows]

    async def spent(
        self, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> Spending:
        rows = await self._all(*_query(tenant, since, until, owner, playbook))
        return Spending(tenant, since, "", "", "", *rows[0])

    async def spending_by(
        self, part: Part, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> list[Spending]:
        query, values = _query(tenant, since, until, owner, playbook, part)
        return [sum_named(part, tenant, *row) for row in await self._all(query, values)]

    async def hold(self, more: Spending, caps: Sequence[Cap]) -> int | None:
        number: int | None = await self._write(_hold, more, caps)
        return number

    async def add_spending(self, more: Sequence[Spending]) -> None:
        await self._write(_add, more)

    async def take_spending(self, rows: Sequence[Spending]) -> int:
        return int(await self._write(_take, rows))

    async def forget_owner(self, tenant: str, owner: str) -> None:
        await self._write(_forget, tenant, owner)

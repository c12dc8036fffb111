"""The files of a Postgres store: stored piece by piece, each piece in a transaction of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cuebook.stores.postgres.database import Transaction

_PIECE = "INSERT INTO pieces (digest, tenant, number, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_FILE = (
    "INSERT INTO files (digest, tenant, size, touched) VALUES (%s, %s, %s, %s)"
    " ON CONFLICT (digest, tenant) DO UPDATE SET touched = excluded.touched"
)


async def _do(db: Transaction, query: str, values: tuple[Any, ...]) -> None:
    await db.do(query, values)


async def _put_piece(db: Transaction, digest: str, tenant: str, number: int, data: bytes) -> None:
    if number == 0:  # what is left of a file that was being freed
        query = "DELETE FROM files WHERE digest = %s AND tenant = %s AND size < 0 RETURNING digest"
        if await db.one(query, (digest, tenant)) is not None:
            await db.do("DELETE FROM pieces WHERE digest = %s AND tenant = %s", (digest, tenant))
    await db.do(_PIECE, (digest, tenant, number, data))


class FileTables:
    """The part of the store that keeps files."""

    _write: Callable[..., Awaitable[Any]]
    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]
    _key: Callable[[str], Awaitable[int]]

    def now(self) -> float:
        raise TypeError("only a store has a clock")

    async def put_piece(self, tenant: str, digest: str, number: int, data: bytes) -> None:
        await self._write(_put_piece, digest, tenant, number, data, repeatable=True)

    async def put_file(self, tenant: str, digest: str, size: int) -> None:
        await self._write(_do, _FILE, (digest, tenant, size, self.now()), repeatable=True)

    async def has_file(self, tenant: str, digest: str) -> bool:
        return bool(
            await self._all("SELECT 1 FROM files WHERE digest = %s AND tenant = %s AND size >= 0", (digest, tenant))
        )

    async def piece(self, tenant: str, digest: str, number: int) -> bytes | None:
        query = "SELECT body FROM pieces WHERE digest = %s AND tenant = %s AND number = %s"
        rows = await self._all(query, (digest, tenant, number))
        return bytes(rows[0][0]) if rows else None

    async def files(self, run: str) -> list[str]:
        rows = await self._all("SELECT digest FROM run_files WHERE run = %s ORDER BY digest", (await self._key(run),))
        return [digest for (digest,) in rows]

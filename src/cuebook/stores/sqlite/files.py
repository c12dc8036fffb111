"""The files of a SQLite store: stored piece by piece, each piece in a commit of its own."""

from __future__ import annotations

import time
from typing import Any

from cuebook.stores.sqlite.transaction import Transaction


class FileTables:
    """The part of the store that keeps files."""

    _writer: Any

    def _all(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        raise TypeError("only a store reads")

    def _key(self, run: str) -> int:
        raise TypeError("only a store knows its runs")

    async def put_piece(self, tenant: str, digest: str, number: int, data: bytes) -> None:
        await self._writer.submit(Transaction.put_piece, tenant, digest, number, data)

    async def put_file(self, tenant: str, digest: str, size: int) -> None:
        await self._writer.submit(Transaction.put_file, tenant, digest, size, time.time())

    async def has_file(self, tenant: str, digest: str) -> bool:
        return bool(self._all("SELECT 1 FROM files WHERE tenant = ? AND digest = ? AND size >= 0", (tenant, digest)))

    async def piece(self, tenant: str, digest: str, number: int) -> bytes | None:
        query = "SELECT body FROM pieces WHERE tenant = ? AND digest = ? AND number = ?"
        rows = self._all(query, (tenant, digest, number))
        return bytes(rows[0][0]) if rows else None

    async def files(self, run: str) -> list[str]:
        rows = self._all("SELECT digest FROM run_files WHERE run = ? ORDER BY digest", (self._key(run),))
        return [digest for (digest,) in rows]

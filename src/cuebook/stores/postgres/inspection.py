"""Inspects a Postgres store without changing it."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.formats.database_url import DatabaseUrl
from cuebook.stores.postgres.database import Database


class Inspection:
    """Reads from a store. `version` is 0 if the database has no Cuebook tables. Raises `StoreError` if it cannot be read."""

    def __init__(self, url: DatabaseUrl, password: str = "") -> None:
        self._database = Database(url, password, look=True)
        self.version = self._database.version

    def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        if not self.version:
            return {}
        rows = self._database.read_now("SELECT name, body FROM kept WHERE tenant = %s AND kind = %s", (tenant, kind))
        return {name: msgspec.json.decode(body) for name, body in rows}

    def close(self) -> None:
        self._database.close_now()

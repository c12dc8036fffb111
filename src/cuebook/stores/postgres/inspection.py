"""Inspects a Postgres store without changing it."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.formats.database_url import DatabaseUrl
from cuebook.kernel.errors import StoreError
from cuebook.stores.postgres.database import Database


class Inspection:
    """The state of a store in a database, and why it cannot be used, if that is so."""

    def __init__(self, url: DatabaseUrl, password: str = "") -> None:
        self._database: Database | None = None
        self.version: int | None = None
        self.problem = ""
        try:
            self._database = Database(url, password, look=True)
        except StoreError as error:
            self.problem = str(error)
        else:
            self.version = self._database.version or None

    @property
    def exists(self) -> bool:
        """Whether the database has Cuebook's tables."""
        return self.version is not None

    def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        if self._database is None or self.version is None:
            return {}
        rows = self._database.read_now("SELECT name, body FROM kept WHERE tenant = %s AND kind = %s", (tenant, kind))
        return {name: msgspec.json.decode(body) for name, body in rows}

    def close(self) -> None:
        if self._database is not None:
            self._database.close_now()

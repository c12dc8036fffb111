"""Inspects a SQLite store without changing it: opening it as a store could create files or migrate tables."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from cuebook.stores.sqlite.schema import MIGRATIONS

_ELSEWHERE = "Choose another store with --store or CUEBOOK_STORE."


class Inspection:
    """The state of a store's file, and why it cannot be used, if that is so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.exists = os.path.exists(path)
        self.version: int | None = None
        self.problem = self._problem() if self.exists else self._obstacle()

    def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        connection = self._connect()
        try:
            rows = connection.execute("SELECT name, body FROM kept WHERE tenant = ? AND kind = ?", (tenant, kind))
            return {str(name): msgspec.json.decode(body) for name, body in rows}
        except sqlite3.Error:
            return {}  # an older store has no such table
        finally:
            connection.close()

    def close(self) -> None:
        """Nothing stays open."""

    # --- inside ---

    def _connect(self) -> sqlite3.Connection:
        """Opens the file read-only. Without a WAL file it is opened as immutable, because SQLite would otherwise create files."""
        path = self._path
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)

    def _obstacle(self) -> str:
        """Why the store cannot be created."""
        folder = self._path.parent
        while not os.path.exists(folder):
            folder = folder.parent
        return "" if os.access(folder, os.W_OK) else f"Cannot create the store {self._path}. {_ELSEWHERE}"

    def _problem(self) -> str:
        path = self._path
        try:
            connection = self._connect()
            try:
                self.version = int(connection.execute("PRAGMA user_version").fetchone()[0])
                tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
                sound = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            finally:
                connection.close()
        except sqlite3.Error as error:
            return f"Cannot read the store {path} ({error}). {_ELSEWHERE}"
        if sound != "ok":
            return f"The store {path} is damaged ({sound}). Restore it from a backup."
        if self.version == 0 and tables:
            return f"{path} is a database, but not a Cuebook store. {_ELSEWHERE}"
        if self.version > len(MIGRATIONS):
            return f"The store {path} was written by a newer Cuebook. Upgrade, or choose another store with --store."
        return "" if os.access(path, os.W_OK) else f"Cannot write to the store {path}. Check its permissions."

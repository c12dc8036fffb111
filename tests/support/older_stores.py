"""Stores as an older version left them."""

import sqlite3
from pathlib import Path

from cuebook.stores.sqlite.schema import MIGRATIONS


def take_back(path: Path, version: int) -> None:
    """Takes a store back to an older schema: what later versions added is dropped, what they changed is as it was."""
    older = sqlite3.connect(":memory:")
    for statements in MIGRATIONS[:version]:
        older.executescript(statements)
    store = sqlite3.connect(path)
    was, now = _objects(older), _objects(store)
    for kind in ("trigger", "index", "table"):
        for name in [
            name for name, (its_kind, sql) in now.items() if its_kind == kind and was.get(name, ("", ""))[1] != sql
        ]:
            if kind != "table" or name not in was:
                store.execute(f"DROP {kind} {name}")
                del now[name]
    for table in [name for name, (kind, _) in was.items() if kind == "table"]:
        for column in _columns(store, table) - _columns(older, table):
            store.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    for name, (_, sql) in was.items():
        if name not in now:
            store.execute(sql)
    store.execute(f"PRAGMA user_version = {version}")
    store.commit()
    store.close()
    older.close()


def _objects(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    rows = connection.execute(
        "SELECT name, type, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return {name: (kind, sql) for name, kind, sql in rows}


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}

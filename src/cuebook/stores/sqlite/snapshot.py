"""Copies a SQLite store that is in use to another file: everything as of one moment, without holding up its writers."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from cuebook.kernel.errors import BadInput, StoreDamaged
from cuebook.stores.sqlite.schema import MIGRATIONS

_OF_PROCESSES = ("DELETE FROM drivers", "DELETE FROM slots")
"""What belongs to the processes that use the original: no one drives the runs of a copy."""
_SLOTS_SINCE = 5


def snapshot(store: Path, target: Path) -> int:
    """Copies the store to a new file that only the user can read. Returns the version of its tables."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        source = _source(store)
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            source.backup(copy)
            version = int(copy.execute("PRAGMA user_version").fetchone()[0])
            if version == 0 or version > len(MIGRATIONS):
                raise BadInput(
                    f"{store} is not a store that this Cuebook knows.", fix="Back it up with the version that uses it."
                )
            for statement in _OF_PROCESSES if version >= _SLOTS_SINCE else _OF_PROCESSES[:1]:
                copy.execute(statement)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
        finally:
            source.close()
            copy.close()
    except sqlite3.Error as error:
        raise StoreDamaged(
            f"The store {store} cannot be copied: {error}.", fix="Check the disk and the store."
        ) from None
    return version


def check_file(path: Path) -> str:
    """What is wrong with the pages of a store's file; empty if nothing is."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        return "" if found == "ok" else found
    except sqlite3.Error as error:
        return str(error)
    finally:
        connection.close()


def _source(store: Path) -> sqlite3.Connection:
    """Opens the store to read. Its tables are not changed, even if they are older."""
    address = store.absolute().as_uri()
    for how in ("mode=rw", "mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{address}?{how}", uri=True, timeout=10.0, isolation_level=None)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError:  # a read-only disk
            connection.close()
    raise StoreDamaged(f"The store {store} cannot be read.", fix="Check its permissions.")

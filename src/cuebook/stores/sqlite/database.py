"""One SQLite file as a store: recognised before it is opened, created and migrated, with errors that say what to do."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from cuebook.kernel.errors import StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreTooNew
from cuebook.stores.sqlite.schema import FOLDED_SINCE, MIGRATIONS, REFERRED_SINCE

_GLANCES = 50
_BETWEEN_GLANCES = 0.02
_PATIENCE = 10.0
"""Seconds to wait for a lock that another process holds."""
_EMPTY = 4096
"""Size of a store whose creation was interrupted by a power failure: a header and no tables. Its journal is genuine."""


LOGS = ("-wal", "-shm", "-journal")
"""What SQLite adds to the name of a store's file, for what is not in the file yet."""


def logs_beside(path: Path) -> list[Path]:
    """The logs that lie beside the place of a store, whether they belong to it or to one that was there before."""
    return [one for one in (path.with_name(path.name + end) for end in LOGS) if os.path.lexists(one)]


class Database:
    """The file, and how to connect to it."""

    def __init__(self, path: Path, synchronous: Literal["FULL", "NORMAL"]) -> None:
        self.path = path
        self._synchronous = synchronous
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self._refuse_logs()
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))  # only the user may read outputs
        except OSError as error:
            raise StoreReadOnly(
                f"The store {self.path} cannot be created: {error.strerror}.",
                fix="Choose a folder you can write to with --store or CUEBOOK_STORE.",
            ) from None
        self._connect: Callable[[], sqlite3.Connection] = self._connect_to_write

    def open(self) -> sqlite3.Connection:
        """Connects for the first time: migrates the tables, or finds out that the store is read-only."""
        try:
            try:
                return self._opened()
            except sqlite3.OperationalError as error:
                if not isinstance(self.translate(error), StoreReadOnly) or not self.path.is_file():
                    raise
                self._connect = self._connect_to_read
                return self._opened()
        except (sqlite3.Error, UnicodeError) as error:
            raise self.translate(error) from error

    def connect(self) -> sqlite3.Connection:
        """Connects once more."""
        try:
            return self._connect()
        except (sqlite3.Error, UnicodeError) as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> StoreError:
        """Converts an SQLite error to an error with advice."""
        name = getattr(error, "sqlite_errorname", "") or ""
        if name == "SQLITE_FULL":
            return StoreFull(
                f"The disk with {self.path} is full; nothing unacknowledged was stored.",
                fix="Free some space and resume the run.",
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreLocked(
                f"Another process holds the write lock on {self.path}.",
                fix="Wait for it to finish or stop it, then try again.",
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreReadOnly(
                f"The store {self.path} cannot be opened for writing.",
                fix="Check the permissions of its folder, of the file and of its -wal and -shm, or choose another store with --store.",
            )
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or _is_garbled(error):
            return StoreDamaged(
                f"The store {self.path} is damaged or is not a Cuebook store.",
                fix="Restore it from a backup, or choose another store with --store.",
            )
        return StoreError(f"The store {self.path} failed: {error}.", fix="Check the disk, then resume the run.")

    # --- inside ---

    def _refuse_logs(self) -> None:
        """Rejects the logs of a store whose file is gone: SQLite would delete them, or apply them to the new store."""
        logs = logs_beside(self.path)
        if logs and not os.path.lexists(self.path):  # otherwise another process creates the store at this moment
            raise StoreDamaged(
                f"The store {self.path} is gone, but its logs are there: {', '.join(map(str, logs))}.",
                fix="They have contents of it: bring its file back, or move them to where it is now.",
            )

    def _refuse_journal(self) -> None:
        """Rejects a rollback journal next to the store. A store in WAL mode has none, so someone else wrote it, and
        SQLite would apply its contents.
        """
        journal = f"{self.path}-journal"
        # Such a file exists briefly while another process creates the store.
        for _ in range(_GLANCES):
            if not os.path.lexists(journal) or not self._in_wal_mode():
                return
            time.sleep(_BETWEEN_GLANCES)
        raise StoreDamaged(
            f"There is a file {journal} that Cuebook did not write; opening the store would apply its contents.",
            fix="Find out who wrote it, and move it elsewhere. The store itself was not touched.",
        )

    def _in_wal_mode(self) -> bool:
        """Whether it is a non-empty store. Closing the file releases all locks that this process has on it, so it is opened only
        if no log shows that the store is in use.
        """
        if os.path.lexists(f"{self.path}-wal"):
            return True
        try:
            with open(self.path, "rb") as file:
                header = file.read(20)
                return header[18:20] == b"\x02\x02" and file.seek(0, os.SEEK_END) > _EMPTY
        except OSError:
            return False

    def _opened(self) -> sqlite3.Connection:
        connection = self._connect()
        self._migrate(connection)
        connection.execute("SELECT count(*) FROM runs").fetchone()  # a read-only store fails here at the latest
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Connects to a read-only store. SQLite reads it together with the log of the process that uses it. Without a log,
        the store is not in use, and SQLite reads it as it is.
        """
        self._refuse_journal()
        unused = "" if os.path.lexists(f"{self.path}-wal") else "&immutable=1"
        address = f"{self.path.absolute().as_uri()}?mode=ro{unused}"
        connection = sqlite3.connect(
            address, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            self._recognise(connection)
            if _version(connection) < len(MIGRATIONS):
                raise StoreReadOnly(
                    f"The store {self.path} has an older version and cannot be upgraded because it is read-only.",
                    fix="Copy it, with its -wal if there is one, to a folder you can write to.",
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_write(self) -> sqlite3.Connection:
        self._refuse_journal()
        connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._recognise(connection)
            _keep_a_log(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            # In every write, not only while something is removed: whenever SQLite moves a row within or between pages, it
            # would leave a copy behind, which no one can remove later.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA cache_size = -8000")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")  # 16 MB, for fewer pauses
        except BaseException:
            connection.close()
            raise
        return connection

    def _recognise(self, connection: sqlite3.Connection) -> None:
        """Rejects a store from a newer version, or a foreign database, before anything is changed."""
        version, tables = connection.execute(
            "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
        ).fetchone()
        if version > len(MIGRATIONS):
            raise StoreTooNew(
                f"The store {self.path} has schema version {version}; this Cuebook supports up to {len(MIGRATIONS)}.",
                fix="Upgrade Cuebook, or choose another store with --store.",
            )
        if version == 0 and tables:
            raise StoreDamaged(
                f"{self.path} is a database, but not a Cuebook store.", fix="Choose another store with --store."
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if _version(connection) == len(MIGRATIONS):
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            before = _version(connection)
            for number in range(before, len(MIGRATIONS)):
                for statement in _statements(MIGRATIONS[number]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number + 1}")
            if 0 < before < FOLDED_SINCE:
                from cuebook.stores.sqlite.refold import refold

                refold(connection)
            if 0 < before < REFERRED_SINCE:
                from cuebook.stores.sqlite.refold import refer

                refer(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()  # this discards uncommitted changes
            raise


def _is_garbled(error: Exception) -> bool:
    """Whether text in the store, or in its schema, is no longer valid UTF-8."""
    return isinstance(error, UnicodeError) or "decode to UTF-8" in str(error) or "malformed" in str(error)


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Switches to WAL mode. If several processes do so at the same time, SQLite fails for all but one without waiting
    for a lock."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(_BETWEEN_GLANCES)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> list[str]:
    lines = [line.partition("--")[0] for line in script.splitlines()]
    statements = [""]
    for part in "\n".join(lines).split(";"):
        statements[-1] += f"{part};"
        if sqlite3.complete_statement(statements[-1]):  # the body of a trigger has semicolons, too
            statements.append("")
    return [statement for statement in statements if statement.strip(" \n;")]

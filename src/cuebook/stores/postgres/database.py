"""Connections to one Postgres database: opened on first use, replaced when lost, with errors that say what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, sql
from psycopg.errors import (
    DiskFull,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidPassword,
    ReadOnlySqlTransaction,
)
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cuebook.formats.database_url import DatabaseUrl
from cuebook.kernel.errors import StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from cuebook.stores.postgres.schema import MIGRATIONS

T = TypeVar("T")

_MIGRATION_LOCK = 0x6375_6562_6F6F_6B  # "cuebook" in ASCII
_PATIENCE = 15.0
"""Seconds to wait for a free connection, or for a database that is restarting."""
_TABLE = "cuebook_schema"


class Database:
    """The connections of one process."""

    def __init__(
        self, url: DatabaseUrl, password: str = "", *, durable: bool = True, size: int = 8, look: bool = False
    ) -> None:
        """Checks the database and migrates its tables; with `look`, changes nothing. `size` is the maximum number of
        connections, not counting the one for appends.
        """
        self.url = url
        self._password = password
        self._size = size
        self._settings: dict[str, Any] = {"autocommit": True}
        if password:
            self._settings["password"] = password
        self._durable = durable
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._pool_loop: asyncio.AbstractEventLoop | None = None
        try:
            self._reader = self._connect_now()
        except (psycopg.Error, UnicodeError) as error:
            raise self.translate(error) from None
        try:
            self.version = self._version() if look else self._migrate()
            self._offset = self._measured_offset()
        except psycopg.Error as error:
            self._reader.close()
            raise self.translate(error) from None
        except BaseException:
            self._reader.close()
            raise

    # --- the database's clock ---

    def now(self) -> float:
        """The database's time, estimated from our monotonic clock. All processes that share a store agree on it."""
        return time.monotonic() + self._offset

    def compare_clock(self, at: float, before: float) -> None:
        """Adjusts the estimate: the database reported the time `at` for a request sent at the monotonic time `before`."""
        self._offset = at - (before + time.monotonic()) / 2

    def _measured_offset(self) -> float:
        before = time.monotonic()
        (at,) = self._reader.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone() or (0.0,)
        return float(at) - (before + time.monotonic()) / 2

    # --- using connections ---

    def read_now(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Reads synchronously, for the few values that are needed in the middle of a computation."""
        for attempt in (1, 2):
            try:
                if self._reader.closed:
                    self._reader = self._connect_now()
                return self._reader.execute(literal(query), values).fetchall()
            except psycopg.Error as error:
                if attempt == 2 or not is_lost(error):
                    raise self.translate(error) from None
                self._reader.close()
        return []

    async def read(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        async def rows(connection: AsyncConnection[Any]) -> list[Any]:
            cursor = await connection.execute(literal(query), values)
            return await cursor.fetchall()

        return await self.use(rows)

    async def use(self, work: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Calls `work` with a connection, and again with another connection if the first one is lost before a commit was
        sent. So `work` must be a read, or one `transaction`.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                async with self._connection() as connection:
                    return await work(connection)
            except _LostInCommit as error:
                raise self.translate(error.__cause__ or error) from None
            except (psycopg.Error, PoolTimeout) as error:
                if not is_lost(error) or time.monotonic() > end:
                    raise self.translate(error) from None
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def transaction(self, connection: AsyncConnection[Any]) -> AsyncIterator[None]:
        """A transaction whose statements are sent without waiting for each other, until a result is fetched.

        If the connection is lost during the commit, it is unknown whether the commit took effect.
        """
        committing = False
        try:
            async with connection.pipeline():
                await connection.execute("BEGIN")
                yield
                committing = True
                await connection.execute("COMMIT")
        except BaseException as error:
            with suppress(psycopg.Error):
                await connection.rollback()
            if committing and isinstance(error, psycopg.Error) and is_lost(error):
                raise _LostInCommit from error
            raise

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool_loop is not loop:
            self._pool_loop = loop
            self._pool = AsyncConnectionPool(
                self.url.conninfo,
                kwargs=self._settings,
                min_size=1,
                max_size=self._size,
                timeout=_PATIENCE,
                open=False,
                configure=self._configure,
                name="cuebook",
            )
            await self._pool.open()
        async with self._pool.connection() as connection:
            yield connection

    async def connect(self) -> AsyncConnection[Any]:
        """Opens a connection outside the pool."""
        connection = await AsyncConnection.connect(self.url.conninfo, **self._settings)
        try:
            await self._configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        if not self._durable:
            await connection.execute("SET synchronous_commit = off")

    def close_now(self) -> None:
        self._reader.close()

    async def close(self) -> None:
        self.close_now()
        if self._pool is not None and self._pool_loop is asyncio.get_running_loop():
            await self._pool.close()
        self._pool = None

    # --- opening ---

    def _connect_now(self) -> Connection[Any]:
        return psycopg.connect(self.url.conninfo, **self._settings)

    def _migrate(self) -> int:
        reader = self._reader
        if self._version() == len(MIGRATIONS):
            return len(MIGRATIONS)
        # Servers may start at the same time. The lock comes first: a transaction would not see a schema created after it began.
        reader.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
        with reader.transaction():
            version = self._version()
            if version == 0:
                self._begin_schema()
            for number in range(version, len(MIGRATIONS)):
                reader.execute(literal(MIGRATIONS[number]))
            reader.execute(literal(f"UPDATE {_TABLE} SET version = %s"), (len(MIGRATIONS),))
        reader.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))
        return len(MIGRATIONS)

    def _version(self) -> int:
        """The version of the tables; 0 if there are none. Rejects tables of a newer version and of other programs."""
        reader, shown = self._reader, self.url.shown
        if not self._has(_TABLE):
            if not self._has("runs") and not self._has("records"):
                return 0
            if not self._has(_TABLE):  # asked again, because another server may have just created all of them
                raise StoreDamaged(
                    f"{shown} has tables of another program where Cuebook would create its own.",
                    fix="Choose another database, or a schema, as in ?options=-csearch_path%3Dcuebook2.",
                )
        ((version,),) = reader.execute(literal(f"SELECT version FROM {_TABLE}")).fetchall()
        if version > len(MIGRATIONS):
            raise StoreTooNew(
                f"The store {shown} has schema version {version}; this Cuebook knows {len(MIGRATIONS)}.",
                fix="Upgrade Cuebook on this machine, or choose another store with --store.",
            )
        return int(version)

    def _has(self, table: str) -> bool:
        return self._reader.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,)

    def _begin_schema(self) -> None:
        reader = self._reader
        (path,) = reader.execute("SHOW search_path").fetchone() or ("",)
        name = path.partition(",")[0].strip().strip('"')
        reader.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)))
        reader.execute(literal(f"CREATE TABLE {_TABLE} (version integer NOT NULL)"))
        reader.execute(literal(f"INSERT INTO {_TABLE} VALUES (0)"))

    # --- errors ---

    def translate(self, error: BaseException) -> StoreError:
        """Converts the driver's error to one with advice and without the password."""
        shown = self.url.shown
        said = " ".join(str(error).split())
        if self._password:
            said = said.replace(self._password, "…")
        if isinstance(error, InvalidPassword) or "no password supplied" in said:
            return StoreError(
                f"Postgres at {shown} refused the user name or password.",
                fix="Set store_password to a secret's handle, or PGPASSWORD or PGPASSFILE.",
            )
        if isinstance(error, InvalidCatalogName) or ("does not exist" in said and "database" in said):
            return StoreError(f"Postgres at {shown} has no such database.", fix="Create it, as with `createdb`.")
        if isinstance(error, InsufficientPrivilege | ReadOnlySqlTransaction):
            return StoreReadOnly(
                f"Postgres at {shown} does not permit this: {said}.",
                fix="Use a user that may create and change tables.",
            )
        if isinstance(error, DiskFull):
            return StoreFull(f"The disk of Postgres at {shown} is full.", fix="Free some space, then resume the run.")
        if is_lost(error):
            return StoreError(
                f"Postgres at {shown} cannot be reached ({said}).",
                fix="Check that it is running and that the URL is right, then try again.",
            )
        return StoreError(f"Postgres at {shown} failed: {said}.", fix="Check the database, then resume the run.")


class _LostInCommit(Exception):
    """The connection was lost during a commit, so it is unknown whether the commit took effect."""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is the problem: it was closed or refused, or the database is starting or stopping."""
    if isinstance(error, PoolTimeout):
        return True
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return str(state).startswith(("08", "57P"))


def literal(query: str) -> LiteralString:
    """Queries are assembled from constants in this package only."""
    return query

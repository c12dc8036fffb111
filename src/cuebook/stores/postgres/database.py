"""Connections to one Postgres database: opened on first use, replaced when lost, with errors that say what to do."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncPipeline, Connection, sql
from psycopg.errors import (
    DiskFull,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidPassword,
    ReadOnlySqlTransaction,
)
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cuebook.formats.database_url import DatabaseUrl
from cuebook.kernel.errors import NotFound, StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from cuebook.kernel.fold.verify import texts_behind
from cuebook.kernel.journal import Record
from cuebook.stores import leases
from cuebook.stores.postgres.schema import MIGRATIONS, REFERRED_SINCE
from cuebook.stores.rows import RECORD

T = TypeVar("T")

logging.getLogger("psycopg").setLevel(logging.ERROR)  # lost connections are replaced, or reported in our own words

_MIGRATION_LOCK = 0x6375_6562_6F6F_6B  # "cuebook" in ASCII
_PATIENCE = 20.0
"""Seconds to wait for a free connection, or for a database that is restarting. More than `ANSWER`: there is a second attempt."""
_TURN = 0.5
"""Seconds to wait for a connection of the pool before asking again. The pool itself would try a database that is down less and
less often, and then a worker would lose its leases after the database is back.
"""
ANSWER = 15.0
"""Seconds for all answers of one piece of work. A connection can be open and carry nothing: its proxy or its server is stuck."""
_STUCK = 5.0
"""Seconds to wait for a lock before looking at the session that holds it."""
_END_STUCK = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = ANY(pg_blocking_pids(%s)) AND usename = current_user AND wait_event = 'ClientRead'
        AND clock_timestamp() - state_change > make_interval(secs => %s)"""
"""Ends the sessions that block another one because they wait for the next statement of a client that is cut off. The database
ends them by itself only if the client is between two round trips, not if it was cut off in the middle of one.
"""
_SOON = 2.0
"""Maximum seconds of a request whose answer shows what time it is."""
_SESSION = {
    "idle_in_transaction_session_timeout": "5000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""A process that is stopped or cut off in a transaction must not keep its locks: others wait for them."""
_COMPARE_EVERY = 3.0
"""Seconds between two comparisons with the database's clock."""
_TIME = "SELECT extract(epoch FROM clock_timestamp())::float8"
_TABLE = "cuebook_schema"
_CHANNEL_SINCE = 4
"""The version of the tables since which the channel for notices has a name of its own."""
_WRONG_PASSWORD = ("no password supplied", "password authentication failed")
"""The driver's messages: its error has no SQLSTATE if it comes while connecting."""
_IDLE_TOO_LONG = "25P03"
"""The SQLSTATE of a connection that was closed because this process was stopped in the middle of a transaction."""


class Database:
    """The connections of one process."""

    def __init__(
        self, url: DatabaseUrl, password: str = "", *, durable: bool = True, size: int = 8, look: bool = False
    ) -> None:
        """Checks the database and migrates its tables; with `look`, changes nothing. `size` is the maximum number of
        connections, not counting the one for appends.
        """
        self.url = url
        self._secrets = {**url.secrets, **({"password": password} if password else {})}
        self._size = size
        self._settings: dict[str, Any] = {"autocommit": True, **self._secrets}
        self._durable = durable
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._pool_loop: asyncio.AbstractEventLoop | None = None
        self._aside: set[asyncio.Future[None]] = set()
        """Pools that are being closed, and sessions that are being ended."""
        self._is_away = False
        self._back_at = -1e9
        """When the database was reached again after it had been away."""
        try:
            self._reader = self._connect_now()
        except (psycopg.Error, UnicodeError) as error:
            raise self.translate(error) from None
        try:
            self.version = self._version() if look else self._migrate()
            self.channel = self._named_channel()
            self._offset = self._measured_offset()
            self._compared = time.monotonic()
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
        """Adjusts the estimate: the database reported the time `at` for a request sent at the monotonic time `before`.

        A slow answer is ignored: it was delayed before or after the database read its clock, and it is unknown which.
        """
        after = time.monotonic()
        if after - before < _SOON:
            self._offset = at - (before + after) / 2
            self._compared = after

    async def check_clock(self) -> None:
        """Asks for the database's time, unless that was done a moment ago. Our own clock does not run while we sleep."""
        before = time.monotonic()
        if before - self._compared > _COMPARE_EVERY:
            ((at,),) = await self.read(_TIME, ())
            self.compare_clock(at, before)

    def _measured_offset(self) -> float:
        before = time.monotonic()
        (at,) = self._reader.execute(literal(_TIME)).fetchone() or (0.0,)
        return float(at) - (before + time.monotonic()) / 2

    # --- using connections ---

    def read_now(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Reads synchronously, for the few values that are needed in the middle of a computation."""
        for attempt in (1, 2):
            try:
                if self._reader.closed:
                    self._reader = self._connect_now()
                with _hung_up_after(ANSWER, self._reader):
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

    async def use(
        self,
        work: Callable[[AsyncConnection[Any]], Awaitable[T]],
        *,
        repeatable: bool = False,
        within: float | None = None,
    ) -> T:
        """Calls `work` with a connection, and again with another connection if the first one is lost before a commit was
        sent. So `work` must be a read, or one `transaction`. With `repeatable`, also if it is lost during the commit. A
        connection on which it takes more than `within` seconds counts as lost, and so do the others of the pool.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                async with self._connection() as connection:
                    with self.answered(connection, within, self._replace_pool):
                        result = await work(connection)
                    self.reached()
                    return result
            except _LostInCommit as error:
                self.lost()
                if not repeatable or time.monotonic() > end:
                    raise self.translate(error.__cause__ or error) from None
            except (psycopg.Error, PoolTimeout) as error:
                if is_lost(error) and not isinstance(error, PoolTimeout):  # which may only mean that all are in use
                    self.lost()
                if not is_lost(error) or time.monotonic() > end:
                    raise self.translate(error) from None
            await asyncio.sleep(0.1)

    def _replace_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._do_aside(pool.close(timeout=0))

    @contextmanager
    def answered(
        self,
        connection: AsyncConnection[Any],
        within: float | None = None,
        or_else: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        """Hangs up after `within` seconds, and calls `or_else`: what waits for an answer then fails as if the server had
        closed the connection. Before that, ends sessions that are cut off and hold a lock that this connection waits for.
        """
        blocked = connection.info.backend_pid

        def hang_up() -> None:
            if or_else is not None:
                or_else()
            _hang_up(connection)

        loop = asyncio.get_running_loop()
        limit = ANSWER if within is None else within
        timers = [loop.call_later(limit, hang_up)]
        if limit > _STUCK:
            timers.append(loop.call_later(_STUCK, lambda: self._do_aside(self._unblock(blocked))))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    async def _unblock(self, blocked: int) -> None:
        with suppress(psycopg.Error):
            connection = await AsyncConnection.connect(self.url.conninfo, **self._settings)
            async with asyncio.timeout(ANSWER), connection:
                await connection.execute(literal(_END_STUCK), (blocked, _STUCK / 2))

    def _do_aside(self, work: Awaitable[None]) -> None:
        future = asyncio.ensure_future(work)
        self._aside.add(future)
        future.add_done_callback(self._aside.discard)

    def lost(self) -> None:
        self._is_away = True

    def reached(self) -> None:
        if self._is_away:
            self._is_away, self._back_at = False, time.monotonic()

    @property
    def was_away(self) -> bool:
        """Whether the database was out of reach within the time of a lease. If so, others may not have reached it either, so a
        lease that has expired does not mean that its driver is gone.
        """
        return self._is_away or time.monotonic() - self._back_at < leases.LEASE

    @asynccontextmanager
    async def transaction(self, connection: AsyncConnection[Any]) -> AsyncIterator[Transaction]:
        """Commits at the end. If the connection is lost during the commit, it is unknown whether it took effect."""
        committing = False
        try:
            async with connection.pipeline() as pipeline:
                await connection.execute("BEGIN")
                yield Transaction(connection, pipeline, self.was_away)
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
                timeout=_TURN,
                reconnect_timeout=_TURN / 2,
                open=False,
                configure=self._configure,
                name="cuebook",
            )
            await self._pool.open()
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        async with self._pool.connection() as connection:
            # Before Python 3.12, `wait_for`, which the pool uses, loses a cancellation that comes with the connection.
            if task and task.cancelling() > cancels:
                raise asyncio.CancelledError
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
        chosen = {**_SESSION, **({} if self._durable else {"synchronous_commit": "off"})}
        with self.answered(connection):
            await connection.execute(literal("; ".join(f"SET {name} = {value}" for name, value in chosen.items())))

    def close_now(self) -> None:
        self._reader.close()

    async def close(self) -> None:
        self.close_now()
        if self._pool is not None and self._pool_loop is asyncio.get_running_loop():
            await self._pool.close()
        if self._aside:
            await asyncio.wait(self._aside)
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
            if 0 < version < REFERRED_SINCE:
                _refer(reader)
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

    def _named_channel(self) -> str:
        """The channel for notices, whose name only those can read who may read the tables. Empty if the tables are older."""
        if self.version < _CHANNEL_SINCE:
            return ""
        ((channel,),) = self._reader.execute(literal(f"SELECT channel FROM {_TABLE}")).fetchall()
        return str(channel)

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
        """Converts the driver's error to one with advice and without its secrets."""
        shown = self.url.shown
        said = " ".join(str(error).split())
        for secret in filter(None, self._secrets.values()):
            said = said.replace(secret, "…")
        if isinstance(error, InvalidPassword) or any(words in said for words in _WRONG_PASSWORD):
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


class Transaction:
    """A transaction in progress. Its statements are sent without waiting for each other, until a result is needed."""

    def __init__(self, connection: AsyncConnection[Any], pipeline: AsyncPipeline, was_away: bool) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self.was_away = was_away
        """Whether the database was out of reach a moment ago."""

    async def do(self, query: str, values: tuple[Any, ...] = ()) -> None:
        """Sends a statement whose result does not matter."""
        await self._connection.execute(literal(query), values)

    async def all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        cursor = await self._connection.execute(literal(query), values)
        # Without it, the database would not see that the transaction is idle until the next statement arrives.
        await self._pipeline.sync()
        return await cursor.fetchall()

    async def one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        rows = await self.all(query, values)
        return rows[0] if rows else None


def _refer(reader: Connection[Any]) -> None:
    """Records which texts each run refers to, in a store that did not."""

    def load(digest: str) -> str:
        found = reader.execute("SELECT body FROM texts WHERE digest = %s LIMIT 1", (digest,)).fetchone()
        if found is None:
            raise NotFound(f"The text {digest} was purged.")
        return bytes(found[0]).decode()

    for key, run, tenant in reader.execute("SELECT key, id, tenant FROM runs").fetchall():
        rows = reader.execute(literal(f"SELECT {RECORD} FROM records WHERE run = %s ORDER BY seq"), (key,))
        found = texts_behind((Record(run, *values) for values in rows.fetchall()), load)
        for digest in [one.digest for one in found if one.text is not None]:
            reader.execute("INSERT INTO run_texts VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (key, digest, tenant))


class _LostInCommit(Exception):
    """The connection was lost during a commit, so it is unknown whether the commit took effect."""


@contextmanager
def _hung_up_after(seconds: float, connection: Connection[Any]) -> Iterator[None]:
    """For a synchronous read, during which no timer of the loop can fire."""
    timer = threading.Timer(seconds, _hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is the problem: it was closed or refused, or the database is starting or stopping."""
    if isinstance(error, PoolTimeout):
        return True
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return str(state).startswith(("08", "57P")) or state == _IDLE_TOO_LONG


def literal(query: str) -> LiteralString:
    """Queries are assembled from constants in this package only."""
    return query

"""Group commit: writes the pending appends of all runs in one transaction, sent in one round trip.

An append is acknowledged only after its commit. If the connection is lost during a commit, the writer looks up afterwards
which records were stored, so nothing is written twice and nothing stored is reported as lost.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from cuebook.kernel.errors import CuebookError, StoreError
from cuebook.kernel.ports import Batch
from cuebook.stores.postgres.database import Database, is_lost, literal
from cuebook.stores.postgres.notices import records_notice
from cuebook.stores.postgres.statements import LOCK, Statements
from cuebook.stores.refusals import fenced, gap, no_run

_PATIENCE = 60.0
"""Seconds to wait for a database that is restarting: the outcomes to be written cannot be obtained again."""
_MOST = 500
"""Maximum number of batches in one transaction."""


class _Append:
    __slots__ = ("batch", "done", "error")

    def __init__(self, batch: Batch, done: asyncio.Future[None]) -> None:
        self.batch = batch
        self.done = done
        self.error: BaseException | None = None


class GroupCommit:
    """Writes the appends of one process, one commit at a time."""

    def __init__(self, database: Database, sender: str) -> None:
        self._database = database
        self._sender = sender
        self._connection: AsyncConnection[Any] | None = None
        self._waiting: list[_Append] = []
        self._task: asyncio.Task[None] | None = None
        self._last: dict[str, asyncio.Future[None]] = {}
        self.keys: dict[str, int] = {}
        self._heads: dict[str, tuple[int, int]] = {}
        """The epoch and the number of the last record of each run that is claimed here."""
        self._closed = False

    def submit(self, batch: Batch) -> asyncio.Future[None]:
        if self._closed:
            raise StoreError("The store is closed.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_Append(batch, done))
        self._last[batch.run] = done
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        return done

    def claimed(self, run: str, key: int, epoch: int, head: int) -> None:
        """Records the epoch and the record that the next append of a run must continue from."""
        self.keys[run] = key
        self._heads[run] = (epoch, head)

    def released(self, run: str) -> None:
        self._heads.pop(run, None)

    async def settled(self, run: str) -> None:
        """Returns when everything that was submitted for a run is written or refused."""
        last = self._last.get(run)
        if last is not None:
            await asyncio.wait([last])

    async def close(self) -> None:
        """Writes everything that was submitted."""
        self._closed = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            with suppress(psycopg.Error):
                await self._connection.close()
            self._connection = None

    # --- inside ---

    async def _work(self) -> None:
        while self._waiting:
            appends, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            await self._commit(appends)
            for append in appends:
                if self._last.get(append.batch.run) is append.done:
                    del self._last[append.batch.run]
                if append.done.cancelled():
                    continue
                if append.error is None:
                    append.done.set_result(None)
                else:
                    append.done.set_exception(append.error)

    async def _commit(self, appends: list[_Append]) -> None:
        try:
            await self._persist(appends)
        except StoreError as error:
            for append in appends:
                append.error = append.error or error
        except psycopg.Error as error:
            if len(appends) > 1:  # a batch that cannot be stored must not fail the others
                for append in appends:
                    append.error = None
                    await self._commit([append])
            else:
                self.released(appends[0].batch.run)
                appends[0].error = StoreError(f"A record could not be stored: {error}")
        except Exception as error:
            for append in appends:
                self.released(append.batch.run)
                append.error = error

    async def _persist(self, appends: list[_Append]) -> None:
        """Commits. If the connection is lost, finds out what was committed, and commits the rest."""
        end = time.monotonic() + _PATIENCE
        left = appends
        while True:
            try:
                with self._database.answered(await self._connected()):
                    await self._attempt(left)
                self._database.reached()
                return
            except psycopg.Error as error:
                await self._drop_connection()
                if not is_lost(error):
                    raise
                self._database.lost()
                if time.monotonic() > end:
                    raise self._database.translate(error) from None
            await asyncio.sleep(0.1)
            with suppress(psycopg.Error), self._database.answered(await self._connected()):
                left = await self._unwritten(left)
                if not left:
                    return

    async def _unwritten(self, appends: list[_Append]) -> list[_Append]:
        """The appends whose last record is not in the journal."""
        connection = await self._connected()
        left = []
        for append in appends:
            last = append.batch.records[-1] if append.batch.records else None
            key = self.keys.get(append.batch.run)
            if append.error is None and last is not None and key is not None:
                cursor = await connection.execute(
                    "SELECT 1 FROM records WHERE run = %s AND seq = %s AND chain = %s", (key, last.seq, last.chain)
                )
                if await cursor.fetchone() is not None:
                    self._heads[append.batch.run] = (append.batch.epoch, last.seq)
                    continue
            left.append(append)
        return left

    async def _attempt(self, appends: list[_Append]) -> None:
        connection = await self._connected()
        await self._look_up(connection, appends)
        statements = Statements()
        heads: dict[str, int] = {}
        written: list[_Append] = []
        for append in appends:
            batch = append.batch
            try:
                heads[batch.run] = self._following(batch, heads)
            except CuebookError as error:
                append.error = error
                continue
            statements.put(self.keys[batch.run], batch)
            written.append(append)
        if not written:
            return
        keys = sorted({self.keys[append.batch.run] for append in written})
        notice = records_notice(self._sender, heads)
        async with connection.pipeline():
            await connection.execute("BEGIN")
            locked = await connection.execute(literal(LOCK), (keys,), prepare=True)
            for query, values in statements:
                await connection.execute(literal(query), values)
            await connection.execute("SELECT pg_notify(%s, %s)", (self._database.channel, notice))
            await connection.execute("COMMIT")
        epochs = {run: epoch for run, _, epoch in await locked.fetchall()}
        for append in written:
            run = append.batch.run
            if epochs.get(run) != append.batch.epoch:
                self.released(run)
                append.error = fenced(run) if run in epochs else no_run(run)
            else:
                self._heads[run] = (append.batch.epoch, heads[run])

    def _following(self, batch: Batch, heads: dict[str, int]) -> int:
        """The number of the run's last record after this batch. Rejects a batch that does not continue from it."""
        epoch, head = self._heads.get(batch.run, (-1, 0))
        if epoch < 0:
            raise no_run(batch.run)
        if epoch != batch.epoch:
            raise fenced(batch.run)
        head = heads.get(batch.run, head)
        if not batch.records:
            return head
        if head and batch.records[0].seq != head + 1:
            raise gap(batch, head)
        return batch.records[-1].seq

    async def _look_up(self, connection: AsyncConnection[Any], appends: list[_Append]) -> None:
        """Looks up the runs whose current epoch is unknown here."""
        known = self._heads.get
        unknown = sorted({a.batch.run for a in appends if known(a.batch.run, (-1, 0))[0] != a.batch.epoch})
        if unknown:
            cursor = await connection.execute(
                "SELECT r.id, r.key, r.epoch, (SELECT max(seq) FROM records WHERE run = r.key)"
                " FROM runs r WHERE r.id = ANY(%s)",
                (unknown,),
            )
            for run, key, epoch, head in await cursor.fetchall():
                self.claimed(run, key, epoch, head or 0)

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is not None and self._connection.closed:
            await self._drop_connection()
        if self._connection is None:
            self._connection = await self._database.connect()
        return self._connection

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        # A server that does not commit synchronously may have lost the last records, so the next append looks them up.
        self._heads.clear()
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()

"""Group commit: commits the concurrent writes of all runs together.

A write is acknowledged only after its commit. On most disks a commit takes a fraction of a millisecond and happens in the
event loop, without switching threads. If the disk is slow or another process holds the write lock, commits move to a
thread and block nothing else. This module handles transactions, whatever their contents.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cuebook.kernel.errors import CuebookError, StoreError

T = TypeVar("T")

BUSY_TIMEOUT = 10.0
"""Seconds that a commit waits for another process to release the write lock."""

SLOW = 0.005
"""Seconds. After a commit that takes longer, the next commit moves to the thread."""


class Transaction(Protocol):
    """Restarted for each commit; `flush` writes the collected changes, `undo` discards them."""

    def begin(self) -> None: ...
    def flush(self) -> None: ...
    def undo(self) -> None: ...


X = TypeVar("X", bound=Transaction)


class _Write(msgspec.Struct, gc=False, eq=False):
    operation: Callable[..., Any]
    values: tuple[Any, ...]
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer(Generic[X]):
    """Runs operations in transactions on its own connection, one commit at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        transaction: X,
        translate: Callable[[Exception], StoreError],
        make_room: Callable[[], None],
    ) -> None:
        """`make_room` is called in each transaction before anything is written."""
        self._connection = connection
        self._transaction = transaction
        self._translate = translate
        self._make_room = make_room
        self._waiting: list[_Write] = []
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop
        """The event loop in which a commit is scheduled, if one is."""
        self._slow = False
        self._patience = -1.0
        """Seconds for which the connection waits for a lock; unknown at first."""
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None
        self._closed = False

    def submit(self, operation: Callable[..., T], *values: Any) -> asyncio.Future[T]:
        """Calls `operation(transaction, *values)` in the next commit."""
        if self._closed:
            raise StoreError("The store is closed.")
        if not self._scheduled:
            self._scheduled = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._commit_waiting, self._loop)
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Write(operation, values, done))
        return done

    def close(self) -> None:
        """Finishes the submitted operations."""
        self._closed = True
        if self._under_way is not None:
            self._under_way.result()
        writes, self._waiting = self._waiting, []
        if writes:
            self._commit(writes)
            _deliver(writes)
        if self._thread is not None:
            self._thread.shutdown()

    def _commit_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        writes, self._waiting = self._waiting, []
        if not writes:  # the store was closed in the meantime and has written them
            return
        if not self._slow and self._begin_now():
            self._commit(writes, begun=True)
            self._delivered(loop, writes)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cuebook-writer")
        self._under_way = self._thread.submit(self._commit, writes)
        self._under_way.add_done_callback(lambda _: _call(loop, self._delivered, writes))

    def _delivered(self, loop: asyncio.AbstractEventLoop, writes: list[_Write]) -> None:
        self._under_way = None
        _deliver(writes)
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._commit_waiting, loop)

    def _begin_now(self) -> bool:
        """Begins a transaction if no other process holds the lock."""
        try:
            self._begin(patience=0.0)
        except sqlite3.Error:  # the thread will wait or report the error
            return False
        return True

    def _begin(self, patience: float) -> None:
        """The only place that waits for a lock: once a transaction has begun, no other process can block it."""
        if patience != self._patience:
            self._connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
            self._patience = patience
        self._connection.execute("BEGIN IMMEDIATE")

    def _commit(self, writes: list[_Write], begun: bool = False) -> None:
        started = time.perf_counter()
        try:
            self._attempt(writes, begun)
        except StoreError as error:
            for write in writes:
                write.error = error
        except Exception as error:
            if len(writes) > 1:  # one write that cannot be stored must not fail the others
                for write in writes:
                    write.result = write.error = None
                    self._commit([write])
            else:
                writes[0].error = StoreError(f"A record could not be stored: {error}")
        self._slow = time.perf_counter() - started > SLOW + len(writes) * 0.0001

    def _attempt(self, writes: list[_Write], begun: bool) -> None:
        try:
            if not begun:
                self._begin(patience=BUSY_TIMEOUT)
            self._make_room()
            self._transaction.begin()
            for write in writes:
                try:
                    write.result = write.operation(self._transaction, *write.values)
                except CuebookError as refusal:
                    write.error = refusal
            self._transaction.flush()
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._transaction.undo()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError | UnicodeDecodeError) or type(error) is sqlite3.DatabaseError:
                raise self._translate(error) from error
            raise


def _deliver(writes: list[_Write]) -> None:
    for write in writes:
        if write.done.cancelled():
            continue
        if write.error is None:
            write.done.set_result(write.result)
        else:
            write.done.set_exception(write.error)


def _call(loop: asyncio.AbstractEventLoop, deliver: Callable[..., None], writes: list[_Write]) -> None:
    try:
        loop.call_soon_threadsafe(deliver, loop, writes)
    except RuntimeError:  # the loop was closed during the commit: the writes are stored, and no one is waiting
        pass

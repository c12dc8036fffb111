"""Removes runs from a SQLite store: a run is gone in one short transaction, and its space is freed in many short ones.

While one of these transactions is open, no other process can write, so each stops after a few milliseconds of work. What is
deleted is overwritten with zeros, because all connections that write are opened so.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cuebook.kernel.journal import PURGED
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Batch, Removal, Space, Swept
from cuebook.stores.refusals import ERASED, PURGED_RUN, RECENT, check_removable, no_run
from cuebook.stores.sqlite.database import Database
from cuebook.stores.sqlite.group_commit import Writer
from cuebook.stores.sqlite.transaction import Transaction

BUDGET, _LEAST = 0.008, 0.001
"""Seconds after which a transaction takes up nothing more, and how few these become if transactions take longer than that."""
_LONG = 0.02
"""Seconds, with the commit, that another writer should wait at most."""
_WHILE_READ = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Seconds before each attempt to empty a log that others may be reading."""
_BETWEEN_CHECKPOINTS = 16
"""Transactions."""
_ROWS = 25
_MOST_RUNS = 200
_json = msgspec.json.encode
_USED_FILE = (
    "SELECT 1 FROM run_files f JOIN runs r ON r.key = f.run LEFT JOIN removals x ON x.run = r.id AND x.done = 0"
    " WHERE f.digest = {} AND r.tenant = {} AND x.run IS NULL"
)
_ORPHANS = (
    "SELECT tenant, digest FROM files o WHERE touched < ?"
    f" AND NOT EXISTS ({_USED_FILE.format('o.digest', 'o.tenant')}) LIMIT 20"
)
_PLAIN = (
    ("records", "seq"),
    ("steps", "path, label, visit"),
    ("checkpoints", "path, seq"),
)


def remove(transaction: Transaction, removals: Sequence[Removal], force: bool) -> None:
    """Deletes the rows of runs. Their records, texts and files are freed later."""
    transaction.flush()
    db = transaction.connection
    going = {one.run for one in removals}
    found: list[tuple[Removal, int, str]] = []
    for one in removals:
        row = db.execute("SELECT key, status, driver, playbook FROM runs WHERE id = ?", (one.run,)).fetchone()
        if row is None:
            raise no_run(one.run)
        key, status, driver, playbook = row
        forks = [
            name
            for (name,) in db.execute("SELECT id FROM runs WHERE parent = ? AND parent <> ''", (one.run,))
            if name not in going
        ]
        check_removable(one.run, status, transaction.is_held(driver), forks, force)
        found.append((one, key, playbook))
    for one, key, playbook in found:
        _note(db, one, key, last=0)
        db.execute("DELETE FROM runs WHERE key = ?", (key,))
        db.execute("DELETE FROM waits WHERE run = ?", (key,))
        db.execute("DELETE FROM signals WHERE run = ?", (key,))
        db.execute("UPDATE playbook_runs SET runs = runs - 1 WHERE digest = ?", (playbook,))
        if db.execute("DELETE FROM playbook_runs WHERE digest = ? AND runs <= 0", (playbook,)).rowcount:
            db.execute("DELETE FROM playbooks WHERE digest = ?", (playbook,))
        transaction.forget_run(one.run)


def purge(transaction: Transaction, batch: Batch, removal: Removal) -> None:
    transaction.release(batch, False)
    transaction.flush()
    db = transaction.connection
    key, error = db.execute("SELECT key, error FROM runs WHERE id = ?", (batch.run,)).fetchone()
    if error:
        error = _json(Failed(msgspec.json.decode(error, type=Failed).code, ERASED)).decode()
    _note(db, removal, key, last=batch.records[-1].seq - 1)
    db.execute("UPDATE runs SET reason = ?, error = ?, news = 0 WHERE key = ?", (PURGED_RUN, error, key))
    db.execute("DELETE FROM waits WHERE run = ?", (key,))
    db.execute("DELETE FROM signals WHERE run = ?", (key,))


def _note(db: sqlite3.Connection, removal: Removal, key: int, last: int) -> None:
    first, count, head = db.execute(
        "SELECT ifnull(min(seq), 1), count(*), (SELECT chain FROM records WHERE run = ? ORDER BY seq DESC LIMIT 1)"
        " FROM records WHERE run = ?",
        (key, key),
    ).fetchone()
    noted = msgspec.structs.replace(removal, records=count, head=bytes(head or b"").hex())
    db.execute(
        "INSERT OR REPLACE INTO removals (run, key, tenant, what, at, first, last, body) VALUES (?,?,?,?,?,?,?,?)",
        (removal.run, key, removal.tenant, removal.what, removal.at, first, last, _json(noted).decode()),
    )


def bring_in(transaction: Transaction, removals: Sequence[Removal]) -> None:
    transaction.connection.executemany(
        "INSERT OR IGNORE INTO removals (run, key, tenant, what, at, done, body) VALUES (?, 0, ?, ?, ?, 1, ?)",
        [(one.run, one.tenant, one.what, one.at, _json(one).decode()) for one in removals],
    )


def sweep(
    transaction: Transaction, now: float, orphans: Sequence[tuple[str, str]], budget: float
) -> tuple[Swept, float]:
    """Also returns when it began."""
    began = time.perf_counter()
    transaction.flush()
    db = transaction.connection
    return _Sweep(db, now, began + budget).run(orphans), began


class _Sweep:
    """One transaction that frees space until its time is over."""

    def __init__(self, db: sqlite3.Connection, now: float, end: float) -> None:
        self._db = db
        self._now = now
        self._end = end
        self._swept = Swept()

    def run(self, orphans: Sequence[tuple[str, str]]) -> Swept:
        to_do = self._db.execute(
            "SELECT run, key, tenant, what, first, last FROM removals WHERE done = 0 ORDER BY at LIMIT ?", (_MOST_RUNS,)
        ).fetchall()
        for run, key, tenant, what, first, last in to_do:
            whole = what == "deleted"
            free = (
                self._rows(key, _PLAIN) if whole else self._empty(run, key, first, last) and self._rows(key, _PLAIN[1:])
            )
            if not (free and self._texts(key) and self._files(key, tenant)):
                self._swept.more = True
                return self._swept
            self._db.execute("UPDATE removals SET done = 1 WHERE run = ?", (run,))
        self._swept.more = True  # in the end, there is one that has nothing to do
        for tenant, digest in orphans:
            if not self._free_file(tenant, digest):
                break
        return self._swept

    def _repeat(self, part: Callable[[], int]) -> bool:
        """Calls `part` until it has nothing left to do, or the time is over. Returns whether it is done."""
        while time.perf_counter() < self._end:
            rows = part()
            self._swept.rows += rows
            if rows == 0:
                return True
        return False

    def _rows(self, key: int, tables: Sequence[tuple[str, str]]) -> bool:
        for table, columns in tables:
            query = (
                f"DELETE FROM {table} WHERE run = ? AND ({columns}) IN"
                f" (SELECT {columns} FROM {table} WHERE run = ? LIMIT {_ROWS})"
            )
            if not self._repeat(lambda query=query: self._db.execute(query, (key, key)).rowcount):  # type: ignore[misc]
                return False
        return True

    def _empty(self, run: str, key: int, first: int, last: int) -> bool:
        """Replaces the contents of records by their digests."""
        at = first

        def part() -> int:
            nonlocal at
            rows = self._db.execute(
                "SELECT seq, body FROM records WHERE run = ? AND seq >= ? AND seq <= ? ORDER BY seq LIMIT ?",
                (key, at, last, _ROWS),
            ).fetchall()
            emptied = [
                (PURGED + sha256(body).digest(), key, seq) for seq, body in rows if not bytes(body).startswith(PURGED)
            ]
            self._db.executemany("UPDATE records SET body = ? WHERE run = ? AND seq = ?", emptied)
            at = rows[-1][0] + 1 if rows else at
            return len(rows)

        done = self._repeat(part)
        self._db.execute("UPDATE removals SET first = ? WHERE run = ?", (at, run))
        return done

    def _texts(self, key: int) -> bool:
        def part() -> int:
            found = self._db.execute("SELECT digest FROM run_texts WHERE run = ? LIMIT 5", (key,)).fetchall()
            for (digest,) in found:
                self._db.execute("DELETE FROM run_texts WHERE run = ? AND digest = ?", (key, digest))
                unused = "NOT EXISTS (SELECT 1 FROM run_texts WHERE digest = ?)"
                gone = self._db.execute(f"DELETE FROM texts WHERE digest = ? AND {unused}", (digest, digest))
                self._swept.texts += gone.rowcount
            return len(found)

        return self._repeat(part)

    def _files(self, key: int, tenant: str) -> bool:
        while time.perf_counter() < self._end:
            found = self._db.execute("SELECT digest FROM run_files WHERE run = ? LIMIT 1", (key,)).fetchone()
            if found is None:
                return True
            if not self._free_file(tenant, found[0]):
                return False
            self._db.execute("DELETE FROM run_files WHERE run = ? AND digest = ?", (key, found[0]))
        return False

    def _free_file(self, tenant: str, digest: str) -> bool:
        """Frees a file, unless a run needs it or it was produced a moment ago. Returns False if time runs out before."""
        file = self._db.execute(
            "SELECT touched FROM files WHERE tenant = ? AND digest = ?", (tenant, digest)
        ).fetchone()
        if file is None or file[0] > self._now - RECENT:
            return True
        if self._db.execute(_USED_FILE.format("?", "?"), (digest, tenant)).fetchone() is not None:
            return True
        self._db.execute("UPDATE files SET size = -1 WHERE tenant = ? AND digest = ?", (tenant, digest))
        query = (
            "DELETE FROM pieces WHERE tenant = ? AND digest = ? AND number IN"
            " (SELECT number FROM pieces WHERE tenant = ? AND digest = ? LIMIT 1)"
        )
        if not self._repeat(lambda: self._db.execute(query, (tenant, digest, tenant, digest)).rowcount):
            return False
        self._db.execute("DELETE FROM files WHERE tenant = ? AND digest = ?", (tenant, digest))
        self._swept.files += 1
        return True


class Pace:
    """How much one transaction may do, so that others wait only briefly, however slow the disk and busy the machine is."""

    def __init__(self) -> None:
        self.budget = BUDGET

    def took(self, seconds: float) -> None:
        """Adjusts the budget to how long a transaction took, with its commit."""
        self.budget = max(_LEAST, self.budget / 2) if seconds > _LONG else min(BUDGET, self.budget * 1.25)


class Removals:
    """The part of the store that removes runs."""

    def __init__(
        self,
        database: Database,
        writer: Writer[Transaction],
        read: Callable[[str, tuple[Any, ...]], list[Any]],
    ) -> None:
        self._database = database
        self._writer = writer
        self._all = read
        self._pace = Pace()
        self._leaves_traces = False
        """Whether the log has what was deleted."""
        self._transactions = 0

    async def remove(self, removals: Sequence[Removal], force: bool) -> None:
        await self._writer.submit(remove, removals, force)
        await self._checkpoint()

    async def forget(self, tenant: str, kind: str, name: str) -> bool:
        gone = await self._writer.submit(Transaction.forget, tenant, kind, name)
        if gone:
            self._leaves_traces = True
            for pause in _WHILE_READ:
                await asyncio.sleep(pause)
                if await asyncio.to_thread(self._empty_log):
                    self._leaves_traces = False
                    break  # otherwise, the next sweep tries again
        return gone

    async def purge(self, batch: Batch, removal: Removal) -> None:
        await self._writer.submit(purge, batch, removal)

    async def sweep(self, now: float) -> Swept:
        to_do = self._all("SELECT 1 FROM removals WHERE done = 0 LIMIT 1", ())
        orphans = [] if to_do else self._all(_ORPHANS, (now - RECENT,))  # this reads all files, so only in the end
        if not to_do and not orphans:
            if self._leaves_traces:
                self._leaves_traces = not await asyncio.to_thread(self._empty_log)
            return Swept()
        self._leaves_traces = True
        swept, began = await self._writer.submit(sweep, now, orphans, self._pace.budget)
        self._pace.took(time.perf_counter() - began)
        await self._checkpoint()
        return swept

    async def _checkpoint(self) -> None:
        """Moves the log's contents to the file now and then, so that no commit has to, which would take long."""
        self._transactions += 1
        if self._transactions % _BETWEEN_CHECKPOINTS == 0:
            await asyncio.to_thread(self._empty_log, truncate=False)

    def _empty_log(self, truncate: bool = True) -> bool:
        """Moves the log's contents to the file and empties the log, which still has what was deleted. Returns False if it is in
        use.
        """
        connection = self._database.connect()
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # locks out no one, and leaves little to do
            if not truncate:
                return False
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()

    async def removals(self, tenant: str, run: str, limit: int | None) -> list[Removal]:
        only, values = (" AND run = ?", (tenant, run)) if run else ("", (tenant,))
        rows = self._all(
            f"SELECT body FROM removals WHERE tenant = ?{only} ORDER BY at DESC LIMIT ?",
            (*values, -1 if limit is None else limit),
        )
        return [msgspec.json.decode(body, type=Removal) for (body,) in rows]

    async def bring_in(self, removals: Sequence[Removal]) -> None:
        await self._writer.submit(bring_in, removals)

    async def sizes(self, tenant: str, runs: Collection[str]) -> dict[str, int]:
        rows = self._all(
            "SELECT r.id, ifnull((SELECT sum(length(head) + length(body) + length(chain)) FROM records WHERE run = r.key), 0)"
            " + ifnull((SELECT sum(max(size, 0)) FROM run_files u JOIN files f ON f.digest = u.digest AND f.tenant = r.tenant"
            " WHERE u.run = r.key), 0) FROM runs r WHERE id IN (SELECT value FROM json_each(?)) AND +tenant = ?",
            (_json(list(runs)).decode(), tenant),
        )
        return dict(rows)

    async def usage(self, tenant: str) -> list[Space]:
        rows = self._all(
            "SELECT r.name, count(*), sum(length(head) + length(body) + length(chain)), count(DISTINCT r.key)"
            " FROM runs r JOIN records t ON t.run = r.key WHERE r.tenant = ? GROUP BY r.name",
            (tenant,),
        )
        found = [Space(name, "records", count, size or 0, runs) for name, count, size, runs in rows]
        for kind, table, size in (("texts", "run_texts", "length(t.body)"), ("files", "run_files", "max(t.size, 0)")):
            rows = self._all(  # a text or file counts once for each playbook whose runs refer to it
                f"SELECT name, count(*), sum(size) FROM (SELECT DISTINCT r.name AS name, t.digest, {size} AS size"
                f" FROM runs r JOIN {table} u ON u.run = r.key JOIN {kind} t ON t.digest = u.digest"
                f"{' AND t.tenant = r.tenant' if kind == 'files' else ''} WHERE r.tenant = ?) GROUP BY name",
                (tenant,),
            )
            found += [Space(name, kind, count, size or 0) for name, count, size in rows]  # type: ignore[arg-type]
        rows = self._all(
            "SELECT count(*), sum(length(body)) FROM playbooks WHERE digest IN (SELECT playbook FROM runs WHERE tenant = ?)",
            (tenant,),
        )
        found += [Space("", "playbooks", count, size or 0) for count, size in rows]
        pages, page = self._all("SELECT freelist_count, page_size FROM pragma_freelist_count, pragma_page_size", ())[0]
        return [*found, Space("", "free", pages, pages * page)]

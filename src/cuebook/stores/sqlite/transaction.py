"""The SQLite store's operations within a commit: the writes of all runs, one after another, some of which may be
rejected.

An operation is rejected before it writes anything, so the other operations in the commit remain valid.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.kernel.capabilities import lasting
from cuebook.kernel.errors import Busy
from cuebook.kernel.events import ENDED
from cuebook.kernel.journal import Record
from cuebook.kernel.ports import Batch, KeptRecord, RunCopy
from cuebook.kernel.run import Lease, RunRow, Signal, WaitRow, copy_row
from cuebook.kernel.spending import Spending
from cuebook.kernel.votes import counted
from cuebook.stores.leases import Holder, Leases, new_slot
from cuebook.stores.refusals import (
    attach_late,
    check_claim,
    check_signal,
    fenced,
    gap,
    no_run,
    no_wait,
    refusal,
    run_exists,
    take_lease,
)
from cuebook.stores.rows import (
    NAMES_OF_ENDED,
    RECORD,
    RUN,
    RUN_MARKS,
    run_row,
    run_values,
    shown_values,
    step_values,
    wait_values,
    without_row,
)
from cuebook.stores.sqlite import jobs, spending

_SHOW = "updated = ?, reason = ?, step = ?, model = ?, totals = ?, error = nullif(?, ''), workspace = ?, needs = ?, status = ?"
_UPDATE = f"UPDATE runs SET {_SHOW} WHERE key = ?"
_UPDATE_SAME = f"UPDATE runs SET {_SHOW.removesuffix(', status = ?')} WHERE status = ? AND key = ?"
"""Like `_UPDATE`, if the status is unchanged: setting it would make SQLite rewrite the index."""
_LET_GO = "driver = '', epoch = epoch + 1, news = (news AND NOT ?) OR ?"
_RELEASE = f"UPDATE runs SET {_SHOW}, {_LET_GO} WHERE key = ?"
_CLAIM_NEW = "UPDATE runs SET epoch = 1, driver = ?, status = 'running' WHERE key = ?"
_GIVE_UP = f"""UPDATE runs SET driver = '', epoch = epoch + 1, news = news OR needs <> '[]'
    OR EXISTS (SELECT 1 FROM waits w WHERE w.run = runs.key AND w.state IN ('answered', 'expired', 'cancelled'))
    OR EXISTS (SELECT 1 FROM signals s WHERE s.run = runs.key AND s.taken = 0
        AND (s.kind = 'retry' OR runs.status NOT IN ({NAMES_OF_ENDED})))
    WHERE key = ?"""
"""For a drive without a result, whose cause is still pending."""
LASTING_SLOTS = "SELECT count(*) FROM slots WHERE name = ? AND until > ?"
HELD_SLOTS = "SELECT id, driver FROM slots WHERE name = ? AND until IS NULL"
_NEW_KEY = "1 + max(ifnull((SELECT max(key) FROM runs), 0), ifnull((SELECT max(key) FROM removals), 0))"
"""The key of a deleted run is never used again: its records may still be there, and other processes may remember it."""
_MOST_NEW = 1_000
_COLUMNS, _MANY = 7, 32
_INSERT = ["INSERT INTO records VALUES " + ",".join(["(?,?,?,?,?,?,?)"] * rows) for rows in range(_MANY + 1)]
"""For up to 32 records: SQLite adds rows faster if one statement contains several."""
_json = msgspec.json.encode
_blob = bytearray
"""Binds bytes. For `bytes` itself and for None, Python's driver looks for an adapter, which takes longer than this copy."""


class Transaction:
    """The operations of one commit, all on the writer's thread."""

    def __init__(self, connection: sqlite3.Connection, leases: Leases) -> None:
        self._db = connection
        self._leases = leases
        self._version = -1
        self._runs: dict[str, tuple[int, int]] = {}
        """Key and epoch by run id: valid as long as no other process has written."""
        self._heads: dict[int, int] = {}
        """The last record's number by run key."""
        self._quiet: set[int] = set()
        """Keys of runs without waits or signals: they were new when claimed, and nothing has been opened or sent since."""
        self._new: dict[str, tuple[RunRow, list[Record]]] = {}
        """Runs that were created here and that no one has claimed, appended to or signalled since, with their records."""
        self._records: list[Any] = []
        """The columns of new records, one record after another."""
        self._steps: list[tuple[Any, ...]] = []
        self._texts: list[tuple[str, str]] = []
        self._referred: list[tuple[int, str]] = []
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._spent: list[Spending] = []
        self._claimed: list[tuple[str, int]] = []
        self._released: list[tuple[Any, ...]] = []

    def begin(self) -> None:
        self._records, self._steps, self._texts, self._referred, self._rows = [], [], [], [], {}
        self._claimed, self._released, self._spent = [], [], []
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._runs) > 50_000:
            self._version = version
            self.undo()

    def undo(self) -> None:
        self._runs.clear()
        self._heads.clear()
        self._quiet.clear()
        self._new.clear()

    def flush(self) -> None:
        db = self._db
        if self._records:
            values, self._records = self._records, []
            for first in range(0, len(values), _MANY * _COLUMNS):
                part = values[first : first + _MANY * _COLUMNS]
                db.execute(_INSERT[len(part) // _COLUMNS], part)
        if self._claimed:
            db.executemany(_CLAIM_NEW, self._claimed)
            self._claimed = []
        if self._rows:
            rows = [(*shown, key) for key, shown in self._rows.items()]
            if db.executemany(_UPDATE_SAME, rows).rowcount < len(rows):
                db.executemany(_UPDATE, rows)
            self._rows = {}
        if self._released:
            db.executemany(_RELEASE, self._released)
            self._released = []
        if self._steps:
            db.executemany("INSERT OR REPLACE INTO steps VALUES (?,?,?,?,?,?,?)", self._steps)
            self._steps = []
        if self._texts:
            db.executemany("INSERT OR IGNORE INTO texts VALUES (?,?)", self._texts)
            self._texts = []
        if self._referred:
            db.executemany("INSERT OR IGNORE INTO run_texts VALUES (?,?)", self._referred)
            self._referred = []
        if self._spent:
            spending.add(self, self._spent)
            self._spent = []

    def append(self, batch: Batch) -> None:
        key, epoch = self._runs.get(batch.run) or self._find(batch.run)
        if epoch != batch.epoch:
            raise fenced(batch.run)
        self._put(key, batch)

    def release(self, batch: Batch, unless_news: bool) -> bool:
        key, epoch = self._find(batch.run)
        if epoch != batch.epoch:
            raise fenced(batch.run)
        if unless_news:
            (news,) = self._db.execute("SELECT news FROM runs WHERE key = ?", (key,)).fetchone()
            if news:
                return False
        self._put(key, batch)
        ended = batch.row is not None and batch.row.status in ENDED
        shown = self._rows.pop(key, None) if batch.records else None  # otherwise `flush` still has to write it
        if shown is not None:
            handed_over = batch.row is not None and bool(lasting(batch.row.needs))
            self._released.append((*shown, ended, handed_over, key))
        elif batch.records:
            self.flush()
            self._db.execute(f"UPDATE runs SET {_LET_GO} WHERE key = ?", (ended, False, key))
        else:
            self.flush()
            self._db.execute(_GIVE_UP, (key,))
        if ended:
            self._close(key)
        self._runs[batch.run] = (key, epoch + 1)  # further appends by this driver are rejected
        return True

    def _close(self, key: int) -> None:
        """Closes the waits and signals of an ended run."""
        if key not in self._quiet:
            self._db.execute("UPDATE waits SET state = 'closed' WHERE run = ? AND state <> 'closed'", (key,))
            self._db.execute("UPDATE signals SET taken = 1 WHERE run = ? AND taken = 0 AND kind = 'cancel'", (key,))

    def create(self, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> None:
        if ending is not None and self._find(ending.run)[1] != ending.epoch:
            raise fenced(ending.run)
        self.flush()
        db = self._db
        if db.execute("SELECT 1 FROM runs WHERE id = ?", (row.id,)).fetchone() is not None:
            raise run_exists(row.id)
        if row.parent and db.execute("SELECT 1 FROM runs WHERE id = ?", (row.parent,)).fetchone() is None:
            raise no_run(row.parent)
        if not db.execute("UPDATE playbook_runs SET runs = runs + 1 WHERE digest = ?", (row.playbook,)).rowcount:
            db.execute("INSERT INTO playbook_runs VALUES (?, 1)", (row.playbook,))
            db.execute("INSERT OR IGNORE INTO playbooks VALUES (?,?)", (row.playbook, text))
        cursor = db.execute(
            f"INSERT INTO runs ({RUN}, news, key) VALUES ({','.join('?' * RUN_MARKS)}, 0, {_NEW_KEY})",
            run_values(row),
        )
        key = cursor.lastrowid
        assert key is not None
        self._runs[row.id] = (key, row.epoch)
        if row.parent:  # a fork refers to all files of its parent
            db.execute(
                "INSERT OR IGNORE INTO run_files SELECT ?, digest FROM run_files"
                " WHERE run = (SELECT key FROM runs WHERE id = ?)",
                (key, row.parent),
            )
        if batch.records:
            self._heads[key] = batch.records[0].seq - 1
        self._put(key, without_row(batch, row))
        if ending is not None:
            self.release(ending, False)
        if row.epoch == 0 and row.status == "pending" and not row.parent and len(self._new) < _MOST_NEW:
            self._new[row.id] = (msgspec.structs.replace(copy_row(row), driver="", error=None), batch.records)

    def put_piece(self, tenant: str, digest: str, number: int, data: bytes) -> None:
        if number == 0:  # what is left of a file that was being freed
            doomed = self._db.execute(
                "DELETE FROM files WHERE tenant = ? AND digest = ? AND size < 0", (tenant, digest)
            ).rowcount
            if doomed:
                self._db.execute("DELETE FROM pieces WHERE tenant = ? AND digest = ?", (tenant, digest))
        self._db.execute("INSERT OR IGNORE INTO pieces VALUES (?,?,?,?)", (tenant, digest, number, data))

    def put_file(self, tenant: str, digest: str, size: int, now: float) -> None:
        self._db.execute(
            "INSERT INTO files VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET touched = excluded.touched",
            (tenant, digest, size, now),
        )

    def bring_in(self, copy: RunCopy) -> None:
        """Adds a run of another store. A refusal comes before anything is written."""
        row = msgspec.structs.replace(copy.row, driver="")
        batch = Batch(
            row.id,
            row.epoch,
            copy.records,
            steps=copy.steps,
            texts=copy.texts,
            checkpoints=copy.checkpoints,
            files=copy.files,
        )
        self.create(row, copy.text, batch)
        self._new.pop(row.id, None)
        key, _ = self._find(row.id)
        error = None if row.error is None else _json(row.error).decode()
        self._db.execute("UPDATE runs SET error = ?, news = ? WHERE key = ?", (error, copy.has_news, key))
        for wait in copy.waits:
            self._db.execute(
                "INSERT INTO waits (id, run, tenant, owner, state, expires, opened, kind, body, answer, decider)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (*wait_values(key, wait), _json(wait.answer).decode(), wait.by),
            )
        for signal in copy.signals:
            self._db.execute(
                "INSERT INTO signals (run, kind, payload, sender) VALUES (?,?,?,?)",
                (key, signal.kind, _json(signal.payload).decode(), signal.by),
            )

    def claim(self, run: str, driver: str, now: float) -> tuple[int, RunRow, bool, list[Record]]:
        """Returns the key, the row, whether there was news and, for a run that was never driven, its records."""
        new = self._new.pop(run, None)
        known = self._runs.get(run)
        if new is not None and known is not None and known[1] == 0 and self._heads.get(known[0]) == new[1][-1].seq:
            return self._claim_new(known[0], *new, driver)
        self.flush()
        found = self._db.execute(f"SELECT {RUN}, key, news FROM runs WHERE id = ?", (run,)).fetchone()
        if found is None:
            raise no_run(run)
        row, key, news = run_row(found[:-2]), found[-2], found[-1]
        if row.driver and row.driver != driver:
            holder = self._holder(row.driver)
            if self._leases.holds(holder):
                raise Busy(f"Run {run} is being driven by process {holder.pid}.", fix="Follow it, or signal it.")
        if row.epoch or row.parent:  # a new run has not opened any waits
            self._expire(key, now)
        if row.status == "pending":
            row.status = "running"
        self._db.execute(
            "UPDATE runs SET epoch = epoch + 1, driver = ?, news = 0, status = ? WHERE key = ?",
            (driver, row.status, key),
        )
        row.epoch, row.driver = row.epoch + 1, driver
        self._runs[run] = (key, row.epoch)
        if row.epoch != 1 or row.parent:
            return key, row, bool(news), []
        if not news:
            self._quiet.add(key)
        rows = self._db.execute(f"SELECT {RECORD} FROM records WHERE run = ? ORDER BY seq", (key,))
        records = [Record(run, *values) for values in rows]
        self._heads[key] = records[-1].seq
        return key, row, bool(news), records

    def _claim_new(
        self, key: int, row: RunRow, records: list[Record], driver: str
    ) -> tuple[int, RunRow, bool, list[Record]]:
        row.epoch, row.driver, row.status = 1, driver, "running"
        self._claimed.append((driver, key))
        self._runs[row.id] = (key, 1)
        self._quiet.add(key)
        return key, row, False, records

    def _holder(self, driver: str) -> Holder:
        found = self._db.execute("SELECT lease, host, pid, born FROM drivers WHERE id = ?", (driver,)).fetchone()
        return Holder(driver, *found) if found else Holder(driver, None)

    def news_seen(self, run: str) -> None:
        if self._db.execute("UPDATE runs SET news = 0 WHERE id = ?", (run,)).rowcount == 0:
            raise no_run(run)

    def complete_wait(
        self,
        wait: str,
        answer: dict[str, Any],
        by: str,
        now: float,
        keep: Sequence[KeptRecord] = (),
        claim: str | None = None,
    ) -> None:
        self.flush()
        if claim is not None:
            check_claim(self._open_wait(wait, now), claim, by)
        done = self._db.execute(
            "UPDATE waits SET state = 'answered', answer = ?, decider = ?"
            " WHERE id = ? AND state = 'open' AND (expires IS NULL OR expires > ?)",
            (_json(answer).decode(), by, wait, now),
        )
        if done.rowcount == 1:
            self._db.execute("UPDATE runs SET news = 1 WHERE key = (SELECT run FROM waits WHERE id = ?)", (wait,))
            for one in keep:
                self.keep(one.tenant, one.kind, one.name, one.body)
            return
        self._open_wait(wait, now)
        raise AssertionError

    def vote(self, wait: str, answer: dict[str, Any], by: str, now: float) -> None:
        self.flush()
        row = self._open_wait(wait, now)
        before = self._db.execute("SELECT answer FROM waits WHERE id = ?", (wait,)).fetchone()[0]
        decided, kept = counted(row.details, row.owner, msgspec.json.decode(before), answer, by, now)
        self._db.execute(
            "UPDATE waits SET state = ?, answer = ?, decider = ? WHERE id = ?",
            ("answered" if decided else "open", _json(kept).decode(), by if decided else "", wait),
        )
        if decided:
            self._db.execute("UPDATE runs SET news = 1 WHERE key = (SELECT run FROM waits WHERE id = ?)", (wait,))

    def lease_wait(self, wait: str, lease: Lease, now: float) -> None:
        self.flush()
        row = self._open_wait(wait, now)
        take_lease(row, lease, now)
        self._db.execute("UPDATE waits SET body = ? WHERE id = ?", (_json(row).decode(), wait))

    def _open_wait(self, wait: str, now: float) -> WaitRow:
        """The wait as it was opened. Raises if it cannot be decided any more."""
        found = self._db.execute(
            "SELECT state, decider, ifnull(expires <= ?, 0), body FROM waits WHERE id = ?", (now, wait)
        ).fetchone()
        if found is None:
            raise no_wait(wait)
        state, by, over, body = found
        if state != "open" or over:
            raise refusal(wait, state, by, over)
        return msgspec.json.decode(body, type=WaitRow)

    def signal(self, signal: Signal) -> None:
        self.flush()
        found = self._db.execute("SELECT key, status, driver FROM runs WHERE id = ?", (signal.run,)).fetchone()
        if found is None:
            raise no_run(signal.run)
        key, status, driver = found
        again = "SELECT 1 FROM signals WHERE run = ? AND taken = 0 AND kind = 'retry'"
        retried = signal.kind == "retry" and self._db.execute(again, (key,)).fetchone() is not None
        check_signal(signal, status, under_way=retried and self._leases.surely_holds(self._holder(driver)))
        if retried:  # the sender of the first retry exited before it was consumed
            self._db.execute("UPDATE signals SET taken = 1 WHERE run = ? AND taken = 0 AND kind = 'retry'", (key,))
        self._quiet.discard(key)
        self._new.pop(signal.run, None)
        if signal.kind == "late" and self._attach_late(key, signal.payload):
            return
        self._db.execute(
            "INSERT INTO signals (run, kind, payload, sender) VALUES (?,?,?,?)",
            (key, signal.kind, _json(signal.payload).decode(), signal.by),
        )
        if signal.kind == "cancel":
            self._db.execute("UPDATE waits SET state = 'cancelled' WHERE run = ? AND state = 'open'", (key,))
        self._db.execute("UPDATE runs SET news = 1 WHERE key = ?", (key,))

    def _attach_late(self, key: int, payload: dict[str, Any]) -> bool:
        """Attaches a fenced driver's late outcome to the question about that effect."""
        for wait, body in self._db.execute("SELECT id, body FROM waits WHERE run = ? AND state = 'open'", (key,)):
            row = msgspec.json.decode(body, type=WaitRow)
            if attach_late(row, payload):
                self._db.execute("UPDATE waits SET body = ? WHERE id = ?", (_json(row).decode(), wait))
                return True
        return False

    def expire(self, now: float, run: str | None) -> list[str]:
        self.flush()
        over = self._db.execute(
            "SELECT DISTINCT r.key, r.id FROM waits w JOIN runs r ON r.key = w.run"
            " WHERE w.state = 'open' AND w.expires <= ? AND (? IS NULL OR r.id = ?)",
            (now, run, run),
        ).fetchall()
        for key, _ in over:
            self._db.execute("UPDATE runs SET news = 1 WHERE key = ?", (key,))
            self._expire(key, now)
        return [name for _, name in over]

    def _expire(self, key: int, now: float) -> None:
        self._db.execute(
            "UPDATE waits SET state = 'expired' WHERE run = ? AND state = 'open' AND expires <= ?", (key, now)
        )

    def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        self.flush()
        self._db.execute("INSERT OR REPLACE INTO kept VALUES (?,?,?,?)", (tenant, kind, name, _json(body).decode()))

    def forget(self, tenant: str, kind: str, name: str) -> bool:
        self.flush()
        gone = self._db.execute("DELETE FROM kept WHERE tenant = ? AND kind = ? AND name = ?", (tenant, kind, name))
        return gone.rowcount > 0

    def heartbeat(self, driver: str, now: float) -> None:
        here = Holder.here(driver, now)
        self._db.execute(
            "INSERT OR REPLACE INTO drivers (id, lease, host, pid, born) VALUES (?,?,?,?,?)",
            (here.driver, here.lease, here.host, here.pid, here.born),
        )

    def retire(self, driver: str) -> None:
        self.flush()
        self._db.execute("DELETE FROM drivers WHERE id = ?", (driver,))
        self._db.execute("DELETE FROM slots WHERE driver = ? AND until IS NULL", (driver,))

    def take_slot(self, name: str, most: int, driver: str, now: float, lasts: float | None) -> int | None:
        db = self._db
        db.execute("DELETE FROM slots WHERE name = ? AND until <= ?", (name, now))
        (taken,) = db.execute(LASTING_SLOTS, (name, now)).fetchone()
        for id, holder in db.execute(HELD_SLOTS, (name,)).fetchall():
            if holder == driver or self._leases.holds(self._holder(holder)):
                taken += 1
            else:
                db.execute("DELETE FROM slots WHERE id = ?", (id,))
        if taken >= most:
            return None
        id, until = new_slot(), None if lasts is None else now + lasts
        db.execute("INSERT INTO slots VALUES (?,?,?,?)", (id, name, driver, until))
        return id

    def free_slot(self, slot: int) -> None:
        self._db.execute("DELETE FROM slots WHERE id = ?", (slot,))

    def is_held(self, driver: str) -> bool:
        """Whether this driver is alive."""
        return bool(driver) and self._leases.holds(self._holder(driver))

    def forget_run(self, run: str) -> None:
        """Forgets what is remembered of a run between commits."""
        known = self._runs.pop(run, None)
        self._new.pop(run, None)
        if known is not None:
            self._heads.pop(known[0], None)
            self._quiet.discard(known[0])

    @property
    def connection(self) -> sqlite3.Connection:
        return self._db

    def _find(self, run: str) -> tuple[int, int]:
        known = self._runs.get(run)
        if known is None:
            known = self._db.execute("SELECT key, epoch FROM runs WHERE id = ?", (run,)).fetchone()
            if known is None:
                raise no_run(run)
            self._runs[run] = known
        return known

    def _head(self, key: int, batch: Batch) -> int:
        """The number of the last record, which the batch must follow."""
        (head,) = self._db.execute("SELECT max(seq) FROM records WHERE run = ?", (key,)).fetchone()
        return batch.records[0].seq - 1 if head is None else int(head)

    def _put(self, key: int, batch: Batch) -> None:
        records = batch.records
        if records:
            known = self._heads.get(key)
            head = self._head(key, batch) if known is None else known
            if records[0].seq != head + 1:
                raise gap(batch, head)
            self._heads[key] = records[-1].seq
            for r in records:
                self._records += (key, r.seq, r.path, r.kind, _blob(r.head), _blob(r.body), _blob(r.chain))
        if batch.plain:
            return
        row = batch.row
        if row is not None:
            self._rows[key] = shown_values(row)
        for seq, path in batch.dropped:
            self._drop(key, seq, path)
        for s in batch.steps:
            self._steps.append(step_values(key, s))
        if batch.texts:
            self._texts.extend(batch.texts.items())
            self._referred.extend([(key, digest) for digest in batch.texts])
        if batch.stored:
            self._referred.extend([(key, digest) for digest in batch.stored])
        for digest in batch.files:
            self._db.execute("INSERT OR IGNORE INTO run_files VALUES (?,?)", (key, digest))
        for wait in batch.opened:
            self._quiet.discard(key)
            self._db.execute(
                "INSERT INTO waits (id, run, tenant, owner, state, expires, opened, kind, body) VALUES (?,?,?,?,?,?,?,?,?)",
                wait_values(key, wait),
            )
        for closed in batch.closed:
            self._db.execute("UPDATE waits SET state = 'closed' WHERE id = ?", (closed,))
        for taken in batch.taken:
            self._db.execute("UPDATE signals SET taken = 1 WHERE id = ?", (taken,))
        if batch.jobs:
            jobs.add(self, batch.jobs)
        if batch.spent:
            self._spent.extend(batch.spent)
        for path, seq in batch.checkpoints:
            self._db.execute("INSERT INTO checkpoints VALUES (?,?,?)", (key, path, seq))

    def _drop(self, key: int, seq: int, path: str) -> None:
        self.flush()
        for table in ("steps", "checkpoints"):
            self._db.execute(
                f"DELETE FROM {table} WHERE run = ? AND seq >= ?"
                " AND (substr(path, 1, length(?)) = ? OR substr(?, 1, length(path)) = path)",
                (key, seq, path, path, path),
            )

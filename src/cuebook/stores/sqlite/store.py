"""The SQLite store: one file in WAL mode with group commit. Other processes may read it and send signals.

It stores journals and does not interpret their records.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from cuebook.kernel.capabilities import Offer
from cuebook.kernel.errors import (
    NotFound,
)
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import GENESIS, ROOT, Record
from cuebook.kernel.ports import (
    Batch,
    Claim,
    Fate,
    KeptRecord,
    News,
    Notice,
    Removal,
    RunCopy,
    RunFilter,
    Space,
    Swept,
    Tally,
    Whole,
)
from cuebook.kernel.run import Lease, RunRow, Signal, StepRow, WaitMark, WaitRow
from cuebook.stores.leases import Holder, Leases
from cuebook.stores.refusals import ALIKE, LAST, damaged, in_order, no_run, no_wait, unfinished
from cuebook.stores.rows import (
    NAMES_OF_ENDED,
    NAMES_OF_HEADS,
    RECORD,
    RUN,
    DueRun,
    due_run,
    run_row,
    step_row,
    wait_mark,
    wait_row,
    whole_of,
)
from cuebook.stores.run_lists import NEWEST_FIRST, TENANTS, Language, conditions
from cuebook.stores.sqlite.database import Database
from cuebook.stores.sqlite.files import FileTables
from cuebook.stores.sqlite.group_commit import Writer
from cuebook.stores.sqlite.jobs import JobTables
from cuebook.stores.sqlite.log_space import LogSpace
from cuebook.stores.sqlite.spending import SpendingTables
from cuebook.stores.sqlite.transaction import HELD_SLOTS, LASTING_SLOTS, Transaction

if TYPE_CHECKING:
    from cuebook.kernel.ports.admin_acts import ActRecord, AdminAct, KeptChange
    from cuebook.stores.sqlite.removals import Removals

_ALL = -1
"""SQLite's value for no limit."""
_AMONG = "{} IN (SELECT value FROM json_each(?))"
_LANGUAGE = Language(
    "?",
    _AMONG,
    lambda names: msgspec.json.encode(sorted(names)).decode(),
    "{} LIKE ? ESCAPE '\\'",  # ignores the case of ASCII letters, and is much faster than `instr` with `lower`
    lambda word: "%" + re.sub(r"([%_\\])", r"\\\1", word) + "%",
    "+{}",
)
_TO_DO = (
    "SELECT r.key, r.id, r.dialect, r.interpreter, r.workspace, r.needs,"
    " EXISTS (SELECT 1 FROM signals s WHERE s.run = r.key AND s.taken = 0 AND s.kind = 'cancel'),"
    " r.driver, d.lease, d.host, d.pid, d.born FROM runs r LEFT JOIN drivers d ON d.id = r.driver"
)
_BEGUN = "r.news = 1 OR r.driver <> '' OR r.status IN ('pending', 'running')"
"""Must match the index exactly, or SQLite does not use it."""
_IN_NEED = "r.needs <> '[]'"
"""Likewise."""
_OVERDUE = "SELECT w.run FROM waits w WHERE w.state = 'open' AND w.expires <= ?"
_NOT_OVER = (
    f"r.caller = '' AND (r.status NOT IN ({NAMES_OF_ENDED})"
    " OR EXISTS (SELECT 1 FROM signals s WHERE s.run = r.key AND s.taken = 0 AND s.kind = 'retry'))"
)


class SqliteStore(FileTables, JobTables, SpendingTables):
    """Opens the store at `path` and creates it if it does not exist. A read-only store, for example on a read-only
    disk, can be read; every write is rejected.
    """

    def __init__(self, path: str | os.PathLike[str], *, synchronous: Literal["FULL", "NORMAL"] = "FULL") -> None:
        self._database = Database(Path(path), synchronous)
        connection = self._database.open()
        self._reader = self._database.connect()
        self._reader.execute("PRAGMA query_only = ON")
        self._connection = connection
        self.path = self._database.path
        self._keys: dict[str, int] = {}
        self._playbooks: dict[str, str] = {}
        self.leases = Leases()
        self._log = LogSpace(self._database.path)
        transaction = Transaction(connection, self.leases)
        self._writer: Writer[Transaction] = Writer(connection, transaction, self._database.translate, self._log.grow)

    shared = False
    now = staticmethod(time.time)

    async def listen(self, heard: Callable[[Notice], None]) -> None:
        """Processes that share a file look for changes themselves."""

    def share(self, event: TextChunk | TextReset) -> None:
        """Not shared: other processes see the reply when it is complete."""

    async def ask_for_text(self, run: str) -> None:
        """Not shared: other processes see the reply when it is complete."""

    # --- writing ---

    async def create(self, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> None:
        await self._writer.submit(Transaction.create, row, text, batch, ending)

    async def claim(self, run: str, driver: str, now: float) -> Claim:
        key, row, news, first = await self._writer.submit(Transaction.claim, run, driver, now)
        self._keys[run] = key
        fresh = bool(first)
        records = first or self._for_replay(row)
        inherited = row.parent_seq if row.parent else 0
        head = (records[-1].seq, records[-1].chain) if records else (0, GENESIS)
        return Claim(
            row=row,
            text=await self.playbook(row.playbook),
            records=records,
            inherited=inherited,
            steps=[] if fresh else [s for s in self._steps(run, "AND status <> 'completed'") if unfinished(s)],
            waits=[] if fresh else self._waits_of(run),
            signals=[] if fresh and not news else self._signals_of(run),
            head=head,
        )

    def append(self, batch: Batch) -> asyncio.Future[None]:
        return self._writer.submit(Transaction.append, batch)

    async def release(self, batch: Batch, *, unless_news: bool) -> bool:
        return await self._writer.submit(Transaction.release, batch, unless_news)

    async def news(self, run: str) -> News:
        await self._writer.submit(Transaction.news_seen, run)
        return News(self._waits_of(run), self._signals_of(run))

    async def complete_wait(
        self,
        wait: str,
        answer: dict[str, Any],
        by: str,
        now: float,
        keep: Sequence[KeptRecord] = (),
        *,
        claim: str | None = None,
    ) -> WaitRow:
        await self._writer.submit(Transaction.complete_wait, wait, answer, by, now, keep, claim)
        return await self.wait(wait)

    async def vote(self, wait: str, answer: dict[str, Any], by: str, now: float) -> WaitRow:
        await self._writer.submit(Transaction.vote, wait, answer, by, now)
        return await self.wait(wait)

    async def lease_wait(self, wait: str, lease: Lease, now: float) -> WaitRow:
        await self._writer.submit(Transaction.lease_wait, wait, lease, now)
        return await self.wait(wait)

    async def signal(self, signal: Signal) -> None:
        await self._writer.submit(Transaction.signal, signal)

    async def expire(self, now: float, run: str | None = None) -> list[str]:
        mine = "" if run is None else " AND run = ?"
        given = (now,) if run is None else (now, self._key(run))
        if not self._all(f"SELECT 1 FROM waits WHERE state = 'open' AND expires <= ?{mine} LIMIT 1", given):
            return []
        return await self._writer.submit(Transaction.expire, now, run)

    async def heartbeat(self, driver: str, now: float) -> None:
        await self._writer.submit(Transaction.heartbeat, driver, now)

    async def retire(self, driver: str) -> None:
        await self._writer.submit(Transaction.retire, driver)

    async def take_slot(self, name: str, most: int, driver: str, lasts: float | None = None) -> int | None:
        if self._taken_slots(name, driver) >= most:  # waiters ask often, and a read locks nothing
            return None
        return await self._writer.submit(Transaction.take_slot, name, most, driver, self.now(), lasts)

    def _taken_slots(self, name: str, driver: str) -> int:
        taken = int(self._all(LASTING_SLOTS, (name, self.now()))[0][0])
        for _, holder in self._all(HELD_SLOTS, (name,)):
            taken += holder == driver or self.leases.holds(self._holder(holder))
        return taken

    async def free_slot(self, slot: int) -> None:
        await self._writer.submit(Transaction.free_slot, slot)

    async def taken_slots(self, name: str) -> int:
        return self._taken_slots(name, "")

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        await self._writer.submit(Transaction.keep, tenant, kind, name, body)

    async def forget(self, tenant: str, kind: str, name: str, *, overwrite: bool = False) -> bool:
        if overwrite:
            return await self._removals.forget(tenant, kind, name)
        return await self._writer.submit(Transaction.forget, tenant, kind, name)

    # --- the audit of administrative acts ---

    async def record_act(self, act: AdminAct, changes: Sequence[KeptChange] = ()) -> ActRecord:
        from cuebook.stores.sqlite import admin_acts  # runs do not need it

        return await self._writer.submit(admin_acts.record, act, changes)

    async def bring_in_acts(self, tenant: str, records: Sequence[ActRecord]) -> None:
        from cuebook.stores.sqlite import admin_acts

        await self._writer.submit(admin_acts.bring_in, tenant, records)

    async def acts(
        self, tenant: str, *, after: int = 0, since: float = 0.0, newest: bool = False, limit: int | None = 1000
    ) -> list[ActRecord]:
        from cuebook.kernel.ports.admin_acts import ActRecord

        query = (
            "SELECT seq, body, chain FROM admin_acts WHERE tenant = ? AND seq > ? AND at >= ?"
            f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?"
        )
        rows = self._all(query, (tenant, after, since, _ALL if limit is None else limit))
        return [ActRecord(*row) for row in (rows[::-1] if newest else rows)]

    async def act_head(self, tenant: str) -> tuple[int, str]:
        from cuebook.kernel.ports.admin_acts import GENESIS

        rows = self._all("SELECT seq, chain FROM admin_heads WHERE tenant = ?", (tenant,))
        return rows[0] if rows else (0, GENESIS)

    async def act_tenants(self) -> list[str]:
        return [row[0] for row in self._all("SELECT tenant FROM admin_heads WHERE seq > 0 ORDER BY tenant", ())]

    # --- removing ---

    @cached_property
    def _removals(self) -> Removals:
        from cuebook.stores.sqlite.removals import Removals  # few processes remove runs

        return Removals(self._database, self._writer, self._all)

    async def remove(self, removals: Sequence[Removal], *, force: bool = False) -> None:
        await self._removals.remove(removals, force)
        self._playbooks.clear()
        for one in removals:
            self._keys.pop(one.run, None)

    async def purge(self, batch: Batch, removal: Removal) -> None:
        await self._removals.purge(batch, removal)

    async def sweep(self, now: float) -> Swept:
        return await self._removals.sweep(now)

    async def removals(self, tenant: str, run: str = "", limit: int | None = 100) -> list[Removal]:
        return await self._removals.removals(tenant, run, limit)

    async def bring_in_removals(self, removals: Sequence[Removal]) -> None:
        await self._removals.bring_in(removals)

    async def sizes(self, tenant: str, runs: Collection[str]) -> dict[str, int]:
        return await self._removals.sizes(tenant, runs)

    async def usage(self, tenant: str) -> list[Space]:
        return await self._removals.usage(tenant)

    # --- reading ---

    async def tally(self, now: float) -> Tally:
        from cuebook.stores.sqlite.tally import tally

        return await asyncio.to_thread(tally, self._database, now)

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        query = "SELECT 1 FROM kept WHERE tenant = ? AND kind = ? AND name = ?"
        return bool(self._all(query, (tenant, kind, name)))

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        rows = self._all("SELECT name, body FROM kept WHERE tenant = ? AND kind = ? ORDER BY name", (tenant, kind))
        return {name: msgspec.json.decode(body) for name, body in rows}

    async def tenants(self, kind: str) -> list[str]:
        return [row[0] for row in self._all("SELECT DISTINCT tenant FROM kept WHERE kind = ? ORDER BY tenant", (kind,))]

    async def ready(self, now: float, driver: str, run: str | None = None, offer: Offer | None = None) -> list[str]:
        holds = self.leases.holds
        to_do = self._to_do(now, run, offer)
        return [one.run for one, holder in to_do if one.fits(offer) and (holder.driver == driver or not holds(holder))]

    async def undriven(self, now: float, run: str | None = None) -> list[str]:
        to_do = [(one, holder) for one, holder in self._to_do(now, run) if not one.is_handed_over]
        return [one.run for one, holder in to_do if not self.leases.seems_to_hold(holder, now)]

    def _to_do(self, now: float, run: str | None, offer: Offer | None = None) -> list[tuple[DueRun, Holder]]:
        """Runs with work that is pending or in progress, with their holders."""
        values: tuple[Any, ...] = () if run is None else (run,)
        only = "" if run is None else " AND r.id = ?"
        if offer is not None:
            only += f" AND r.workspace IN (''{', ?' * len(offer.workspaces)})"
            values += offer.workspaces
        rows = self._all(f"{_TO_DO} WHERE ({_BEGUN}) AND {_NOT_OVER}{only} ORDER BY r.key", values)
        due = self._all(f"{_TO_DO} WHERE r.key IN ({_OVERDUE}) AND {_NOT_OVER}{only} ORDER BY r.key", (now, *values))
        if offer is not None and offer.connected:
            in_need = self._all(f"{_TO_DO} WHERE {_IN_NEED} AND {_NOT_OVER}{only} ORDER BY r.key", values)
            due += [row for row in in_need if offer.meets(due_run(row[1:7]).needs)]
        return [(due_run(row[1:7]), Holder(*row[7:])) for row in (sorted({*rows, *due}) if due else rows)]

    async def fate(self, driver: str) -> Fate:
        return self._holder(driver).fate

    def _holder(self, driver: str) -> Holder:
        rows = self._all("SELECT lease, host, pid, born FROM drivers WHERE id = ?", (driver,))
        return Holder(driver, *rows[0]) if rows else Holder(driver, None)

    async def called(self, driver: str) -> list[str]:
        return [row[0] for row in self._all("SELECT id FROM runs WHERE news = 1 AND driver = ?", (driver,))]

    async def next_expiry(self) -> float | None:
        (row,) = self._all("SELECT min(expires) FROM waits WHERE state = 'open' AND expires IS NOT NULL", ())
        return row[0]  # type: ignore[no-any-return]

    async def alive(self, run: str) -> bool:
        rows = self._all(f"{_TO_DO} WHERE r.id = ?", (run,))
        return bool(rows) and self.leases.holds(Holder(*rows[0][7:]))

    async def run(self, run: str) -> RunRow:
        rows = self._all(f"SELECT {RUN} FROM runs WHERE id = ?", (run,))
        if not rows:
            raise no_run(run)
        return run_row(rows[0])

    async def runs(self, *, limit: int | None = 100, **which: Unpack[RunFilter]) -> list[RunRow]:
        where, values = conditions(which, _LANGUAGE)
        most = _ALL if limit is None else limit
        return [
            run_row(row) for row in self._all(f"SELECT {RUN} FROM runs{where} {NEWEST_FIRST} LIMIT ?", (*values, most))
        ]

    async def tenants_with_runs(self) -> list[str]:
        return [tenant for (tenant,) in self._all(TENANTS, ())]

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        rows = self._all(  # the plus makes SQLite use the index on ids instead of the index on tenants
            f"SELECT {RUN} FROM runs WHERE id >= ? AND id < ? AND +tenant = ? ORDER BY id LIMIT ?",
            (beginning, f"{beginning}{LAST}", tenant, ALIKE),
        )
        return [run_row(row) for row in rows]

    async def steps(self, run: str) -> list[StepRow]:
        if self._key(run) < 0:
            raise no_run(run)
        return self._steps(run, "")

    async def unclosed(self, run: str) -> list[WaitRow]:
        if self._key(run) < 0:
            raise no_run(run)
        return self._waits_of(run)

    async def waits(
        self,
        *,
        run: str | None = None,
        tenant: str | None = None,
        visible: Collection[str] | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> list[WaitRow]:
        chosen = {"run": None if run is None else self._key(run), "tenant": tenant}
        given = {name: value for name, value in chosen.items() if value is not None}
        rows = self._all(
            "SELECT body, state, answer, decider FROM waits WHERE state = 'open'"
            + "".join(f" AND {name} = ?" for name in given)
            + (f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else "")
            + ("" if visible is None else f" AND {_AMONG.format('owner')}")
            + " ORDER BY opened, id LIMIT ? OFFSET ?",
            (*given.values(), *kinds, *_named(visible), _ALL if limit is None else limit, offset),
        )
        return [wait_row(row) for row in rows]

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        return [row[0] for row in self._open_waits("id", tenant, kinds)]

    async def wait_marks(self, tenant: str, kinds: Sequence[str]) -> list[WaitMark]:
        return [wait_mark(row[0]) for row in self._open_waits("body", tenant, kinds)]

    def _open_waits(self, column: str, tenant: str, kinds: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._all(
            f"SELECT {column} FROM waits WHERE state = 'open' AND tenant = ? AND kind IN ({','.join('?' * len(kinds))})"
            " ORDER BY opened, id",
            (tenant, *kinds),
        )

    async def waits_called(self, tenant: str, beginning: str) -> list[WaitRow]:
        rows = self._all(
            "SELECT body, state, answer, decider FROM waits WHERE id >= ? AND id < ? AND tenant = ?"
            " ORDER BY state <> 'open', id LIMIT ?",
            (beginning, f"{beginning}{LAST}", tenant, ALIKE),
        )
        return [wait_row(row) for row in rows]

    async def wait(self, wait: str) -> WaitRow:
        rows = self._all("SELECT body, state, answer, decider FROM waits WHERE id = ?", (wait,))
        if not rows:
            raise no_wait(wait)
        return wait_row(rows[0])

    async def records(self, run: str, after: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        row = await self.run(run)
        only = f"AND kind IN ({', '.join('?' * len(kinds))})"
        for ancestor, first, last in self._lineage(row):
            seq = max(first, after + 1)
            if kinds:
                for record in self._records(ancestor, seq, last, only, tuple(kinds)):
                    yield record
                continue
            while seq < last:
                rows = self._records(ancestor, seq, min(last, seq + 1000))
                for record in rows:
                    yield record
                if not rows:
                    break
                seq = rows[-1].seq + 1

    async def whole(self, run: str) -> Whole:
        self._all("BEGIN", ())  # nothing else runs until it ends, so no one reads stale data
        try:
            row = await self.run(run)
            key = self._key(run)
            steps = self._all("SELECT body, path, label, visit, seq, status FROM steps WHERE run = ?", (key,))
            waits = self._all(
                "SELECT body, state, answer, decider, id, tenant, owner, expires, opened, kind FROM waits WHERE run = ?",
                (key,),
            )
            records = [
                record for part, first, last in self._lineage(row) for record in self._records(part, first, last)
            ]
        finally:
            self._all("COMMIT", ())
        return whole_of(row, steps, waits, records)

    async def take_out(self, run: str) -> RunCopy:
        whole = await self.whole(run)
        first = whole.row.parent_seq if whole.row.parent else 1
        checkpoints = self._all("SELECT path, seq FROM checkpoints WHERE run = ? ORDER BY seq", (self._key(run),))
        return RunCopy(
            row=whole.row,
            text=await self.playbook(whole.row.playbook),
            records=[record for record in whole.records if record.seq >= first],
            steps=in_order(whole.steps),
            waits=whole.waits,
            signals=self._signals_of(run),
            checkpoints=[(path, seq) for path, seq in checkpoints],
            files=await self.files(run),
        )

    async def bring_in(self, copy: RunCopy) -> None:
        await self._writer.submit(Transaction.bring_in, copy)

    async def playbook(self, digest: str) -> str:
        text = self._playbooks.get(digest)
        if text is None:
            if len(self._playbooks) > 100:
                self._playbooks.clear()
            rows = self._all("SELECT body FROM playbooks WHERE digest = ?", (digest,))
            if not rows:
                raise damaged(f"The playbook {digest} is not in the store.")
            text = self._playbooks[digest] = str(rows[0][0])
        return text

    def text(self, digest: str) -> str:
        rows = self._all("SELECT body FROM texts WHERE digest = ?", (digest,))
        if not rows:
            raise NotFound(f"The text {digest} was purged.")
        return str(rows[0][0])

    async def close(self) -> None:
        self._writer.close()
        self._log.close()
        self._reader.close()
        self._connection.close()

    # --- inside ---

    def _all(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            return self._reader.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise self._database.translate(error) from error

    def _key(self, run: str) -> int:
        key = self._keys.get(run)
        if key is None:
            rows = self._all("SELECT key FROM runs WHERE id = ?", (run,))
            if not rows:
                return -1
            if rows[0][0] is None:  # the definition of the table was damaged
                raise damaged(f"Run {run} has no key.")
            if len(self._keys) > 10_000:
                self._keys.clear()
            key = self._keys[run] = int(rows[0][0])
        return key

    def _lineage(self, row: RunRow) -> list[tuple[str, int, int]]:
        """The runs whose records make up this run's journal, oldest first: id, first number and end (exclusive)."""
        parts: list[tuple[str, int, int]] = []
        last = 1 << 32
        while True:
            first = row.parent_seq if row.parent else 1
            if first < last:
                parts.append((row.id, first, last))
            if not row.parent:
                return parts[::-1]
            last = min(last, first)
            row = run_row(self._all(f"SELECT {RUN} FROM runs WHERE id = ?", (row.parent,))[0])

    def _records(self, run: str, first: int, last: int, keep: str = "", values: tuple[Any, ...] = ()) -> list[Record]:
        rows = self._all(
            f"SELECT {RECORD} FROM records r WHERE run = ? AND seq >= ? AND seq < ? {keep} ORDER BY seq",
            (self._key(run), first, last, *values),
        )
        return [Record(run, *row) for row in rows]

    def _for_replay(self, row: RunRow) -> list[Record]:
        """The records for a replay: the head of the journal, then each branch from its last checkpoint on."""
        records: list[Record] = []
        start = 0
        for run, first, last in reversed(self._lineage(row)):
            key = self._key(run)
            (found,) = self._all(
                "SELECT max(seq) FROM checkpoints WHERE run = ? AND path = ? AND seq < ?", (key, ROOT, last)
            )
            start = max(first, found[0] or 0)
            keep = (
                "AND (kind IN ('WaitClosed', 'Moved') OR NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.run = ? AND c.path = r.path AND c.path <> ''"
                " AND c.seq > r.seq AND c.seq < ?))"
            )
            records = self._records(run, start, last, keep, (key, last)) + records
            if found[0]:
                break
        if start > 1:  # settings and inputs are in records that are not replayed
            records = self._heads(row, start) + records
        return records

    def _heads(self, row: RunRow, before: int) -> list[Record]:
        kinds = f"AND kind IN ({NAMES_OF_HEADS})"
        found: list[Record] = []
        for run, first, last in self._lineage(row):
            found += self._records(run, first, min(last, before), kinds)
        return found

    def _steps(self, run: str, condition: str) -> list[StepRow]:
        rows = self._all(f"SELECT body FROM steps WHERE run = ? {condition}", (self._key(run),))
        return in_order([step_row(run, row[0]) for row in rows])

    def _waits_of(self, run: str) -> list[WaitRow]:
        rows = self._all(
            "SELECT body, state, answer, decider FROM waits WHERE run = ? AND state <> 'closed'", (self._key(run),)
        )
        return [wait_row(row) for row in rows]

    def _signals_of(self, run: str) -> list[Signal]:
        rows = self._all(
            "SELECT kind, payload, sender, id FROM signals WHERE run = ? AND taken = 0 ORDER BY id", (self._key(run),)
        )
        return [Signal(run, row[0], msgspec.json.decode(row[1]), row[2], row[3]) for row in rows]


def _named(names: Collection[str] | None) -> tuple[Any, ...]:
    """The value for `_AMONG`, if there is to be one."""
    return () if names is None else (_LANGUAGE.several(names),)

"""The Postgres store: one database that several machines share. Leases follow its clock, and it announces changes.

It stores journals and does not interpret their records.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, TypeVar, Unpack

import msgspec
from psycopg import AsyncConnection

from cuebook.formats.database_url import DatabaseUrl
from cuebook.kernel.capabilities import Offer
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import GENESIS, ROOT, Record
from cuebook.kernel.ports import Batch, Claim, Fate, KeptRecord, News, Notice, RunCopy, RunFilter, Whole
from cuebook.kernel.run import Lease, RunRow, Signal, StepRow, WaitMark, WaitRow
from cuebook.stores import leases
from cuebook.stores.leases import new_slot
from cuebook.stores.postgres import operations
from cuebook.stores.postgres.admin_acts import ActTables
from cuebook.stores.postgres.bus import Bus
from cuebook.stores.postgres.database import Database
from cuebook.stores.postgres.files import FileTables
from cuebook.stores.postgres.group_commit import GroupCommit
from cuebook.stores.postgres.jobs import JobTables
from cuebook.stores.postgres.notices import ready_notice, slot_notice
from cuebook.stores.postgres.operations import LeaseHolder, holder_columns
from cuebook.stores.postgres.removals import RemovalTables
from cuebook.stores.postgres.spending import SpendingTables
from cuebook.stores.postgres.tally import TallyTables
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

T = TypeVar("T")

_TO_DO = (
    "SELECT r.key, r.id, r.dialect, r.interpreter, r.workspace, r.needs,"
    " EXISTS (SELECT 1 FROM signals s WHERE s.run = r.key AND NOT s.taken AND s.kind = 'cancel'),"
    " r.driver, {} FROM runs r LEFT JOIN drivers d ON d.id = r.driver"
)
"""For the columns of the holder."""
_BEGUN = "(r.news OR r.driver <> '' OR r.status IN ('pending', 'running'))"
"""Exactly as in the index."""
_IN_NEED = "r.needs <> '[]'"
"""Likewise."""
_OVERDUE = "r.key IN (SELECT w.run FROM waits w WHERE w.state = 'open' AND w.expires <= %s)"
_NOT_OVER = (
    f"r.caller = '' AND (r.status NOT IN ({NAMES_OF_ENDED})"
    " OR EXISTS (SELECT 1 FROM signals s WHERE s.run = r.key AND NOT s.taken AND s.kind = 'retry'))"
)
_WAIT = "body, state, answer, decider"
_SIGNALS = "SELECT kind, payload, sender, id FROM signals WHERE run = %s AND NOT taken ORDER BY id"
_LANGUAGE = Language("%s", "{} = ANY(%s)", list, "strpos(lower({}), %s) > 0", str)
_SHORTEST_ANSWER = 3.0
"""Seconds that a heartbeat has at least, even if leases are short."""


class PostgresStore(RemovalTables, FileTables, JobTables, ActTables, SpendingTables, TallyTables):
    """Opens the store at the URL of a Postgres database, and creates its tables if they do not exist."""

    def __init__(
        self, url: str | DatabaseUrl, *, password: str = "", synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        url = url if isinstance(url, DatabaseUrl) else DatabaseUrl(url)
        self._database = Database(url, password or url.password, durable=synchronous == "FULL")
        self._sender = secrets.token_hex(8)
        self._appends = GroupCommit(self._database, self._sender)
        self._bus = Bus(self._database, self._sender)
        self._keys = self._appends.keys
        self._playbooks: dict[str, str] = {}

    shared = True

    def now(self) -> float:
        return self._database.now()

    # --- writing ---

    async def _write(
        self,
        operation: Callable[..., Awaitable[T]],
        *values: Any,
        ready: str = "",
        says: Callable[[T], str] | None = None,
        repeatable: bool = False,
        within: float | None = None,
    ) -> T:
        """Runs an operation in one transaction. `ready` is a run that other processes should look at afterwards, and `says`
        returns the notice for a result, if there is one. A `repeatable` operation is repeated if it is unknown whether its
        commit took effect.
        """

        async def work(connection: AsyncConnection[Any]) -> T:
            async with self._database.transaction(connection) as transaction:
                result = await operation(transaction, *values)
                notice = ready_notice(self._sender, ready) if ready else "" if says is None else says(result)
                if notice:
                    await transaction.do("SELECT pg_notify(%s, %s)", (self._database.channel, notice))
                return result

        return await self._database.use(work, repeatable=repeatable, within=within)

    async def create(self, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> None:
        self._keys[row.id] = await self._write(operations.create, row, text, batch, ending, ready=row.id)

    async def claim(self, run: str, driver: str, now: float) -> Claim:
        key, row, news, first = await self._write(operations.claim, run, driver, now)
        self._keys[run] = key
        fresh = bool(first)
        records = first or await self._for_replay(row)
        head = (records[-1].seq, records[-1].chain) if records else (0, GENESIS)
        self._appends.claimed(run, key, row.epoch, head[0])
        return Claim(
            row=row,
            text=await self.playbook(row.playbook),
            records=records,
            inherited=row.parent_seq if row.parent else 0,
            steps=[] if fresh else [s for s in await self._steps(run, "AND status <> 'completed'") if unfinished(s)],
            waits=[] if fresh else await self._waits_of(run),
            signals=[] if fresh and not news else await self._signals_of(run),
            head=head,
        )

    def append(self, batch: Batch) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._appends.submit(batch)
        return done

    async def release(self, batch: Batch, *, unless_news: bool) -> bool:
        await self._appends.settled(batch.run)
        released = await self._write(operations.release, batch, unless_news, ready=batch.run)
        if released:
            self._appends.released(batch.run)
        return released

    async def news(self, run: str) -> News:
        await self._write(operations.news_seen, run)
        return News(await self._waits_of(run), await self._signals_of(run))

    async def lease_wait(self, wait: str, lease: Lease, now: float) -> WaitRow:
        await self._write(operations.lease_wait, wait, lease, now)
        return await self.wait(wait)

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
        run = await self._write(operations.complete_wait, wait, answer, by, now, keep, claim)
        await self._bus.announce(run)
        return await self.wait(wait)

    async def vote(self, wait: str, answer: dict[str, Any], by: str, now: float) -> WaitRow:
        run = await self._write(operations.vote, wait, answer, by, now)
        await self._bus.announce(run)
        return await self.wait(wait)

    async def signal(self, signal: Signal) -> None:
        await self._write(operations.signal, signal, ready=signal.run)

    async def expire(self, now: float, run: str | None = None) -> list[str]:
        only, values = ("", (now,)) if run is None else (" AND run = %s", (now, await self._key(run)))
        if not await self._all(f"SELECT 1 FROM waits WHERE state = 'open' AND expires <= %s{only} LIMIT 1", values):
            return []
        return await self._write(operations.expire, now, run)

    async def heartbeat(self, driver: str, now: float) -> None:
        before = time.monotonic()
        within = max(
            leases.LEASE / 2, _SHORTEST_ANSWER
        )  # so that there is time for another one before the lease is over
        self._database.compare_clock(await self._write(operations.heartbeat, driver, within=within), before)

    async def retire(self, driver: str) -> None:
        await self._write(operations.retire, driver, says=lambda freed: self._slot_is_free("" if freed else None))

    async def take_slot(self, name: str, most: int, driver: str, lasts: float | None = None) -> int | None:
        slot = new_slot()  # chosen here, so that an attempt with an unknown outcome can be repeated
        taken = await self._write(operations.take_slot, slot, name, most, driver, lasts, repeatable=True)
        return slot if taken else None

    async def free_slot(self, slot: int) -> None:
        await self._write(operations.free_slot, slot, says=self._slot_is_free, repeatable=True)

    async def taken_slots(self, name: str) -> int:
        query = (
            f"SELECT s.until > clock_timestamp(), s.driver, {self._columns}"
            " FROM slots s LEFT JOIN drivers d ON d.id = s.driver WHERE s.name = %s"
        )
        rows = await self._all(query, (name,))
        return sum(LeaseHolder(*holder).holds if lasts is None else lasts for lasts, *holder in rows)

    @property
    def _columns(self) -> str:
        return holder_columns(self._database.was_away)

    def _slot_is_free(self, name: str | None) -> str:
        return "" if name is None else slot_notice(self._sender, name)

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        await self._write(operations.keep, tenant, kind, name, body)

    async def forget(self, tenant: str, kind: str, name: str, *, overwrite: bool = False) -> bool:
        return await self._write(operations.forget, tenant, kind, name)

    # --- notices ---

    async def listen(self, heard: Callable[[Notice], None]) -> None:
        await self._bus.listen(heard)

    def share(self, event: TextChunk | TextReset) -> None:
        self._bus.share(event)

    async def ask_for_text(self, run: str) -> None:
        await self._bus.ask_for_text(run)

    # --- reading ---

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        query = "SELECT 1 FROM kept WHERE tenant = %s AND kind = %s AND name = %s"
        return bool(await self._all(query, (tenant, kind, name)))

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        rows = await self._all(
            "SELECT name, body FROM kept WHERE tenant = %s AND kind = %s ORDER BY name", (tenant, kind)
        )
        return {name: msgspec.json.decode(body) for name, body in rows}

    async def tenants(self, kind: str) -> list[str]:
        rows = await self._all("SELECT DISTINCT tenant FROM kept WHERE kind = %s ORDER BY tenant", (kind,))
        return [row[0] for row in rows]

    async def ready(self, now: float, driver: str, run: str | None = None, offer: Offer | None = None) -> list[str]:
        await self._database.check_clock()
        to_do = await self._to_do(now, run, offer)
        return [one.run for one, holder in to_do if one.fits(offer) and (holder.driver == driver or not holder.holds)]

    async def undriven(self, now: float, run: str | None = None) -> list[str]:
        return [one.run for one, holder in await self._to_do(now, run) if not one.is_handed_over and not holder.holds]

    async def _to_do(self, now: float, run: str | None, offer: Offer | None = None) -> list[tuple[DueRun, LeaseHolder]]:
        """Runs with work that is pending or in progress, with their holders."""
        values: list[Any] = [] if run is None else [run]
        only = "" if run is None else " AND r.id = %s"
        if offer is not None:
            only += " AND r.workspace = ANY(%s)"
            values.append(["", *offer.workspaces])
        query = _TO_DO.format(self._columns)
        rows = await self._all(f"{query} WHERE {_BEGUN} AND {_NOT_OVER}{only} ORDER BY r.key", tuple(values))
        due = await self._all(f"{query} WHERE {_OVERDUE} AND {_NOT_OVER}{only} ORDER BY r.key", (now, *values))
        if offer is not None and offer.connected:
            in_need = await self._all(f"{query} WHERE {_IN_NEED} AND {_NOT_OVER}{only} ORDER BY r.key", tuple(values))
            due += [row for row in in_need if offer.meets(due_run(row[1:7]).needs)]
        found = {row[0]: row for row in (*rows, *due)}
        return [(due_run(row[1:7]), LeaseHolder(*row[7:])) for row in (found[key] for key in sorted(found))]

    async def fate(self, driver: str) -> Fate:
        rows = await self._all(f"SELECT {self._columns} FROM drivers d WHERE d.id = %s", (driver,))
        return (LeaseHolder(driver, *rows[0]) if rows else LeaseHolder(driver, None)).fate

    async def called(self, driver: str) -> list[str]:
        return [row[0] for row in await self._all("SELECT id FROM runs WHERE news AND driver = %s", (driver,))]

    async def next_expiry(self) -> float | None:
        (row,) = await self._all("SELECT min(expires) FROM waits WHERE state = 'open' AND expires IS NOT NULL", ())
        return row[0]  # type: ignore[no-any-return]

    async def alive(self, run: str) -> bool:
        rows = await self._all(f"{_TO_DO.format(self._columns)} WHERE r.id = %s", (run,))
        return bool(rows) and LeaseHolder(*rows[0][7:]).holds

    async def run(self, run: str) -> RunRow:
        rows = await self._all(f"SELECT {RUN} FROM runs WHERE id = %s", (run,))
        if not rows:
            raise no_run(run)
        return run_row(rows[0])

    async def runs(self, *, limit: int | None = 100, **which: Unpack[RunFilter]) -> list[RunRow]:
        where, values = conditions(which, _LANGUAGE)
        rows = await self._all(f"SELECT {RUN} FROM runs{where} {NEWEST_FIRST} LIMIT %s", (*values, limit))
        return [run_row(row) for row in rows]

    async def tenants_with_runs(self) -> list[str]:
        return [row[0] for row in await self._all(TENANTS, ())]

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        rows = await self._all(
            f"SELECT {RUN} FROM runs WHERE id >= %s AND id < %s AND tenant = %s ORDER BY id LIMIT %s",
            (beginning, f"{beginning}{LAST}", tenant, ALIKE),
        )
        return [run_row(row) for row in rows]

    async def steps(self, run: str) -> list[StepRow]:
        if await self._key(run) < 0:
            raise no_run(run)
        return await self._steps(run, "")

    async def unclosed(self, run: str) -> list[WaitRow]:
        if await self._key(run) < 0:
            raise no_run(run)
        return await self._waits_of(run)

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
        chosen = {"run": None if run is None else await self._key(run), "tenant": tenant}
        given = {name: value for name, value in chosen.items() if value is not None}
        of_kind, named = (" AND kind = ANY(%s)", [list(kinds)]) if kinds else ("", [])
        if visible is not None:
            of_kind, named = f"{of_kind} AND owner = ANY(%s)", [*named, list(visible)]
        rows = await self._all(
            f"SELECT {_WAIT} FROM waits WHERE state = 'open'"
            + "".join(f" AND {name} = %s" for name in given)
            + f"{of_kind} ORDER BY opened, id LIMIT %s OFFSET %s",
            (*given.values(), *named, limit, offset),
        )
        return [wait_row(row) for row in rows]

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        return [row[0] for row in await self._open_waits("id", tenant, kinds)]

    async def wait_marks(self, tenant: str, kinds: Sequence[str]) -> list[WaitMark]:
        return [wait_mark(row[0]) for row in await self._open_waits("body", tenant, kinds)]

    async def _open_waits(self, column: str, tenant: str, kinds: Sequence[str]) -> Sequence[Sequence[Any]]:
        return await self._all(
            f"SELECT {column} FROM waits WHERE state = 'open' AND tenant = %s AND kind = ANY(%s) ORDER BY opened, id",
            (tenant, list(kinds)),
        )

    async def waits_called(self, tenant: str, beginning: str) -> list[WaitRow]:
        rows = await self._all(
            f"SELECT {_WAIT} FROM waits WHERE id >= %s AND id < %s AND tenant = %s ORDER BY state <> 'open', id LIMIT %s",
            (beginning, f"{beginning}{LAST}", tenant, ALIKE),
        )
        return [wait_row(row) for row in rows]

    async def wait(self, wait: str) -> WaitRow:
        rows = await self._all(f"SELECT {_WAIT} FROM waits WHERE id = %s", (wait,))
        if not rows:
            raise no_wait(wait)
        return wait_row(rows[0])

    async def records(self, run: str, after: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        row = await self.run(run)
        for ancestor, first, last in await self._lineage(row):
            seq = max(first, after + 1)
            if kinds:
                for record in await self._records(ancestor, seq, last, "AND kind = ANY(%s)", (list(kinds),)):
                    yield record
                continue
            while seq < last:
                rows = await self._records(ancestor, seq, min(last, seq + 1000))
                for record in rows:
                    yield record
                if not rows:
                    break
                seq = rows[-1].seq + 1

    async def whole(self, run: str) -> Whole:
        return (await self._snapshot(run))[0]

    async def take_out(self, run: str) -> RunCopy:
        whole, checkpoints, signals, files = await self._snapshot(run)
        first = whole.row.parent_seq if whole.row.parent else 1
        return RunCopy(
            row=whole.row,
            text=await self.playbook(whole.row.playbook),
            records=[record for record in whole.records if record.seq >= first],
            steps=in_order(whole.steps),
            waits=whole.waits,
            signals=[_signal(run, one) for one in signals],
            checkpoints=[(path, seq) for path, seq in checkpoints],
            files=[digest for (digest,) in files],
        )

    async def _snapshot(self, run: str) -> tuple[Whole, list[Any], list[Any], list[Any]]:
        """A run, its checkpoints, the signals that no driver has taken, and its files, as of one moment."""

        async def work(connection: AsyncConnection[Any]) -> tuple[Whole, list[Any], list[Any], list[Any]]:
            async with self._database.transaction(connection) as transaction:
                rows = transaction.all
                await transaction.do("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                found = await rows(f"SELECT {RUN}, key FROM runs WHERE id = %s", (run,))
                if not found:
                    raise no_run(run)
                row, key = run_row(found[0][:-1]), found[0][-1]
                steps = await rows("SELECT body, path, label, visit, seq, status FROM steps WHERE run = %s", (key,))
                waits = await rows(
                    f"SELECT {_WAIT}, id, tenant, owner, expires, opened, kind FROM waits WHERE run = %s", (key,)
                )
                records: list[Record] = []
                for part, first, last in await self._lineage(row):
                    at = await rows("SELECT key FROM runs WHERE id = %s", (part,))
                    query = f"SELECT {RECORD} FROM records WHERE run = %s AND seq >= %s AND seq < %s ORDER BY seq"
                    records += [Record(part, *one) for one in await rows(query, (at[0][0], first, last))]
                checkpoints = await rows("SELECT path, seq FROM checkpoints WHERE run = %s ORDER BY seq", (key,))
                signals = await rows(_SIGNALS, (key,))
                files = await rows("SELECT digest FROM run_files WHERE run = %s ORDER BY digest", (key,))
                return whole_of(row, steps, waits, records), checkpoints, signals, files

        return await self._database.use(work)

    async def bring_in(self, copy: RunCopy) -> None:
        await self._write(operations.bring_in, copy, ready=copy.row.id)

    async def playbook(self, digest: str) -> str:
        text = self._playbooks.get(digest)
        if text is None:
            if len(self._playbooks) > 100:
                self._playbooks.clear()
            rows = await self._all("SELECT body FROM playbooks WHERE digest = %s LIMIT 1", (digest,))
            if not rows:
                raise damaged(f"The playbook {digest} is not in the store.")
            text = self._playbooks[digest] = bytes(rows[0][0]).decode()
        return text

    def text(self, digest: str) -> str:
        rows = self._database.read_now("SELECT body FROM texts WHERE digest = %s LIMIT 1", (digest,))
        if not rows:
            raise NotFound(f"The text {digest} was purged.")
        return bytes(rows[0][0]).decode()

    async def close(self) -> None:
        await self._bus.close()
        await self._appends.close()
        await self._database.close()

    # --- inside ---

    async def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        return await self._database.read(query, values)

    async def _key(self, run: str) -> int:
        key = self._keys.get(run)
        if key is None:
            rows = await self._all("SELECT key FROM runs WHERE id = %s", (run,))
            if not rows:
                return -1
            if len(self._keys) > 10_000:
                self._keys.clear()
            key = self._keys[run] = int(rows[0][0])
        return key

    async def _lineage(self, row: RunRow) -> list[tuple[str, int, int]]:
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
            row = await self.run(row.parent)

    async def _records(
        self, run: str, first: int, last: int, keep: str = "", values: tuple[Any, ...] = ()
    ) -> list[Record]:
        rows = await self._all(
            f"SELECT {RECORD} FROM records r WHERE run = %s AND seq >= %s AND seq < %s {keep} ORDER BY seq",
            (await self._key(run), first, last, *values),
        )
        return [Record(run, *row) for row in rows]

    async def _for_replay(self, row: RunRow) -> list[Record]:
        """The records for a replay: the head of the journal, then each branch from its last checkpoint on."""
        records: list[Record] = []
        start = 0
        for run, first, last in reversed(await self._lineage(row)):
            key = await self._key(run)
            (found,) = await self._all(
                "SELECT max(seq) FROM checkpoints WHERE run = %s AND path = %s AND seq < %s", (key, ROOT, last)
            )
            start = max(first, found[0] or 0)
            keep = (
                "AND (kind IN ('WaitClosed', 'Moved') OR NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.run = %s AND c.path = r.path"
                " AND c.path <> '' AND c.seq > r.seq AND c.seq < %s))"
            )
            records = await self._records(run, start, last, keep, (key, last)) + records
            if found[0]:
                break
        if start > 1:  # settings and inputs are in records that are not replayed
            records = await self._heads(row, start) + records
        return records

    async def _heads(self, row: RunRow, before: int) -> list[Record]:
        kinds = f"AND kind IN ({NAMES_OF_HEADS})"
        found: list[Record] = []
        for run, first, last in await self._lineage(row):
            found += await self._records(run, first, min(last, before), kinds)
        return found

    async def _steps(self, run: str, condition: str) -> list[StepRow]:
        rows = await self._all(f"SELECT body FROM steps WHERE run = %s {condition}", (await self._key(run),))
        return in_order([step_row(run, row[0]) for row in rows])

    async def _waits_of(self, run: str) -> list[WaitRow]:
        rows = await self._all(
            f"SELECT {_WAIT} FROM waits WHERE run = %s AND state <> 'closed'", (await self._key(run),)
        )
        return [wait_row(row) for row in rows]

    async def _signals_of(self, run: str) -> list[Signal]:
        return [_signal(run, row) for row in await self._all(_SIGNALS, (await self._key(run),))]


def _signal(run: str, row: Sequence[Any]) -> Signal:
    return Signal(run, row[0], msgspec.json.decode(row[1]), row[2], row[3])

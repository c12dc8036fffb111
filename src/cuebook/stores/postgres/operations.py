"""The operations of the Postgres store other than appends. Each is one transaction that locks its run first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cuebook.kernel.capabilities import lasting
from cuebook.kernel.errors import Busy
from cuebook.kernel.events import ENDED
from cuebook.kernel.journal import Record
from cuebook.kernel.ports import Batch, Fate, KeptRecord, RunCopy
from cuebook.kernel.run import Lease, RunRow, Signal, WaitRow
from cuebook.kernel.votes import counted
from cuebook.stores import leases
from cuebook.stores.leases import Holder
from cuebook.stores.postgres.database import Transaction
from cuebook.stores.postgres.statements import SHARE, Statements
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
    wait_values,
    without_row,
)
from cuebook.system.process import lives

_json = msgspec.json.encode
_GIVE_UP = f"""
    UPDATE runs SET driver = '', epoch = epoch + 1, news = news OR needs <> '[]'
        OR EXISTS (SELECT 1 FROM waits w WHERE w.run = runs.key AND w.state IN ('answered', 'expired', 'cancelled'))
        OR EXISTS (SELECT 1 FROM signals s WHERE s.run = runs.key AND NOT s.taken
            AND (s.kind = 'retry' OR runs.status NOT IN ({NAMES_OF_ENDED})))
    WHERE key = %s"""
"""For a drive without a result, whose reason is still pending."""
_EXPIRE = """
    UPDATE waits SET state = 'expired' WHERE run = ANY(%s) AND state = 'open' AND expires <= %s RETURNING run"""
_FORGET_SLOTS = """
    DELETE FROM slots WHERE id IN (SELECT id FROM slots WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED)"""
"""For slots of dead drivers. One that is locked is being freed anyway; waiting for it could end in a deadlock."""
_SLOTS_LOCK = 0x736C_6F74  # "slot" in ASCII: keeps these locks apart from others

Connected = Transaction


def holder_columns(was_away: bool) -> str:
    """The columns of a `LeaseHolder`. While the database was down or out of reach, no lease could be extended, so a lease lasts
    at least until a lease's time after the database's last start, and after it was out of reach from here.
    """
    restarted = f"pg_postmaster_start_time() + interval '{leases.LEASE} seconds' > clock_timestamp()"
    restarted = "true" if was_away else restarted
    fresh = f"(d.lease > clock_timestamp() OR (d.lease IS NOT NULL AND {restarted}))"
    return f"{fresh}, d.host, d.pid, d.born"


class LeaseHolder(NamedTuple):
    """A driver and its lease, judged by the database's clock."""

    driver: str
    fresh: bool | None
    """Whether its lease is still valid; None for a driver that left or never existed."""
    host: str | None = ""
    pid: int | None = 0
    born: str | None = ""

    @property
    def holds(self) -> bool:
        """Whether its runs must not be taken over: its process is known to be alive, or cannot be inspected from here and
        its lease is still valid.
        """
        if not self.driver or self.fresh is None:
            return False
        known = lives(self.host or "", self.pid or 0, self.born or "")
        return self.fresh if known is None else known

    @property
    def fate(self) -> Fate:
        return Holder(
            self.driver, None if self.fresh is None else 0.0, self.host or "", self.pid or 0, self.born or ""
        ).fate


async def _all(db: Connected, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    return await db.all(query, values)


async def _one(db: Connected, query: str, values: tuple[Any, ...] = ()) -> Any:
    return await db.one(query, values)


async def _do(db: Connected, query: str, values: tuple[Any, ...] = ()) -> None:
    """Sends a statement whose result does not matter."""
    await db.do(query, values)


async def holder_of(db: Connected, driver: str) -> LeaseHolder:
    found = await _one(db, f"SELECT {holder_columns(db.was_away)} FROM drivers d WHERE d.id = %s", (driver,))
    return LeaseHolder(driver, *found) if found else LeaseHolder(driver, None)


async def _put(db: Connected, key: int, batch: Batch, epoch: int) -> None:
    statements = Statements()
    statements.put(key, batch, epoch)
    for query, values in statements:
        await _do(db, query, values)


async def create(db: Connected, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> int:
    if row.parent and await _one(db, "SELECT 1 FROM runs WHERE id = %s", (row.parent,)) is None:
        raise no_run(row.parent)
    if ending is not None:  # rows are locked first everywhere, then what is shared
        await _one(db, "SELECT key FROM runs WHERE id = %s FOR UPDATE", (ending.run,))
    await _do(db, SHARE)
    await _do(
        db,
        "INSERT INTO playbooks (digest, tenant, body) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (row.playbook, row.tenant, text.encode()),
    )
    marks = ", ".join(["%s"] * RUN_MARKS)
    made = await _one(
        db, f"INSERT INTO runs ({RUN}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING RETURNING key", run_values(row)
    )
    if made is None:
        raise run_exists(row.id)
    if row.parent:  # a fork refers to all files of its parent
        await _do(
            db,
            "INSERT INTO run_files (run, digest, tenant) SELECT %s, f.digest, f.tenant FROM run_files f"
            " JOIN runs r ON r.key = f.run WHERE r.id = %s ON CONFLICT DO NOTHING",
            (made[0], row.parent),
        )
    await _put(db, made[0], without_row(batch, row), row.epoch)
    if ending is not None:
        await release(db, ending, False)
    return int(made[0])


async def bring_in(db: Connected, copy: RunCopy) -> None:
    """Adds a run from another store."""
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
    key = await create(db, row, copy.text, batch)
    error = None if row.error is None else _json(row.error).decode()
    await _do(db, "UPDATE runs SET error = %s, news = %s WHERE key = %s", (error, copy.has_news, key))
    for wait in copy.waits:
        await _do(
            db,
            "INSERT INTO waits (id, run, tenant, owner, state, expires, opened, kind, body, answer, decider)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (*wait_values(key, wait), _json(wait.answer).decode(), wait.by),
        )
    for one in copy.signals:
        await _do(
            db,
            "INSERT INTO signals (run, tenant, kind, payload, sender) VALUES (%s, %s, %s, %s, %s)",
            (key, row.tenant, one.kind, _json(one.payload).decode(), one.by),
        )


async def claim(db: Connected, run: str, driver: str, now: float) -> tuple[int, RunRow, bool, list[Record]]:
    """The key, the row, whether there was news, and, for a run that was never driven, its records."""
    found = await _one(db, f"SELECT {RUN}, key, news FROM runs WHERE id = %s FOR UPDATE", (run,))
    if found is None:
        raise no_run(run)
    row, key, news = run_row(found[:-2]), found[-2], found[-1]
    if row.driver and row.driver != driver:
        holder = await holder_of(db, row.driver)
        if holder.holds:
            where = "" if lives(holder.host or "", holder.pid or 0, holder.born or "") else " on another machine"
            raise Busy(f"Run {run} is being driven by process {holder.pid}{where}.", fix="Follow it, or signal it.")
    if row.status == "pending":
        row.status = "running"
    row.epoch, row.driver = row.epoch + 1, driver
    never = row.epoch == 1 and not row.parent
    await _do(db, _EXPIRE, ([key], now))
    await _do(
        db,
        "UPDATE runs SET epoch = epoch + 1, driver = %s, news = false, status = %s WHERE key = %s",
        (driver, row.status, key),
    )
    if not never:
        return key, row, bool(news), []
    rows = await _all(db, f"SELECT {RECORD} FROM records WHERE run = %s ORDER BY seq", (key,))
    return key, row, bool(news), [Record(run, *values) for values in rows]


async def release(db: Connected, batch: Batch, unless_news: bool) -> bool:
    last = "(SELECT max(seq) FROM records WHERE run = r.key)"
    found = await _one(
        db, f"SELECT r.key, r.epoch, r.news, {last} FROM runs r WHERE r.id = %s FOR UPDATE", (batch.run,)
    )
    if found is None:
        raise no_run(batch.run)
    key, epoch, news, head = found
    if epoch != batch.epoch:
        raise fenced(batch.run)
    if unless_news and news:
        return False
    if batch.records and head is not None and batch.records[0].seq != head + 1:
        raise gap(batch, head)
    await _put(db, key, batch, epoch)
    ended = batch.row is not None and batch.row.status in ENDED
    if not batch.records:
        await _do(db, _GIVE_UP, (key,))
    else:
        handed_over = batch.row is not None and bool(lasting(batch.row.needs))
        await _do(
            db,
            "UPDATE runs SET driver = '', epoch = epoch + 1, news = (news AND NOT %s) OR %s WHERE key = %s",
            (ended, handed_over, key),
        )
    if ended:
        await _do(db, "UPDATE waits SET state = 'closed' WHERE run = %s AND state <> 'closed'", (key,))
        await _do(db, "UPDATE signals SET taken = true WHERE run = %s AND NOT taken AND kind = 'cancel'", (key,))
    return True


async def news_seen(db: Connected, run: str) -> None:
    if await _one(db, "UPDATE runs SET news = false WHERE id = %s RETURNING key", (run,)) is None:
        raise no_run(run)


async def complete_wait(
    db: Connected,
    wait: str,
    answer: dict[str, Any],
    by: str,
    now: float,
    records: Sequence[KeptRecord] = (),
    claim: str | None = None,
) -> str:
    """Returns the run of the wait."""
    run = await _run_of_wait(db, wait)
    if claim is not None:
        check_claim(await _open_wait(db, wait, now), claim, by)
    done = await _one(
        db,
        "UPDATE waits SET state = 'answered', answer = %s, decider = %s"
        " WHERE id = %s AND state = 'open' AND (expires IS NULL OR expires > %s) RETURNING id",
        (_json(answer).decode(), by, wait, now),
    )
    if done is None:
        await _open_wait(db, wait, now)
        raise AssertionError
    await _do(db, "UPDATE runs SET news = true WHERE id = %s", (run,))
    for one in records:
        await keep(db, one.tenant, one.kind, one.name, one.body)
    return run


async def vote(db: Connected, wait: str, answer: dict[str, Any], by: str, now: float) -> str:
    """Returns the run of the wait."""
    run = await _run_of_wait(db, wait)  # locks it, so votes are counted one after another
    row = await _open_wait(db, wait, now)
    before = await _one(db, "SELECT answer FROM waits WHERE id = %s", (wait,))
    assert before is not None
    decided, kept = counted(row.details, row.owner, msgspec.json.decode(before[0]), answer, by, now)
    await _do(
        db,
        "UPDATE waits SET state = %s, answer = %s, decider = %s WHERE id = %s",
        ("answered" if decided else "open", _json(kept).decode(), by if decided else "", wait),
    )
    if decided:
        await _do(db, "UPDATE runs SET news = true WHERE id = %s", (run,))
    return run


async def lease_wait(db: Connected, wait: str, lease: Lease, now: float) -> None:
    await _run_of_wait(db, wait)
    row = await _open_wait(db, wait, now)
    take_lease(row, lease, now)
    await _do(db, "UPDATE waits SET body = %s WHERE id = %s", (_json(row).decode(), wait))


async def _run_of_wait(db: Connected, wait: str) -> str:
    """The run of a wait, locked until the transaction ends."""
    run = await _one(
        db, "SELECT r.id FROM waits w JOIN runs r ON r.key = w.run WHERE w.id = %s FOR UPDATE OF r", (wait,)
    )
    if run is None:
        raise no_wait(wait)
    return str(run[0])


async def _open_wait(db: Connected, wait: str, now: float) -> WaitRow:
    """The wait as it was opened. Raises if it cannot be decided any more."""
    found = await _one(
        db, "SELECT state, decider, coalesce(expires <= %s, false), body FROM waits WHERE id = %s", (now, wait)
    )
    if found is None:
        raise no_wait(wait)
    state, by, over, body = found
    if state != "open" or over:
        raise refusal(wait, state, by, over)
    return msgspec.json.decode(body, type=WaitRow)


async def signal(db: Connected, signal: Signal) -> None:
    found = await _one(db, "SELECT key, status, driver, tenant FROM runs WHERE id = %s FOR UPDATE", (signal.run,))
    if found is None:
        raise no_run(signal.run)
    key, status, driver, tenant = found
    again = "FROM signals WHERE run = %s AND NOT taken AND kind = 'retry'"
    retried = signal.kind == "retry" and await _one(db, f"SELECT 1 {again}", (key,)) is not None
    check_signal(signal, status, under_way=retried and (await holder_of(db, driver)).holds)
    if retried:  # the sender of the first one ended before it was taken
        await _do(db, "UPDATE signals SET taken = true WHERE run = %s AND NOT taken AND kind = 'retry'", (key,))
    if signal.kind == "late" and await _attach_late(db, key, signal.payload):
        return
    await _do(
        db,
        "INSERT INTO signals (run, tenant, kind, payload, sender) VALUES (%s, %s, %s, %s, %s)",
        (key, tenant, signal.kind, _json(signal.payload).decode(), signal.by),
    )
    if signal.kind == "cancel":
        await _do(db, "UPDATE waits SET state = 'cancelled' WHERE run = %s AND state = 'open'", (key,))
    await _do(db, "UPDATE runs SET news = true WHERE key = %s", (key,))


async def _attach_late(db: Connected, key: int, payload: dict[str, Any]) -> bool:
    """Attaches the late outcome of a fenced driver to the question about that effect."""
    for wait, body in await _all(db, "SELECT id, body FROM waits WHERE run = %s AND state = 'open'", (key,)):
        row = msgspec.json.decode(body, type=WaitRow)
        if attach_late(row, payload):
            await _do(db, "UPDATE waits SET body = %s WHERE id = %s", (_json(row).decode(), wait))
            return True
    return False


async def expire(db: Connected, now: float, run: str | None) -> list[str]:
    only, values = ("", (now,)) if run is None else (" AND r.id = %s", (now, run))
    over = await _all(
        db,
        "SELECT r.key, r.id FROM runs r WHERE r.key IN"
        f" (SELECT w.run FROM waits w WHERE w.state = 'open' AND w.expires <= %s){only} ORDER BY r.key FOR UPDATE",
        values,
    )
    if not over:
        return []
    # One of them may have been answered while this waited for its lock.
    expired = {run for (run,) in await _all(db, _EXPIRE, ([key for key, _ in over], now))}
    await _do(db, "UPDATE runs SET news = true WHERE key = ANY(%s)", (sorted(expired),))
    return [name for key, name in over if key in expired]


async def heartbeat(db: Connected, driver: str) -> float:
    """Extends the lease by the database's clock; returns the database's time."""
    here = Holder.here(driver, 0.0)
    (at,) = await _one(
        db,
        "INSERT INTO drivers (id, host, pid, born, lease)"
        f" VALUES (%s, %s, %s, %s, clock_timestamp() + interval '{leases.LEASE} seconds')"
        " ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, born = excluded.born,"
        " lease = excluded.lease RETURNING extract(epoch FROM clock_timestamp())::float8",
        (here.driver, here.host, here.pid, here.born),
    )
    return float(at)


async def retire(db: Connected, driver: str) -> bool:
    """Returns whether slots became free."""
    await _do(db, "DELETE FROM drivers WHERE id = %s", (driver,))
    freed = await _all(db, "DELETE FROM slots WHERE driver = %s AND until IS NULL RETURNING id", (driver,))
    return bool(freed)


async def take_slot(db: Connected, slot: int, name: str, most: int, driver: str, lasts: float | None) -> bool:
    """Whether the slot is taken now. May be repeated with the same id if it is unknown whether it was committed."""
    # All who take slots with this name do so one after another, so each sees the slots taken before.
    await _do(db, "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (name, _SLOTS_LOCK))
    await _do(db, "DELETE FROM slots WHERE name = %s AND until <= clock_timestamp()", (name,))
    lasting, known = await _one(
        db, "SELECT count(*), bool_or(id = %s) FROM slots WHERE name = %s AND until IS NOT NULL", (slot, name)
    )
    rows = await _all(
        db,
        f"SELECT s.id, s.driver, {holder_columns(db.was_away)} FROM slots s LEFT JOIN drivers d ON d.id = s.driver"
        " WHERE s.name = %s AND s.until IS NULL",
        (name,),
    )
    holds = {holder: holder == driver or LeaseHolder(holder, *rest).holds for _, holder, *rest in rows}
    held = {id for id, holder, *_ in rows if holds[holder]}
    if len(held) < len(rows):
        await _do(db, _FORGET_SLOTS, ([id for id, *_ in rows if id not in held],))
    if known or slot in held:
        return True
    if lasting + len(held) >= most:
        return False
    await _do(
        db,
        "INSERT INTO slots VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s::float8))",
        (slot, name, driver, lasts),
    )
    return True


async def free_slot(db: Connected, slot: int) -> str | None:
    """Returns the name of the slot if it was taken."""
    found = await _one(db, "DELETE FROM slots WHERE id = %s RETURNING name", (slot,))
    return None if found is None else str(found[0])


async def keep(db: Connected, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
    await _do(
        db,
        "INSERT INTO kept VALUES (%s, %s, %s, %s) ON CONFLICT (tenant, kind, name) DO UPDATE SET body = excluded.body",
        (tenant, kind, name, _json(body).decode()),
    )


async def forget(db: Connected, tenant: str, kind: str, name: str) -> bool:
    query = "DELETE FROM kept WHERE tenant = %s AND kind = %s AND name = %s RETURNING name"
    return await _one(db, query, (tenant, kind, name)) is not None

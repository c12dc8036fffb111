"""Removes runs from a Postgres store: a run is gone in one short transaction, and its space is freed in many short ones."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cuebook.kernel.journal import PURGED
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Batch, Removal, Space, Swept
from cuebook.stores.postgres import operations
from cuebook.stores.postgres.database import Transaction
from cuebook.stores.postgres.statements import FREE
from cuebook.stores.refusals import ERASED, PURGED_RUN, RECENT, check_removable, no_run

BUDGET = 0.02
"""Seconds after which a transaction takes up nothing more."""
_ROWS = 100
_MOST_RUNS = 100
_PLAIN = (("records", "seq"), ("steps", "path, label, visit"), ("checkpoints", "path, seq"))
_USED_FILE = (
    "SELECT 1 FROM run_files f JOIN runs r ON r.key = f.run LEFT JOIN removals x ON x.run = r.id AND NOT x.done"
    " WHERE f.digest = {} AND r.tenant = {} AND x.run IS NULL"
)
_ORPHANS = (
    "SELECT tenant, digest FROM files o WHERE touched < %s"
    f" AND NOT EXISTS ({_USED_FILE.format('o.digest', 'o.tenant')}) LIMIT 20"
)
_json = msgspec.json.encode


async def remove(db: Transaction, removals: Sequence[Removal], force: bool) -> None:
    """Deletes the rows of runs. Their records, texts and files are freed later."""
    going = sorted({one.run for one in removals})
    rows = await db.all(
        "SELECT id, key, status, driver, playbook FROM runs WHERE id = ANY(%s) ORDER BY key FOR UPDATE", (going,)
    )
    found = {row[0]: row[1:] for row in rows}
    await db.do(FREE)
    forks = await db.all(
        "SELECT parent, id FROM runs WHERE parent = ANY(%s) AND parent <> '' AND NOT id = ANY(%s)", (going, going)
    )
    for one in removals:
        if one.run not in found:
            raise no_run(one.run)
        _, status, driver, _ = found[one.run]
        held = bool(driver) and (await operations.holder_of(db, driver)).holds
        check_removable(one.run, status, held, [fork for parent, fork in forks if parent == one.run], force)
    for one in removals:
        await _note(db, one, found[one.run][0], last=0)
    keys, texts = [found[run][0] for run in going], [found[run][3] for run in going]
    await db.do("DELETE FROM runs WHERE key = ANY(%s)", (keys,))
    await db.do("DELETE FROM waits WHERE run = ANY(%s)", (keys,))
    await db.do("DELETE FROM signals WHERE run = ANY(%s)", (keys,))
    unused = "NOT EXISTS (SELECT 1 FROM runs r WHERE r.playbook = playbooks.digest)"
    await db.do(f"DELETE FROM playbooks WHERE digest = ANY(%s) AND {unused}", (texts,))


async def purge(db: Transaction, batch: Batch, removal: Removal) -> None:
    await operations.release(db, batch, False)
    key, error = await db.one("SELECT key, error FROM runs WHERE id = %s", (batch.run,))
    if error:
        error = _json(Failed(msgspec.json.decode(error, type=Failed).code, ERASED)).decode()
    await _note(db, removal, key, last=batch.records[-1].seq - 1)
    await db.do("UPDATE runs SET reason = %s, error = %s, news = false WHERE key = %s", (PURGED_RUN, error, key))
    await db.do("DELETE FROM waits WHERE run = %s", (key,))
    await db.do("DELETE FROM signals WHERE run = %s", (key,))


async def _note(db: Transaction, removal: Removal, key: int, last: int) -> None:
    first, count, head = await db.one(
        "SELECT coalesce(min(seq), 1), count(*), (SELECT chain FROM records WHERE run = %s ORDER BY seq DESC LIMIT 1)"
        " FROM records WHERE run = %s",
        (key, key),
    )
    noted = msgspec.structs.replace(removal, records=count, head=bytes(head or b"").hex())
    await db.do(
        "INSERT INTO removals (run, key, tenant, what, at, first, last, body) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (run) DO UPDATE SET key = excluded.key, what = excluded.what, at = excluded.at,"
        " first = excluded.first, last = excluded.last, done = false, body = excluded.body",
        (removal.run, key, removal.tenant, removal.what, removal.at, first, last, _json(noted).decode()),
    )


async def bring_in(db: Transaction, removals: Sequence[Removal]) -> None:
    for one in removals:
        await db.do(
            "INSERT INTO removals (run, key, tenant, what, at, done, body) VALUES (%s, 0, %s, %s, %s, true, %s)"
            " ON CONFLICT (run) DO NOTHING",
            (one.run, one.tenant, one.what, one.at, _json(one).decode()),
        )


async def sweep(db: Transaction, now: float, orphans: Sequence[tuple[str, str]]) -> Swept:
    await db.do(FREE)
    return await _Sweep(db, now).run(orphans)


class _Sweep:
    """One transaction that frees space until its time is over."""

    def __init__(self, db: Transaction, now: float) -> None:
        self._db = db
        self._now = now
        self._end = time.perf_counter() + BUDGET
        self._swept = Swept()

    async def run(self, orphans: Sequence[tuple[str, str]]) -> Swept:
        to_do = await self._db.all(
            "SELECT run, key, tenant, what, first, last FROM removals WHERE NOT done ORDER BY at LIMIT %s FOR UPDATE",
            (_MOST_RUNS,),
        )
        for run, key, tenant, what, first, last in to_do:
            if not await self._free(run, key, tenant, what, first, last):
                self._swept.more = True
                return self._swept
            await self._db.do("UPDATE removals SET done = true WHERE run = %s", (run,))
        self._swept.more = True  # in the end, there is one that has nothing to do
        for tenant, digest in orphans:
            if not await self._free_file(tenant, digest):
                break
        return self._swept

    async def _free(self, run: str, key: int, tenant: str, what: str, first: int, last: int) -> bool:
        tables: Sequence[tuple[str, str]] = _PLAIN
        if what == "purged":
            tables = _PLAIN[1:]
            if not await self._empty(run, key, first, last):
                return False
        for table, columns in tables:
            query = (
                f"DELETE FROM {table} WHERE run = %s AND ({columns}) IN"
                f" (SELECT {columns} FROM {table} WHERE run = %s LIMIT {_ROWS}) RETURNING 1"
            )
            if not await self._repeat(lambda query=query: self._count(query, (key, key))):  # type: ignore[misc]
                return False
        return await self._texts(key, tenant) and await self._files(key, tenant)

    async def _count(self, query: str, values: tuple[Any, ...]) -> int:
        return len(await self._db.all(query, values))

    async def _repeat(self, part: Callable[[], Awaitable[int]]) -> bool:
        """Calls `part` until it has nothing left to do, or the time is over. Returns whether it is done."""
        while time.perf_counter() < self._end:
            rows = await part()
            self._swept.rows += rows
            if rows == 0:
                return True
        return False

    async def _empty(self, run: str, key: int, first: int, last: int) -> bool:
        """Replaces the contents of records by their digests."""
        at = first

        async def part() -> int:
            nonlocal at
            rows = await self._db.all(
                "SELECT seq, body FROM records WHERE run = %s AND seq >= %s AND seq <= %s ORDER BY seq LIMIT %s",
                (key, at, last, _ROWS),
            )
            for seq, body in rows:
                if not bytes(body).startswith(PURGED):
                    emptied = PURGED + sha256(bytes(body)).digest()
                    await self._db.do("UPDATE records SET body = %s WHERE run = %s AND seq = %s", (emptied, key, seq))
            at = rows[-1][0] + 1 if rows else at
            return len(rows)

        done = await self._repeat(part)
        await self._db.do("UPDATE removals SET first = %s WHERE run = %s", (at, run))
        return done

    async def _texts(self, key: int, tenant: str) -> bool:
        async def part() -> int:
            query = (
                "DELETE FROM run_texts WHERE run = %s AND digest IN"
                " (SELECT digest FROM run_texts WHERE run = %s LIMIT 10) RETURNING digest"
            )
            found = [digest for (digest,) in await self._db.all(query, (key, key))]
            unused = "NOT EXISTS (SELECT 1 FROM run_texts u WHERE u.digest = t.digest AND u.tenant = %s)"
            self._swept.texts += await self._count(
                f"DELETE FROM texts t WHERE digest = ANY(%s) AND tenant IN ('', %s) AND {unused} RETURNING 1",
                (found, tenant, tenant),
            )
            return len(found)

        return await self._repeat(part)

    async def _files(self, key: int, tenant: str) -> bool:
        while time.perf_counter() < self._end:
            found = await self._db.one("SELECT digest FROM run_files WHERE run = %s LIMIT 1", (key,))
            if found is None:
                return True
            if not await self._free_file(tenant, found[0]):
                return False
            await self._db.do("DELETE FROM run_files WHERE run = %s AND digest = %s", (key, found[0]))
        return False

    async def _free_file(self, tenant: str, digest: str) -> bool:
        """Frees a file, unless a run needs it or it was produced a moment ago. Returns False if time runs out before."""
        query = "SELECT touched FROM files WHERE digest = %s AND tenant = %s FOR UPDATE"
        file = await self._db.one(query, (digest, tenant))
        if file is None or file[0] > self._now - RECENT:
            return True
        if await self._db.one(_USED_FILE.format("%s", "%s"), (digest, tenant)) is not None:
            return True
        await self._db.do("UPDATE files SET size = -1 WHERE digest = %s AND tenant = %s", (digest, tenant))
        query = (
            "DELETE FROM pieces WHERE digest = %s AND tenant = %s AND number IN"
            " (SELECT number FROM pieces WHERE digest = %s AND tenant = %s LIMIT 4) RETURNING 1"
        )
        if not await self._repeat(lambda: self._count(query, (digest, tenant, digest, tenant))):
            return False
        await self._db.do("DELETE FROM files WHERE digest = %s AND tenant = %s", (digest, tenant))
        self._swept.files += 1
        return True


class RemovalTables:
    """The part of the store that removes runs."""

    _write: Callable[..., Awaitable[Any]]
    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]
    _keys: dict[str, int]
    _playbooks: dict[str, str]
    _appends: Any

    async def remove(self, removals: Sequence[Removal], *, force: bool = False) -> None:
        await self._write(remove, removals, force)
        self._playbooks.clear()
        for one in removals:
            self._keys.pop(one.run, None)
            self._appends.released(one.run)

    async def purge(self, batch: Batch, removal: Removal) -> None:
        await self._appends.settled(batch.run)
        await self._write(purge, batch, removal, ready=batch.run)
        self._appends.released(batch.run)

    async def sweep(self, now: float) -> Swept:
        to_do = await self._all("SELECT 1 FROM removals WHERE NOT done LIMIT 1", ())
        orphans = (
            [] if to_do else await self._all(_ORPHANS, (now - RECENT,))
        )  # this reads all files, so only in the end
        if not to_do and not orphans:
            return Swept()
        swept: Swept = await self._write(sweep, now, orphans)
        return swept

    async def removals(self, tenant: str, run: str = "", limit: int | None = 100) -> list[Removal]:
        only, values = (" AND run = %s", (tenant, run)) if run else ("", (tenant,))
        rows = await self._all(
            f"SELECT body FROM removals WHERE tenant = %s{only} ORDER BY at DESC LIMIT %s", (*values, limit)
        )
        return [msgspec.json.decode(body, type=Removal) for (body,) in rows]

    async def bring_in_removals(self, removals: Sequence[Removal]) -> None:
        await self._write(bring_in, removals)

    async def sizes(self, tenant: str, runs: Collection[str]) -> dict[str, int]:
        rows = await self._all(
            "SELECT r.id, (coalesce((SELECT sum(length(head) + length(body) + length(chain)) FROM records"
            " WHERE run = r.key), 0) + coalesce((SELECT sum(greatest(size, 0)) FROM run_files u JOIN files f"
            " ON f.digest = u.digest AND f.tenant = u.tenant WHERE u.run = r.key), 0))::bigint FROM runs r WHERE id = ANY(%s) AND tenant = %s",
            (list(runs), tenant),
        )
        return dict(rows)

    async def usage(self, tenant: str) -> list[Space]:
        rows = await self._all(
            "SELECT r.name, count(*), sum(length(head) + length(body) + length(chain))::bigint, count(DISTINCT r.key)"
            " FROM runs r JOIN records t ON t.run = r.key WHERE r.tenant = %s GROUP BY r.name ORDER BY r.name",
            (tenant,),
        )
        found = [Space(name, "records", count, size or 0, runs) for name, count, size, runs in rows]
        for kind, table, size in (
            ("texts", "run_texts", "length(t.body)"),
            ("files", "run_files", "greatest(t.size, 0)"),
        ):
            rows = await self._all(  # a text or file counts once for each playbook whose runs refer to it
                f"SELECT name, count(*), sum(size)::bigint FROM (SELECT DISTINCT r.name, t.digest, {size} AS size"
                f" FROM runs r JOIN {table} u ON u.run = r.key JOIN {kind} t ON t.digest = u.digest AND t.tenant = u.tenant"
                " WHERE r.tenant = %s) found GROUP BY name ORDER BY name",
                (tenant,),
            )
            found += [Space(name, kind, count, size or 0) for name, count, size in rows]  # type: ignore[arg-type]
        rows = await self._all(
            "SELECT count(*), sum(length(body))::bigint FROM playbooks p WHERE tenant = %s"
            " AND digest IN (SELECT playbook FROM runs WHERE tenant = %s)",
            (tenant, tenant),
        )
        found += [Space("", "playbooks", count, size or 0) for count, size in rows]
        return [*found, Space("", "free", 0, 0)]

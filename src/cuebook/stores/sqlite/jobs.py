"""The jobs of a SQLite store. Only one process gets a job that is due: the one whose commit postpones it first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.ports import Job

if TYPE_CHECKING:
    from cuebook.stores.sqlite.transaction import Transaction

COLUMNS = "tenant, kind, name, due, body, version"
_ADD = f"INSERT OR IGNORE INTO jobs ({COLUMNS}) VALUES (?,?,?,?,?,1)"


def job_values(job: Job) -> tuple[Any, ...]:
    return (job.tenant, job.kind, job.name, job.due, msgspec.json.encode(job.body).decode())


def job_of(row: Sequence[Any]) -> Job:
    tenant, kind, name, due, body, version = row
    return Job(tenant=tenant, kind=kind, name=name, due=due, body=msgspec.json.decode(body), version=version)


def add(transaction: Transaction, jobs: Sequence[Job]) -> None:
    """Adds new jobs; one that exists already stays as it is."""
    transaction.connection.executemany(_ADD, [job_values(job) for job in jobs])


def _put(transaction: Transaction, job: Job) -> Job | None:
    db = transaction.connection
    if job.version == 0:
        done = db.execute(_ADD, job_values(job))
    else:
        tenant, kind, name, due, body = job_values(job)
        done = db.execute(
            "UPDATE jobs SET due = ?, body = ?, version = version + 1"
            " WHERE tenant = ? AND kind = ? AND name = ? AND version = ?",
            (due, body, tenant, kind, name, job.version),
        )
    return msgspec.structs.replace(job, version=job.version + 1) if done.rowcount == 1 else None


def _take(transaction: Transaction, kinds: Sequence[str], now: float, until: float, limit: int) -> list[Job]:
    db = transaction.connection
    marks = ",".join("?" * len(kinds))
    rows = db.execute(
        f"SELECT {COLUMNS} FROM jobs WHERE kind IN ({marks}) AND due <= ? ORDER BY due, name LIMIT ?",
        (*kinds, now, limit),
    ).fetchall()
    db.executemany(
        "UPDATE jobs SET due = ?, version = version + 1 WHERE tenant = ? AND kind = ? AND name = ?",
        [(until, *row[:3]) for row in rows],
    )
    return [msgspec.structs.replace(job_of(row), version=row[5] + 1) for row in rows]


def _drop(transaction: Transaction, job: Job) -> bool:
    done = transaction.connection.execute(
        "DELETE FROM jobs WHERE tenant = ? AND kind = ? AND name = ? AND version = ?",
        (job.tenant, job.kind, job.name, job.version),
    )
    return done.rowcount == 1


class JobTables:
    """The part of the store that keeps jobs."""

    _writer: Any

    def _all(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        raise TypeError("only a store reads")

    async def put_job(self, job: Job) -> Job | None:
        put: Job | None = await self._writer.submit(_put, job)
        return put

    async def take_jobs(self, kinds: Sequence[str], now: float, until: float, limit: int = 100) -> list[Job]:
        marks = ",".join("?" * len(kinds))
        if not self._all(f"SELECT 1 FROM jobs WHERE kind IN ({marks}) AND due <= ? LIMIT 1", (*kinds, now)):
            return []  # a read locks nothing
        taken: list[Job] = await self._writer.submit(_take, kinds, now, until, limit)
        return taken

    async def drop_job(self, job: Job) -> bool:
        return bool(await self._writer.submit(_drop, job))

    async def job(self, tenant: str, kind: str, name: str) -> Job | None:
        query = f"SELECT {COLUMNS} FROM jobs WHERE tenant = ? AND kind = ? AND name = ?"
        rows = self._all(query, (tenant, kind, name))
        return job_of(rows[0]) if rows else None

    async def jobs(self, kind: str, tenant: str | None = None, after: str = "", limit: int | None = None) -> list[Job]:
        rows = self._all(
            f"SELECT {COLUMNS} FROM jobs WHERE kind = ? AND (? IS NULL OR tenant = ?) AND name > ?"
            " ORDER BY tenant, name LIMIT ?",
            (kind, tenant, tenant, after, -1 if limit is None else limit),
        )
        return [job_of(row) for row in rows]

    async def jobs_named(self, kind: str, name: str) -> list[Job]:
        query = f"SELECT {COLUMNS} FROM jobs WHERE kind = ? AND name = ? ORDER BY tenant"
        return [job_of(row) for row in self._all(query, (kind, name))]

    async def next_due(self, kinds: Sequence[str]) -> float | None:
        query = "SELECT min(due) FROM jobs WHERE kind = ? AND due IS NOT NULL"
        found = [self._all(query, (kind,))[0][0] for kind in kinds]
        return min((due for due in found if due is not None), default=None)

"""The jobs of a Postgres store. Only one process gets a job that is due: the one that locks its row first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from cuebook.kernel.ports import Job
from cuebook.stores.postgres.database import Transaction

_COLUMNS = "tenant, kind, name, due, body, version"
ADD = f"INSERT INTO jobs ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING"


def job_values(job: Job) -> tuple[Any, ...]:
    return (job.tenant, job.kind, job.name, job.due, msgspec.json.encode(job.body).decode())


def _job(row: Sequence[Any]) -> Job:
    tenant, kind, name, due, body, version = row
    return Job(tenant=tenant, kind=kind, name=name, due=due, body=msgspec.json.decode(body), version=version)


async def _put(db: Transaction, job: Job) -> Job | None:
    tenant, kind, name, due, body = job_values(job)
    if job.version == 0:
        done = await db.one(f"{ADD} RETURNING version", (tenant, kind, name, due, body))
    else:
        done = await db.one(
            "UPDATE jobs SET due = %s::float8, body = %s, version = version + 1"
            " WHERE tenant = %s AND kind = %s AND name = %s AND version = %s RETURNING version",
            (due, body, tenant, kind, name, job.version),
        )
    return None if done is None else msgspec.structs.replace(job, version=done[0])


async def _take(db: Transaction, kinds: Sequence[str], now: float, until: float, limit: int) -> list[Job]:
    rows = await db.all(
        f"SELECT {_COLUMNS} FROM jobs WHERE kind = ANY(%s) AND due <= %s ORDER BY due, name LIMIT %s FOR UPDATE SKIP LOCKED",
        (list(kinds), now, limit),
    )
    for tenant, kind, name, *_ in rows:
        await db.do(
            "UPDATE jobs SET due = %s, version = version + 1 WHERE tenant = %s AND kind = %s AND name = %s",
            (until, tenant, kind, name),
        )
    return [msgspec.structs.replace(_job(row), version=row[5] + 1) for row in rows]


async def _drop(db: Transaction, job: Job) -> bool:
    query = "DELETE FROM jobs WHERE tenant = %s AND kind = %s AND name = %s AND version = %s RETURNING name"
    return await db.one(query, (job.tenant, job.kind, job.name, job.version)) is not None


class JobTables:
    """The part of the store that keeps jobs."""

    _write: Callable[..., Awaitable[Any]]
    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]

    async def put_job(self, job: Job) -> Job | None:
        put: Job | None = await self._write(_put, job)
        return put

    async def take_jobs(self, kinds: Sequence[str], now: float, until: float, limit: int = 100) -> list[Job]:
        if not await self._all("SELECT 1 FROM jobs WHERE kind = ANY(%s) AND due <= %s LIMIT 1", (list(kinds), now)):
            return []
        taken: list[Job] = await self._write(_take, kinds, now, until, limit)
        return taken

    async def drop_job(self, job: Job) -> bool:
        return bool(await self._write(_drop, job))

    async def job(self, tenant: str, kind: str, name: str) -> Job | None:
        query = f"SELECT {_COLUMNS} FROM jobs WHERE tenant = %s AND kind = %s AND name = %s"
        rows = await self._all(query, (tenant, kind, name))
        return _job(rows[0]) if rows else None

    async def jobs(self, kind: str, tenant: str | None = None, after: str = "", limit: int | None = None) -> list[Job]:
        rows = await self._all(
            f"SELECT {_COLUMNS} FROM jobs WHERE kind = %s AND (%s::text IS NULL OR tenant = %s) AND name > %s"
            " ORDER BY tenant, name LIMIT %s",
            (kind, tenant, tenant, after, limit),
        )
        return [_job(row) for row in rows]

    async def jobs_named(self, kind: str, name: str) -> list[Job]:
        query = f"SELECT {_COLUMNS} FROM jobs WHERE kind = %s AND name = %s ORDER BY tenant"
        return [_job(row) for row in await self._all(query, (kind, name))]

    async def next_due(self, kinds: Sequence[str]) -> float | None:
        rows = await self._all("SELECT min(due) FROM jobs WHERE kind = ANY(%s) AND due IS NOT NULL", (list(kinds),))
        due: float | None = rows[0][0]
        return due

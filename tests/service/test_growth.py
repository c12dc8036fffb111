"""What servers and workers ask of a store again and again costs the same however many runs have ended in it.

The instructions of SQLite's virtual machine are counted, which depend on nothing but the queries and the rows they visit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cuebook.gate.roles import Principal
from cuebook.kernel.events import RunFinished, RunStarted
from cuebook.kernel.ports import Job, RunFilter
from cuebook.service.dispatch.sweep import Sweep
from cuebook.service.retention import Criteria
from cuebook.service.worker import Worker
from cuebook.stores.run_lists import NEWEST_FIRST, conditions
from cuebook.stores.sqlite import SqliteStore
from cuebook.stores.sqlite.store import _LANGUAGE
from tests.support.programs import new_row, service_on
from tests.support.records import RecordWriter, claim, wait_row

FEW, MANY = 30, 300
Poll = Callable[[], Awaitable[object]]


async def add_ended(store: SqliteStore, first: int, last: int) -> None:
    """Runs that have ended, each with steps, a closed wait, a job that is not due and a line of what was used."""

    async def one(number: int) -> None:
        run = f"run{number:05}"
        row = new_row("hand", run)
        row.created = row.updated = store.now() - 86400 + number
        await store.create(row, "text", RecordWriter(run).batch(RunStarted({})))
        writer = await claim(store, run)
        wait = wait_row(f"w{run}", run, tenant="local", expires=store.now() + 60)
        await store.append(writer.batch(RunFinished("failed"), opened=[wait]))
        row.status = "completed"
        await store.release(writer.batch(RunFinished("completed"), row=row, closed=[wait.id]), unless_news=False)
        await store.put_job(Job(kind="message", tenant="local", name=run, due=store.now() + 1000, body={}))

    await asyncio.gather(*(one(number) for number in range(first, last)))


@contextmanager
def counted(*connections: sqlite3.Connection) -> Iterator[list[int]]:
    count = [0]

    def step() -> int:
        count[0] += 1
        return 0

    for connection in connections:
        connection.set_progress_handler(step, 1)
    try:
        yield count
    finally:
        for connection in connections:
            connection.set_progress_handler(None, 0)


async def test_no_query_that_is_repeated_grows_with_the_runs_that_have_ended(
    file_store: SqliteStore, tmp_path: Path
) -> None:
    store = file_store
    service = service_on(store, tmp_path)
    worker = Worker(service, str(tmp_path))
    sweep = Sweep(service, lambda: True)
    runner = service.job_runner({"schedule": lambda job: asyncio.sleep(0), "message": lambda job: asyncio.sleep(0)})
    admin, old = Principal("retention"), Criteria(older_than=30 * 86400)
    driver = service._engine.driver
    polls: dict[str, Poll] = {
        "the worker's look": worker._look,
        "the sweep of the dispatcher": sweep.look,
        "a run that has work": lambda: store.ready(store.now(), driver, "run00001"),
        "interrupted runs": service.interrupted,
        "waits that expire": store.next_expiry,
        "expired waits": service.settle,
        "jobs": runner.once,
        "when a job is due": lambda: store.next_due(["schedule", "message"]),
        "a heartbeat": lambda: store.heartbeat(driver, store.now()),
        "runs with news": lambda: store.called(driver),
        "tenants": service.retention.tenants,
        "retention": lambda: service.retention.prune(old, admin),
        "freeing space": service.retention.sweep,
        "runs that ended": lambda: store.runs(name="hand", status=["completed"], tenant="local", since=store.now() - 60),
        "unfinished runs": lambda: store.runs(name="hand", status=["pending", "paused"], tenant="local", caller=""),
        "the inbox": service.inbox,
    }  # fmt: skip
    costs: dict[str, list[int]] = {name: [] for name in polls}
    for first, last in ((0, FEW), (FEW, MANY)):
        await add_ended(store, first, last)
        for name, poll in polls.items():
            await poll()  # what is prepared once
            with counted(store._reader, store._connection) as count:
                await poll()
            costs[name].append(count[0])
    grown = {name: cost for name, cost in costs.items() if cost[1] > cost[0] * 1.1 + 20}
    assert grown == {}
    assert all(cost[0] > 0 for name, cost in costs.items()), costs
    await service.close()


def plan(store: SqliteStore, which: RunFilter) -> str:
    where, values = conditions(which, _LANGUAGE)
    rows = store._all(f"EXPLAIN QUERY PLAN SELECT id FROM runs{where} {NEWEST_FIRST} LIMIT 10", tuple(values))
    return "; ".join(row[3] for row in rows)


@pytest.mark.parametrize(
    ("which", "index"),
    [
        ({}, "runs_listed (tenant=?)"),
        ({"since": 1.0, "until": 2.0}, "runs_listed (tenant=? AND created>? AND created<?)"),
        ({"owner": "ann", "trigger": "schedule", "words": ["x"]}, "runs_listed (tenant=?)"),
        ({"status": ["failed", "completed"]}, "runs_listed (tenant=?)"),
        ({"status": ["paused"], "name": "x"}, "runs_unfinished (tenant=?)"),
        ({"among": ["a"]}, "INTEGER PRIMARY KEY (rowid=?)"),
        ({"caller": "a"}, "runs_by_caller (caller=?)"),
        ({"parent": "a"}, "runs_by_parent (parent=?)"),
    ],
    ids=str,
)  # fmt: skip
async def test_every_list_is_read_from_an_index(file_store: SqliteStore, which: RunFilter, index: str) -> None:
    asked = which.copy()
    asked["tenant"] = "local"
    found = plan(file_store, asked)
    assert index in found
    assert "SCAN runs" not in found

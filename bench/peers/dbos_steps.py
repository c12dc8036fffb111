"""DBOS: durable steps in its system database: Postgres, or SQLite in WAL mode with full synchronisation.

By default, its SQLite file uses a rollback journal, which is slower; WAL is faster and just as durable.
Workflows are called from a few threads instead of through `start_workflow`, because that was faster.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSConfig

from bench.peers.report import THREADS, VALUE, options, report, timed, timed_async


@DBOS.step()
def step(number: int) -> str:
    return VALUE


@DBOS.workflow()
def workflow(steps: int) -> int:
    return sum(len(step(number)) for number in range(steps))


@DBOS.step()
async def step_async(number: int) -> str:
    return VALUE


@DBOS.workflow()
async def workflow_async(steps: int) -> int:
    return sum([len(await step_async(number)) for number in range(steps)])


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def durable(connection: Any, record: object) -> None:
    if not hasattr(connection, "create_function"):  # only SQLite has it; Postgres is durable by itself
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def main() -> None:
    chosen = options(__doc__)
    config: DBOSConfig = {
        "name": "bench-steps",
        "system_database_url": chosen.db if chosen.db.startswith("postgresql:") else f"sqlite:///{chosen.db}",
        "log_level": "ERROR",
        "enable_otlp": False,
        "use_listen_notify": False,
    }
    DBOS(config=config)
    DBOS.launch()
    expected = len(VALUE) * chosen.steps

    def all_runs() -> None:
        with ThreadPoolExecutor(min(THREADS, chosen.runs)) as pool:
            assert all(result == expected for result in pool.map(workflow, [chosen.steps] * chosen.runs))

    async def all_runs_async() -> None:
        results = await asyncio.gather(*(workflow_async(chosen.steps) for _ in range(chosen.runs)))
        assert all(result == expected for result in results)

    async def asynchronous() -> float:
        await workflow_async(3)
        return await timed_async(all_runs_async)

    workflow(3)
    try:
        seconds = {"sync": timed(all_runs), "async": asyncio.run(asynchronous())}
    finally:
        DBOS.destroy()
    report("dbos", chosen, seconds)


if __name__ == "__main__":
    main()

"""The floor under every durable step on Postgres: one small row, one commit, through the driver that the store uses.

The server is a real one with its usual durability, started for the benchmark from the development environment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.floor import BODY
from tests.support.postgres import Server, programs


def available() -> bool:
    return programs() is not None


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server whose files are below `folder`."""
    made = Server(folder, fsync="on")
    try:
        yield made
    finally:
        made.close()


def raw_commits(url: str, steps: int) -> float:
    """Seconds for `steps` rows of about 200 bytes, each in its own transaction, each sent in one go."""
    return asyncio.run(_raw_commits(url, steps))


async def _raw_commits(url: str, steps: int) -> float:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    try:
        await connection.execute("DROP TABLE IF EXISTS floor")
        await connection.execute("CREATE TABLE floor (run bigint, seq bigint, body bytea, PRIMARY KEY (run, seq))")
        started = time.perf_counter()
        for seq in range(steps):
            async with connection.pipeline():
                await connection.execute("BEGIN")
                await connection.execute("INSERT INTO floor VALUES (1, %s, %s)", (seq, BODY))
                await connection.execute("COMMIT")
        return time.perf_counter() - started
    finally:
        await connection.close()

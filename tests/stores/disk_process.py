"""Processes that do one thing to a store and print the result: `disk_process.py WHAT PATH ...`.

- `hold PATH`: takes the write lock, reports it, and holds it until it is asked to exit.
- `try PATH`: opens the store as an unprivileged user and writes to it; prints the code and message of the error.
- `die PATH RUN`: drives a run until it waits, prints the number of acknowledged records, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from cuebook.kernel.errors import CuebookError
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import engine_on
from tests.support.records import create

NOBODY = 65534


def hold(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    print("held", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")


async def try_as_nobody(path: Path) -> None:
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        store = SqliteStore(path)
        await create(store, "by nobody")
    except CuebookError as error:
        print(f"{error.code}: {error}")
    else:
        print("fine")


async def die(path: Path, run: str) -> None:
    store = SqliteStore(path)
    engine = engine_on(store, path.parent)
    await engine.drive(run)
    print(len([record async for record in store.records(run)]), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "hold":
        hold(where)
    elif what == "try":
        asyncio.run(try_as_nobody(where))
    else:
        asyncio.run(die(where, sys.argv[3]))

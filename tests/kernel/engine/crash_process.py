"""A process that drives a run and kills itself at its N-th write: `crash_process.py FOLDER RUN WHEN N [slow]`.

WHEN is `before` (the commit does not happen) or `after` (it happens, but is not acknowledged). A process that is not killed,
as with N 0, prints the number of writes when it ends. With `slow`, every commit takes some time on the writer's thread while
the program continues. The process notes each acknowledged record in the file `told`, so the test can check that none is lost.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cuebook.kernel.journal import Entry
from cuebook.stores.sqlite import group_commit
from tests.support.programs import engine_on, kill_me
from tests.support.shared_stores import open_shared


def die_at(when: str, number: int, slow: bool) -> None:
    count = 0
    commit = group_commit.Writer._attempt

    def counted(self: Any, writes: list[Any], begun: bool) -> None:
        nonlocal count
        count += 1
        if count == number and when == "before":
            kill_me()
        if slow:
            time.sleep(0.01)
        commit(self, writes, begun)
        if count == number and when == "after":
            kill_me()

    if slow:
        group_commit.SLOW = -1e9
    group_commit.Writer._attempt = counted  # type: ignore[method-assign]
    atexit.register(lambda: print(count))


def die_at_commit(when: str, number: int) -> None:
    """The same for Postgres: its writes are group commits and single transactions."""
    from cuebook.stores.postgres.database import Database
    from cuebook.stores.postgres.group_commit import GroupCommit

    count = 0
    attempt, transaction = GroupCommit._attempt, Database.transaction

    def reach(moment: str, mine: int) -> None:
        if mine == number and when == moment:
            kill_me()

    async def counted(self: Any, appends: list[Any]) -> None:
        nonlocal count
        count += 1
        mine = count
        reach("before", mine)
        await attempt(self, appends)
        reach("after", mine)

    @asynccontextmanager
    async def counted_transaction(self: Any, connection: Any) -> AsyncIterator[Any]:
        nonlocal count
        mine = 0
        async with transaction(self, connection) as begun:
            yield begun
            count += 1
            mine = count
            reach("before", mine)
        reach("after", mine)

    GroupCommit._attempt = counted  # type: ignore[method-assign]
    Database.transaction = counted_transaction  # type: ignore[method-assign]
    atexit.register(lambda: print(count))


async def main(folder: Path, run: str) -> None:
    store = open_shared(folder)
    engine = engine_on(store, folder)
    told = (folder / "told").open("a", buffering=1)
    engine.observe(lambda event: print(event.seq, file=told) if isinstance(event, Entry) and event.run == run else None)
    await engine.drive(run)
    await engine.close()
    await store.close()


if __name__ == "__main__":
    if (Path(sys.argv[1]) / "store.url").exists():
        die_at_commit(sys.argv[3], int(sys.argv[4]))
    else:
        die_at(sys.argv[3], int(sys.argv[4]), "slow" in sys.argv[5:])
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

"""Measures what a child run costs in addition to its own steps, in raw SQLite commits: `python -m bench.children`.

A program makes one step in each of many child runs; the same steps without children are subtracted. Both wait for the disk, as
in the ordinary store. The number of commits is counted as well: it does not depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.floor import raw_commits
from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.effects import Now, Program, RunPlaybook
from cuebook.kernel.engine.children import ChildRequest, ChildStart
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import PinnedPlaybook
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import RunRow, Settings
from cuebook.stores.sqlite import SqliteStore, group_commit

CHILDREN = 200
MOST = 3
"""The most that a child may add, in raw commits."""


def _program(row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    def start(state: Any) -> Program[Any]:
        for _ in range(1 if row.caller else CHILDREN):
            yield RunPlaybook("kid") if row.name == "calling" else Now()
        return 1

    return start


def _row(name: str, run: str, caller: str = "") -> RunRow:
    now = time.time()
    return RunRow(
        id=run,
        tenant="local",
        owner="me",
        dialect="bench",
        interpreter=1,
        playbook=digest_of("text"),
        name=name,
        created=now,
        updated=now,
        caller=caller,
    )


async def _child(asked: ChildRequest) -> ChildStart | Failed:
    return ChildStart(_row("kid", asked.id, asked.parent.id), "text", {}, asked.settings, None, {}, {})


async def _driven(folder: Path, name: str) -> tuple[float, int]:
    """Seconds and commits of one run."""
    store = SqliteStore(folder / f"{name}.db")
    engine = Engine(store, _program, children=_child)
    pinned = {"d": PinnedPlaybook("kid", "bench", Text("text"))}
    await engine.start(_row(name, "run"), "text", {}, Settings(), None, {"kid": "d"}, pinned)
    commits = 0
    attempt = group_commit.Writer._attempt

    def counted(self: Any, writes: list[Any], begun: bool) -> None:
        nonlocal commits
        commits += 1
        attempt(self, writes, begun)

    group_commit.Writer._attempt = counted  # type: ignore[method-assign]
    try:
        began = time.perf_counter()
        row = await engine.drive("run")
        took = time.perf_counter() - began
    finally:
        group_commit.Writer._attempt = attempt  # type: ignore[method-assign]
    assert row.status == "completed", row.error
    await engine.close()
    await store.close()
    return took, commits


def added(folder: Path) -> tuple[float, float]:
    """What a child adds to a step: milliseconds in raw commits, and commits."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        floor = raw_commits(Path(place, "floor.db"), CHILDREN) / CHILDREN
        plain, few = asyncio.run(_driven(Path(place), "plain"))
        calling, many = asyncio.run(_driven(Path(place), "calling"))
    return (calling - plain) / CHILDREN / floor, (many - few) / CHILDREN


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        found = [added(Path(folder)) for _ in range(rounds)]
    print(f"a child adds {median(one[0] for one in found):.2f} raw commits' time, and {found[-1][1]:.2f} commits")


if __name__ == "__main__":
    main()

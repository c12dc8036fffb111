"""The cost of an item of a loop: `for_each` over 10,000 items against plain steps, and against a loop of 1,000.

    python -m bench.loops [--items 10000] [--rounds 3] [--json]

Processor time is measured. The engine and the journal in SQLite are those of an ordinary run; the commands are performed by a stand-in that returns at once, so
that only Cuebook's own work counts, and the disk is not waited for: an item waits for it as often as a step. The items run one after another, as plain steps do. The plain steps are a pipeline of 1,000. The
loops and the steps are measured in turn, in the same process, and the medians are compared. `together` is the same loop with 32
items at a time. For the last tenth against the first, the loop is asked when each of its items began.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.run.interpret import interpret
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Program, RunCommand
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.outcomes import CommandResult
from cuebook.kernel.ports import Call
from cuebook.kernel.run import RunRow, Settings
from cuebook.stores.sqlite import SqliteStore

MOST = 2.0
"""How many times a plain step an item may cost."""
FLAT = 1.25
"""How many times an item of the short loop an item of the long one may cost."""
PLAIN = 1_000
SHORT = 1_000


class Instant:
    """Performs commands by returning at once, and remembers how much processor time had passed before each."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult:
        self.at.append(time.process_time())
        return CommandResult(0, Text("done"))


def loop(items: int, at_once: int = 1) -> Pipeline:
    listed = json.dumps(list(range(items)))
    text = f"name: Loop\nsteps:\n  - id: each\n    for_each: {listed}\n    concurrency: {at_once}\n    command: cli true ${{item}}\n"
    return parse(text, "loop.yml")


def plain(steps: int) -> Pipeline:
    listed = "".join(f"  - {{id: s{number}, command: cli true {number}}}\n" for number in range(steps))
    return parse(f"name: Plain\nsteps:\n{listed}", "plain.yml")


async def measured(folder: Path, pipeline: Pipeline, count: int) -> tuple[float, float]:
    """Milliseconds for each item or step, and the last tenth against the first."""

    def programs(
        row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(pipeline, inputs, options, state)

    instant = Instant()
    store = SqliteStore(folder / "loops.db", synchronous="NORMAL")
    engine = Engine(store, programs, {RunCommand: instant})
    gc.collect()
    began = time.process_time()
    await engine.start(_row(), "", {}, Settings())
    row = await engine.drive("bench")
    took = time.process_time() - began
    assert row.status == "completed", row.error
    assert len(instant.at) == count
    await engine.close()
    await store.close()
    tenth = count // 10
    first, last = instant.at[tenth] - instant.at[0], instant.at[-1] - instant.at[-1 - tenth]
    return took * 1000 / count, last / first


def _row() -> RunRow:
    now = time.time()
    return RunRow(
        id="bench", tenant="local", owner="local", dialect="pipeline", interpreter=1, playbook="bench", name="bench",
        created=now, updated=now,
    )  # fmt: skip


def measure(table: Any, place: Path, rounds: int, items: int = 10_000) -> None:
    cases = {
        "a plain step": (plain(PLAIN), PLAIN),
        f"an item of {SHORT:,}": (loop(SHORT), SHORT),
        f"an item of {items:,}": (loop(items), items),
        f"an item of {items:,}, 32 together": (loop(items, 32), items),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (pipeline, count) in cases.items():
            with tempfile.TemporaryDirectory(dir=place) as folder:
                found[name].append(asyncio.run(measured(Path(folder), pipeline, count)))
    cost = {name: median(one for one, _ in several) for name, several in found.items()}
    step, short, long, together = cost.values()
    for name, one in cost.items():
        table.add(f"loops: {name}", one, "ms of CPU")
    table.add("loops: an item against a step", long / step, "x", f"at most {MOST:g}x", long / step <= MOST)
    table.add("loops: the same, 32 together", together / step, "x", f"at most {MOST:g}x", together / step <= MOST)
    table.add(
        f"loops: {items:,} items against {SHORT:,}", long / short, "x", f"flat: at most {FLAT:g}x", long / short <= FLAT
    )
    ends = median(one for _, one in found[f"an item of {items:,}"])
    table.add("loops: last tenth against first", ends, "x", f"flat: at most {FLAT:g}x", ends <= FLAT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    from bench.run import Table

    table = Table()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        measure(table, Path(folder), given.rounds, given.items)
    table.show()
    if given.json:
        print(json.dumps(table.rows))
    return int(any(row["met"] is False for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())

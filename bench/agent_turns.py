"""The cost of a turn of a node that calls tools: a reply, a tool call and its result, 50 times in one conversation.

    python -m bench.agent_turns [--rounds 5] [--json] [--folder FOLDER]

Model and tool answer at once, so that only Cuebook is measured: the conversation, the request that is built for the model, and
the journal. A turn makes two commits, one for the reply and one for the result; next to it is a raw SQLite commit of one row of
200 bytes. What Cuebook adds to the commits is measured without waiting for the disk. `the first turns` and `the last turns` are
medians over a fifth of the conversation each. Of several rounds, the best counts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.floor import raw_commits
from bench.run import Table
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.graph.run.interpret import interpret
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, Program, ReadSource
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.outcomes import Source, ToolResult
from cuebook.kernel.ports import Call
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.models import ModelPerformer, Providers
from cuebook.performers.models.model import Request
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.stores.sqlite import SqliteStore

TURNS = 50
COMMITS = 2
"""Commits of a turn."""
MOST = 2.0
"""Milliseconds that a turn may cost in addition to its commits."""
GROWTH = 0.5
"""Milliseconds by which the last turns may be slower than the first."""
RESULT = "A line of a result, as a tool returns it.\n" * 50
FLOW = json.dumps(
    {
        "id": "bench", "name": "Bench", "entry": "work", "edges": [],
        "nodes": {"work": {"name": "Work", "instruction": "Read it all.", "skills": ["s"], "max_turns": TURNS + 1}},
    }
)  # fmt: skip


class Shelf:
    async def perform(self, effect: ReadSource, call: Call) -> Source:
        tool = {"name": "look", "description": "Looks", "parameters": {"type": "object"}, "reads_only": True}
        skill = {"id": "s", "tools": [tool]}
        return Source(Text(json.dumps(skill if effect.source == "skill:s" else [])))


class Look:
    async def perform(self, effect: CallTool, call: Call) -> ToolResult:
        return ToolResult(RESULT)


async def turns(path: Path, synchronous: Literal["FULL", "NORMAL"] = "FULL") -> list[float]:
    """Seconds of each turn: from one model call to the next."""
    marks: list[float] = []

    def say(request: Request) -> Says:
        marks.append(time.perf_counter())
        number = len(marks)
        return Says("Done.") if number > TURNS else Says("Next.", (ToolCall(str(number), "look", {"at": number}),))

    workflow = parse(FLOW, "bench.json")

    def programs(row: RunRow, text: str, inputs: Any, options: Any) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(workflow, inputs, {}, state)

    store = SqliteStore(path, synchronous=synchronous)
    model = ModelPerformer(Providers.only(ScriptedModel(say)))
    engine = Engine(store, programs, {AskModel: model, CallTool: Look(), ReadSource: Shelf()})
    now = time.time()
    row = RunRow(
        id="run", tenant="bench", owner="bench", dialect="graph", interpreter=2, playbook="bench", name="run",
        created=now, updated=now,
    )  # fmt: skip
    await engine.start(row, "bench", {}, Settings(model="test/model"))
    row = await engine.drive("run")
    assert row.status == "completed", row.error
    await engine.close()
    await store.close()
    return [after - before for before, after in itertools.pairwise(marks)]


def measured(path: Path, synchronous: Literal["FULL", "NORMAL"]) -> tuple[float, float, float]:
    """Milliseconds of a turn: the median of all, of the first fifth and of the last fifth."""
    one = [seconds * 1000 for seconds in asyncio.run(turns(path, synchronous))]
    fifth = TURNS // 5
    return median(one), median(one[1 : 1 + fifth]), median(one[-fifth:])


def measure(table: Table, rounds: int, folder: Path) -> None:
    floors: list[float] = []
    durable: list[float] = []
    bare: list[tuple[float, float, float]] = []
    for _ in range(max(rounds, 3)):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            floors.append(raw_commits(Path(place, "floor.db"), 100) / 100 * 1000)
            durable.append(measured(Path(place, "full.db"), "FULL")[0])
            bare.append(measured(Path(place, "normal.db"), "NORMAL"))
    # Other work on the machine can only add to the cost, so the best round counts.
    table.add("a raw SQLite commit, fsync", min(floors), "ms/commit")
    table.add(f"a turn of a node with {TURNS} turns, fsync ({COMMITS} commits)", min(durable), "ms/turn")
    turn, first, last = (min(one[part] for one in bare) for part in range(3))
    table.add("the same without waiting for the disk", turn, "ms/turn", f"under {MOST:g} ms", turn < MOST)
    table.add("  the first turns", first, "ms/turn")
    table.add("  the last turns", last, "ms/turn")
    grown = last - first
    table.add("  what the last turns cost more", grown, "ms/turn", f"flat: under {GROWTH:g} ms", grown < GROWTH)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    options.add_argument("--folder", type=Path, default=None, help="folder for the databases; default: a temporary one")
    given = options.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measure(table, given.rounds, Path(folder))
    if given.json:
        print(json.dumps(table.rows))
        return
    table.show()
    sys.exit(any(row["met"] is False for row in table.rows))


if __name__ == "__main__":
    main()

"""The cost of a workflow node, next to the figures of the format's reference executor.

    python -m bench.graph [--rounds 5] [--json]

The model replies at once, so that only the executor is measured, including its journal. `no fsync` keeps the journal in
memory, or in SQLite without waiting for the disk; `fsync` is the ordinary store. Both are compared with raw SQLite commits
in the same mode: one row of 200 bytes and a commit, with no engine at all.
A node's cost is the time between two model calls, as the median over a range of nodes.

The reference executor (TypeScript, no journal, mock model without I/O) was measured on a 2-core machine; its figures are
constants here, because its toolchain is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from bench.floor import raw_commits
from bench.run import Table
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.graph.run.interpret import interpret
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.outcomes import Reply, Usage
from cuebook.kernel.ports import Call, Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore

REFERENCE = {
    "100 linear": "20-34",
    "1000 linear": "290-450",
    "1000 conditional": "350-370",
    "1000 with eval": "360-390",
    "loop of 1002 visits": "11-13",
}
"""Microseconds per node of the reference executor."""
REFERENCE_AT = {75: 25, 475: 484, 975: 1237}
"""Microseconds between two model calls in its 1000-node run, near these nodes."""

SYNCHRONOUS: dict[str, Literal["FULL", "NORMAL"]] = {"fsync": "FULL", "no fsync": "NORMAL"}
MOST = {"fsync": 2.0, "no fsync": 5.0}
"""The most that a node may cost, in raw commits."""
USED = Usage(10, 5, cost=0.0, origin="reported")


class Instant:
    """A model that replies at once, and records when it was called for a node."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        if effect.schema is not None:
            choice = effect.schema["properties"]["choice"]["enum"][0]
            return Reply(Text(json.dumps({"choice": choice, "reason": "so"})), model="bench/instant", usage=USED)
        self.marks.append(time.perf_counter())
        return Reply(Text('{"ok":true,"n":1}'), model="bench/instant", usage=USED)


class Ran(msgspec.Struct):
    nodes: int
    seconds: float
    costs: list[float]
    """Seconds between two model calls."""

    def near(self, node: int, width: int = 20) -> float:
        """Microseconds per node, near this node."""
        return median(self.costs[max(0, node - width) : node + width]) * 1e6

    @property
    def typical(self) -> float:
        return median(self.costs) * 1e6


def workflow(nodes: int, kind: str = "linear") -> str:
    names = [f"n{number}" for number in range(nodes)]
    node: dict[str, Any] = {"name": "Node", "instruction": "Do the thing."}
    if kind == "eval":
        node["eval"] = [{"name": "ok", "kind": "value", "rule": {"output_matches": [{"path": "ok", "equals": True}]}}]
    edges: list[dict[str, Any]] = [{"from": one, "to": other} for one, other in itertools.pairwise(names)]
    if kind == "conditional":
        edges = [{**edge, "when": "it is so"} for edge in edges]
    if kind == "loop":
        edges = [{"from": "n0", "to": "n1"}, {"from": "n1", "to": "n0", "max_iterations": 500}]
    made = {"id": "bench", "name": "Bench", "entry": "n0", "nodes": dict.fromkeys(names, node), "edges": edges}
    return json.dumps(made)


async def run(store: Store, text: str) -> Ran:
    """One run of a workflow, from its claim to its end, after a short run to warm up."""
    model = Instant()
    documents: dict[str, Workflow] = {"warm": parse(workflow(30), "warm.json"), "run": parse(text, "run.json")}

    def programs(row: RunRow, text: str, inputs: Any, options: Any) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(documents[row.name], inputs, {"max_steps": 1_000_000}, state)

    engine = Engine(store, programs, {AskModel: model})
    seconds = 0.0
    for name in documents:
        model.marks.clear()
        now = time.time()
        row = RunRow(
            id=name, tenant="bench", owner="bench", dialect="graph", interpreter=1, playbook="bench", name=name,
            created=now, updated=now,
        )  # fmt: skip
        await engine.start(row, "bench", {}, Settings())
        began = time.perf_counter()
        row = await engine.drive(name)
        seconds = time.perf_counter() - began
        assert row.status == "completed", row.error
    await engine.close()
    await store.close()
    return Ran(len(model.marks), seconds, [b - a for a, b in itertools.pairwise(model.marks)])


def ran(kind: str, text: str, folder: Path) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place, "store.db")
        if kind == "memory":
            return asyncio.run(run(MemoryStore(), text))
        return asyncio.run(run(SqliteStore(path, synchronous=SYNCHRONOUS[kind]), text))


def best(rounds: int, kind: str, text: str, folder: Path) -> Ran:
    """The round with the lowest median cost, since other work on the machine can only add to the cost."""
    return min((ran(kind, text, folder) for _ in range(rounds)), key=lambda one: one.typical)


def beside_raw(rounds: int, kind: str, folder: Path) -> tuple[float, float, float]:
    """Microseconds for a node and for a raw commit, and their ratio: medians, measured alternately."""
    nodes, floors, ratios = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            floors.append(raw_commits(Path(place, "floor.db"), 200, SYNCHRONOUS[kind]) / 200 * 1e6)
        nodes.append(ran(kind, workflow(200), folder).typical)
        ratios.append(nodes[-1] / floors[-1])
    return median(nodes), median(floors), median(ratios)


def measure(table: Table, rounds: int, folder: Path) -> None:
    for nodes in (100, 1000):
        _say(f"{nodes} nodes in a row ...")
        one = best(rounds * (1000 // nodes), "memory", workflow(nodes), folder)  # short runs are easily disturbed
        reference = f"the reference: {REFERENCE[f'{nodes} linear']}"
        table.add(f"{nodes} linear, no fsync (memory)", one.typical, "µs/node", "at most 100 µs", one.typical <= 100)
        table.add(
            f"{nodes} linear, no fsync (SQLite)",
            best(rounds, "no fsync", workflow(nodes), folder).typical,
            "µs/node",
            reference,
        )
        if nodes == 1000:
            early, late = one.near(20), one.near(975)
            table.add("  near node 10", early, "µs/node", f"the reference: {REFERENCE_AT[75]} near 75")
            table.add("  near node 1000", late, "µs/node", f"the reference: {REFERENCE_AT[975]} near 975")
            table.add("  node 1000 against node 10", late / early, "x", "flat: at most 1.25x", late <= 1.25 * early)
    for what, nodes, kind in (("conditional", 1000, "conditional"), ("with eval", 1000, "eval")):
        _say(f"{nodes} nodes {what} ...")
        cost = best(rounds, "memory", workflow(nodes, kind), folder).typical
        table.add(f"1000 {what}, no fsync (memory)", cost, "µs/node", f"the reference: {REFERENCE[f'1000 {what}']}")
    loop = best(rounds, "memory", workflow(2, "loop"), folder)
    table.add(f"loop of {loop.nodes} visits, no fsync (memory)", loop.typical, "µs/visit", "the reference: 11-13")
    for kind in SYNCHRONOUS:
        _say(f"{kind}, against raw commits ...")
        node, floor, ratio = beside_raw(rounds, kind, folder)
        table.add(f"a raw SQLite commit, {kind}", floor, "µs/commit")
        table.add(f"a node of 200 on SQLite, {kind}", node, "µs/node")
        most = MOST[kind]
        table.add("  against the raw commit", ratio, "x", f"at most {most:g}x", ratio <= most)
    _say("10,000 nodes ...")
    text = workflow(10_000)
    began = time.perf_counter()
    parse(text, "large.json")
    table.add("10,000 nodes: parsed and checked", (time.perf_counter() - began) * 1000, "ms")
    large = best(rounds, "memory", text, folder)
    table.add("10,000 nodes: run", large.seconds, "s", "completes", large.nodes == 10_000)
    last = large.near(9_790, 200)
    table.add("  near node 10,000", last, "µs/node", "at most 100 µs", last <= 100)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--folder", type=Path, default=None, help="where stores are created; a temporary folder by default"
    )
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    gc.freeze()  # as the command line does
    gc.set_threshold(10_000, 20, 20)
    table = Table()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        measure(table, chosen.rounds, Path(folder))
    table.show()
    print("The reference figures were measured on another machine, for an executor without a journal.")
    if chosen.json:
        print(json.dumps(table.rows))


if __name__ == "__main__":
    main()

"""Journals of workflow runs, recorded by each version of the interpreter and kept: later versions must continue them.

`python -m tests.dialects.graph.run.journals` records those of the current version into a folder named after it. A change of the
interpreter's version is preceded by that; the files are not edited afterwards.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects.graph import Graph
from cuebook.kernel.context import ToolCall
from cuebook.kernel.run import RunRow
from cuebook.performers.models.model import Tokens
from cuebook.performers.models.scripted import Says
from cuebook.stores.memory import MemoryStore
from tests.dialects.graph.harness import GraphHarness, tool
from tests.kernel.journals import keep

HERE = Path(__file__).parent

FLOW = json.dumps(
    {
        "id": "incident", "name": "Incident", "entry": "look",
        "nodes": {
            "look": {
                "name": "Look", "instruction": "Read the log.",
                "output": {"type": "object", "properties": {"severity": {"enum": ["high", "low"]}}, "required": ["severity"]},
                "eval": [{"name": "looked", "kind": "function", "rule": {"any_tool_called": ["Read"]}}],
                "retry": {"max": 1},
            },
            "fix": {"name": "Fix", "instruction": "Fix it.", "max_turns": 2},
            "note": {"name": "Note", "instruction": "Write a note."},
        },
        "edges": [
            {"from": "look", "to": "fix", "when": "it is high"},
            {"from": "look", "to": "note", "when": "it is low"},
            {"from": "fix", "to": "note"},
        ],
        "x_cuebook": {"nodes": {"fix": {"approval": True}}},
    }
)  # fmt: skip
"""A node that is retried, a route that a model chooses, and a node that is approved before it runs."""

FAN_OUT = json.dumps(
    {
        "id": "checks", "name": "Checks", "entry": "begin",
        "nodes": {
            "begin": {"name": "Begin", "instruction": "Begin."},
            "style": {"name": "Style", "instruction": "Check the style."},
            "tests": {"name": "Tests", "instruction": "Run the tests."},
            "report": {"name": "Report", "instruction": "Report."},
        },
        "edges": [
            {"from": "begin", "to": "style"}, {"from": "style", "to": "tests"}, {"from": "tests", "to": "report"},
        ],
        "x_cuebook": {
            "fan_out": [{"node": "begin", "to": ["style", "tests"], "join": "report"}],
            "nodes": {"tests": {"approval": True}},
        },
    }
)  # fmt: skip
"""Two branches. One of them waits for an approval while the other ends."""

TASKS = json.dumps(
    {
        "id": "tasks", "name": "Tasks", "entry": "lead",
        "nodes": {
            "lead": {"name": "Lead", "instruction": "Have it looked at.", "max_turns": 30},
            "end": {"name": "End", "instruction": "End."},
        },
        "edges": [{"from": "lead", "to": "end"}],
        "x_cuebook": {"nodes": {"lead": {"budget": {"tokens": 3_000}}, "end": {"approval": True}}},
    }
)  # fmt: skip
"""Two sub-agents at once, each of which uses a good part of the node's budget."""

READ = {"calls": [{"tool": "Read", "input": {"path": "log"}}]}
LOOKED: list[Any] = [{"severity": "high"}, {**READ, "data": {"severity": "high"}}]


TASK = {"tool": "Task", "input": {"prompt": "Look.", "max_turns": 5}}
SUB_AGENTS: list[Any] = [
    *2 * [Says("", (ToolCall("1", "Read", {"path": "log"}),), tokens=Tokens(1_000, 100))],
    *2 * [Says("It is full.", tokens=Tokens(1_000, 100))],
]


def harness_on(store: Any, **run: Any) -> GraphHarness:
    """A harness that looks as it did when the runs were recorded. `run` has the replies of other nodes."""
    return GraphHarness(
        store,
        run={"look": LOOKED, "lead": {"calls": [TASK, TASK], "then": "Seen."}, **run},
        route={"look": {"choice": "fix"}},
        ask=list(SUB_AGENTS),
        tools={"Read": "The disk is full."},
        texts={"tools:Read": tool("Read")},
    )


async def _waiting(harness: GraphHarness) -> RunRow:
    return await harness.run(FLOW)


async def _paused(harness: GraphHarness) -> RunRow:
    return await harness.paused(FLOW, {}, "look")


async def _failed(harness: GraphHarness) -> RunRow:
    row = await harness.run(FLOW)
    (wait,) = await harness.store.waits(run=row.id)
    await harness.service.decide(wait.id, "approve")
    return await harness.service.drive(row.id)


async def _branches(harness: GraphHarness) -> RunRow:
    return await harness.run(FAN_OUT)


async def _tasks(harness: GraphHarness) -> RunRow:
    return await harness.run(TASKS)


SHAPES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "waiting": (_waiting, {}, "awaiting_approval"),
    "paused": (_paused, {}, "paused"),
    "completed": (_failed, {}, "completed"),
    "failed": (_failed, {"fix": {"fails": "the model is gone"}}, "failed"),
    "branches-waiting": (_branches, {}, "awaiting_approval"),
    **({"tasks-waiting": (_tasks, {}, "awaiting_approval")} if Graph.interpreter > 1 else {}),
}


async def record(folder: Path) -> None:
    for name, (make, replies, status) in SHAPES.items():
        store = MemoryStore()
        harness = harness_on(store, **replies)
        row = await make(harness)
        assert row.status == status, (name, row.status, row.error)
        kept = await keep(store, harness.service._engine, row.id)
        (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
        await harness.service.close()


def main() -> None:
    folder = HERE / f"interpreter-{Graph.interpreter}"
    folder.mkdir()
    asyncio.run(record(folder))

"""A process that drives a workflow and kills itself at its N-th write: `crash_process.py FOLDER RUN WHEN N`.

The workflow has one of each: tools, a judge, attempts, a routing question, a loop, branches, and checkpoints in between.
What its model says depends on nothing but the place that asks, so that it says the same whoever asks it again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from cuebook.dialects.graph.run import state
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply, Source, Usage
from cuebook.kernel.ports import Call, Store
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.dialects.graph.harness import where
from tests.kernel.engine.crash_process import die_at
from tests.support.programs import LineTool

state.FIRST_CHECKPOINT = 2

EVAL = [
    {"name": "filled", "kind": "value", "rule": {"output_required": ["x"]}},
    {"name": "fair", "kind": "judge", "rubric": "Is it fair?"},
]
FLOW = json.dumps(
    {
        "id": "crash",
        "name": "Crash",
        "entry": "draft",
        "nodes": {
            "draft": {
                "name": "Draft",
                "instruction": "./draft.md",
                "skills": ["pen"],
                "eval": EVAL,
                "retry": {"max": 1, "instruction": {"auto": True}},
            },
            "check": {"name": "Check", "instruction": "Check it."},
            "start": {"name": "Start", "instruction": "Begin."},
            "left": {"name": "Left", "instruction": "Look left.", "skills": ["pen"]},
            "right": {"name": "Right", "instruction": "Look right.", "skills": ["pen"]},
            "end": {"name": "End", "instruction": "End it."},
        },
        "edges": [
            {"from": "draft", "to": "check"},
            {"from": "check", "to": "check", "when": "not sure", "max_iterations": 1},
            {"from": "check", "to": "start", "when": "sure"},
            {"from": "start", "to": "left"},
            {"from": "left", "to": "right"},
            {"from": "right", "to": "end"},
        ],
        "x_cuebook": {"fan_out": [{"node": "start", "to": ["left", "right"], "join": "end"}]},
    }
)


class PlaceModel:
    """Gives a reply that depends only on the place of the call."""

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        node, aside = where(call)
        text = ""
        calls: tuple[ToolCall, ...] = ()
        if aside:
            text = "VERDICT: yes\nREASONING: It is." if "You judge" in effect.prompt else "I forgot the x."
        elif "Which of these" in effect.prompt:
            text = json.dumps({"choice": "check" if "#1." in call.key else "start", "reason": "so"})
        elif node in ("draft", "left", "right") and effect.context.block is not None and effect.prompt:
            attempt = 2 if "Previous attempt" in effect.prompt else 1
            calls = (ToolCall("1", "append", {"line": f"{node} {attempt}"}),)
        else:
            again = any("Previous attempt" in str(block.text) for block in effect.context if block.role == "user")
            text = json.dumps({"x": node} if node != "draft" or again else {"y": node})
        usage = Usage(10, 5, cost=0.001, origin="reported")
        return Reply(Text(text), calls, model="test/place", usage=usage, finish="tool_calls" if calls else "stop")


class Shelf:
    async def perform(self, effect: ReadSource, call: Call) -> Source:
        pen = {"name": "append", "description": "Writes a line", "parameters": {"type": "object"}}
        found: dict[str, Any] = {
            "file:./draft.md": "Draft it.",
            "skill:pen": {"id": "pen", "name": "Pen", "instruction": "Write lines.", "tools": [pen]},
        }
        said = found.get(effect.source, [])
        return Source(Text(said if isinstance(said, str) else json.dumps(said)))


def service_on(store: Store, folder: Path) -> Service:
    performers: dict[type[Effect], Any] = {
        AskModel: PlaceModel(),
        CallTool: LineTool(folder / "lines"),
        ReadSource: Shelf(),
    }
    return Service(store, performers, listen_every=0.02)


async def main(folder: Path, run: str) -> None:
    store = SqliteStore(folder / "store.db")
    engine: Engine = service_on(store, folder)._engine
    told = (folder / "told").open("a", buffering=1)
    engine.observe(lambda event: print(event.seq, file=told) if isinstance(event, Entry) else None)
    await engine.drive(run)
    await engine.close()
    await store.close()


if __name__ == "__main__":
    die_at(sys.argv[3], int(sys.argv[4]), False)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

"""A process that drives a node with two sub-agents and kills itself at its N-th write: `task_process.py FOLDER RUN WHEN N`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource
from cuebook.kernel.outcomes import Reply, Source, Usage
from cuebook.kernel.ports import Call, Store
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.kernel.engine.crash_process import die_at
from tests.support.programs import LineTool

LINES = 3
FLOW = json.dumps(
    {
        "id": "tasks", "name": "Tasks", "entry": "lead", "edges": [],
        "nodes": {"lead": {"name": "Lead", "instruction": "Have two texts written.", "max_turns": 30}},
    }
)  # fmt: skip


class Lead:
    """Gives out two tasks; each sub-agent writes its lines one by one. What it says depends only on what it is shown."""

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        blocks = [str(block.text) for block in effect.context]
        turns = sum(block.role == "assistant" for block in effect.context)
        calls: tuple[ToolCall, ...] = ()
        if not any("You are a sub-agent" in text for text in blocks):
            if not turns:
                calls = tuple(
                    ToolCall(name, "Task", {"prompt": f"Write {name}.", "max_turns": 8}) for name in ("a", "b")
                )
            text = json.dumps({"done": [str(block.text) for block in effect.context if block.role == "tool"]})
        else:
            prompt = effect.prompt or next(str(block.text) for block in effect.context if block.role == "user")
            name = prompt.split()[1].rstrip(".")
            if turns < LINES:
                calls = (ToolCall(f"{name}{turns}", "Bash", {"line": f"{name}{turns}"}),)
            text = f"Wrote {name}."
        usage = Usage(10, 5, cost=0.001, origin="reported")
        return Reply(Text("" if calls else text), calls, "test/lead", "tool_calls" if calls else "stop", usage)


class Shelf:
    async def perform(self, effect: ReadSource, call: Call) -> Source:
        bash = {"name": "Bash", "description": "Writes a line", "parameters": {"type": "object"}}
        return Source(Text(json.dumps([bash] if effect.source == "tools:Bash" else [])))


def service_on(store: Store, folder: Path) -> Service:
    performers: dict[type[Effect], Any] = {
        AskModel: Lead(),
        CallTool: LineTool(folder / "lines"),
        ReadSource: Shelf(),
    }
    return Service(store, performers, listen_every=0.02)


async def main(folder: Path, run: str) -> None:
    store = SqliteStore(folder / "store.db")
    service = service_on(store, folder)
    await service.drive(run)
    await service.close()
    await store.close()


if __name__ == "__main__":
    die_at(sys.argv[3], int(sys.argv[4]), False)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

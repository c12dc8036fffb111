"""Another Cuebook server, with its tools over a real service: `python -m ...cuebook_server FOLDER [http]`.

Its playbooks use three dialects: one runs without questions, one asks, one pauses, and one needs approval.
"""

# No `from __future__ import annotations`: the SDK reads the annotations.
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.registry import WATCHES
from cuebook.kernel.effects import AskModel
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.runs.views import RunView
from cuebook.service.service import Service
from cuebook.testing import ScriptedModel, model_performer
from tests.dialects.pipeline.harness import PipelineHarness

DOUBLE = """# Numbers
Computes.

## Double($n: int) -> int
### Triggers
- T1:BGN At the beginning
### Steps
- 01:CND If $n > 100
  - 01.01:EXE $n = 100
- 02:RET $n * 2
"""
GREET = """# Greet

## INPUTS

- `name` (string): Who

## STEP 1: Ask

@elicit(select, "How is {{name}} greeted?", "warmly", "briefly")

Say how. @output(how)

## STEP 2: Greet

Greet {{name}} {{how}}. @output(greeting)
"""
DEPLOY = """id: deploy
name: Deploy
args:
  version: {type: string, description: What}
steps:
  - id: ship
    name: Ship it
    command: cli echo shipped ${version}
    approval: required
"""
BOOKS = {
    "numbers/double.pbasm": ("Double", "Doubles a number.", DOUBLE, ["n"]),
    "greet.md": ("greet somebody", "Greets.", GREET, ["name"]),
    "paused.md": ("Paused", "Stops after its first step.", GREET.replace("@elicit", "Not elicit"), ["name"]),
    "deploy.yml": ("Deploy", "Ships a version.", DEPLOY, ["version"]),
}

server = MCPServer("cuebook")
folder = Path(sys.argv[1])
there = PipelineHarness(folder)
there.service._engine.performers = {
    **there.service._engine.performers,
    AskModel: model_performer(ScriptedModel(["Hello, Ada."], cycle=True)),
}
service = Service(
    there.store,
    there.service._engine.performers,
    gate=there.gate,
    redactor=there.redactor,
    today=there._today,
    key_file=folder / "key",
    watches=WATCHES,
)


@server.tool()
def list_playbooks() -> dict[str, Any]:
    """What can be run here."""
    return {
        "playbooks": [
            {"playbook_id": id, "name": name, "description": about, "inputs": [{"name": one} for one in inputs]}
            for id, (name, about, _, inputs) in BOOKS.items()
        ]
    }


@server.tool()
async def execute_playbook(
    playbook_id: str, context: Context, input_values: dict[str, Any] | None = None, client_key: str = ""
) -> dict[str, Any]:
    """Runs a playbook to its end, or until it needs a person."""
    settings = Settings(model="test/scripted", breakpoints=("1",) if playbook_id == "paused.md" else ())
    row = await service.start(
        Playbook.from_text(BOOKS[playbook_id][2], playbook_id), input_values or {}, settings, key=client_key
    )
    with (folder / "asked").open("a") as file:
        sent = context.headers.get("authorization", "") if context.headers else ""
        file.write(f"{playbook_id} {row.id} {client_key} {sent}\n")
    return await execution_of(await service.drive(row.id))


@server.tool()
async def get_playbook_execution(execution_id: str) -> dict[str, Any]:
    """The status of an execution."""
    row = await service.get(execution_id)
    return await execution_of(row if row.status in ENDED else await service.drive(execution_id))


@server.tool()
async def respond_to_elicitation(execution_id: str, response: str) -> dict[str, Any]:
    """Answers the question of an execution."""
    [wait] = await there.store.waits(run=execution_id)
    await service.answer(wait.id, response)
    return await execution_of(await service.drive(execution_id))


@server.tool()
async def resume_playbook_execution(execution_id: str) -> dict[str, Any]:
    """Continues after a breakpoint."""
    await service.resume(execution_id)
    return await execution_of(await service.drive(execution_id))


async def execution_of(row: RunRow) -> dict[str, Any]:
    view = await service.view(row.id)
    about: dict[str, Any] = {"execution_id": row.id, "status": row.status, "reason": row.reason}
    if row.status == "completed":
        about["result"] = result_of(view)
    if row.error is not None:
        about["error"] = {"code": row.error.code, "message": row.error.message}
    if row.status == "awaiting_input":
        [wait] = view.waits
        about["elicitation"] = {"type": wait.type, "prompt": wait.prompt, "options": list(wait.options)}
        about["next"] = "respond_to_elicitation"
    if row.status == "awaiting_approval":
        about["link"] = f"http://127.0.0.1:8420/runs/{row.id}"
    return about


def result_of(view: RunView) -> Any:
    """The result for the caller: the value of a program, or the output of the last step."""
    if isinstance(view.result, dict) and "value" in view.result:
        return view.result["value"]
    return [str(text) for text in view.outputs.values()][-1]


def on_the_network() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    on_the_network() if "http" in sys.argv else server.run()

"""Background jobs of a run: they end when it waits, when it ends and when its process is killed; their output stays."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import ToolCall
from cuebook.kernel.run import Settings
from cuebook.performers.models.model import Request
from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.performers.agent_tools.test_jobs import HOLDS, is_held
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.programs import eventually
from tests.support.runtime import RuntimeHarness

GRAPH = """\
id: serve
name: Serve
entry: work
nodes:
  work: {name: Work, instruction: Start the server and look at it.}
edges: []
"""
POLICY = 'from_outside = "allow"\n[commands]\nallow = ["*"]\n[files]\nallow = ["*"]\n[tools]\nallow = ["*"]\n'
ASKING = POLICY.replace('[tools]\nallow = ["*"]', '[tools]\nallow = ["*"]\nask = ["Write"]')
JOB = re.compile(r"bash_[0-9a-f]{8}")


def calls(tool: str, **arguments: Any) -> Says:
    return Says("", calls=(ToolCall(f"call-{tool}", tool, arguments),))


def job_in(request: Request) -> str:
    found = JOB.search("".join(turn.text for turn in request.messages))
    assert found is not None
    return found[0]


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch, ASKING)
    yield made
    await made.close()


async def start(runtime: RuntimeHarness, says: Any) -> str:
    runtime.models = {"test": ScriptedModel(says)}
    runtime.open()
    settings = Settings(model="test/one", workspace=runtime.wiring.factory.workspace.path)
    return (await runtime.service.start(Playbook.from_text(GRAPH, "serve.yml"), {}, settings)).id


async def test_jobs_end_at_a_question_and_the_model_learns_it_afterwards(runtime: RuntimeHarness) -> None:
    told: list[str] = []

    def says(request: Request) -> Says | str:
        turns = sum(1 for turn in request.messages if turn.role == "assistant")
        match turns:
            case 0:
                return calls("Bash", command=HOLDS, run_in_background=True)
            case 1:
                return calls("BashOutput", bash_id=job_in(request), wait=10)
            case 2:
                assert is_held(runtime.work / "lock")
                return calls("Write", file_path="note.txt", content="it serves")
            case 3:
                return calls("BashOutput", bash_id=job_in(request))
        told.extend(turn.text for turn in request.messages if turn.role == "tool")
        return '{"done": true}'

    run = await start(runtime, says)
    row = await runtime.service.drive(run)
    assert row.status == "awaiting_approval"
    assert not is_held(runtime.work / "lock")
    (wait,) = await runtime.service.waits(run)
    await runtime.service.decide(wait.id, "approve")
    row = await runtime.service.drive(run)
    assert row.status == "completed", row.error
    assert "begun" in told[1]
    assert "running for" in told[1]
    assert "ended: The run waited" in told[3]


async def test_jobs_end_with_the_run(runtime: RuntimeHarness) -> None:
    def says(request: Request) -> Says | str:
        if all(turn.role != "tool" for turn in request.messages):
            return calls("Bash", command=HOLDS, run_in_background=True)
        return '{"done": true}'

    run = await start(runtime, says)
    assert (await runtime.service.drive(run)).status == "completed"
    assert not is_held(runtime.work / "lock")
    view = await runtime.service.view(run)
    assert [(call.tool, call.status) for call in view.calls] == [("Bash", "completed")]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


async def test_jobs_end_when_their_process_is_killed(tmp_path: Path, server: ModelServer) -> None:
    cli = CommandLine(tmp_path, server.url)
    (cli.config.parent / "policy.toml").write_text(POLICY)
    flow, lock = cli.write("serve.yml", GRAPH), cli.work / "lock"
    server.replies = [{"tool": "Bash", "arguments": {"command": HOLDS, "run_in_background": True}}, "Never sent."]
    server.hold_at = 2
    process = cli.begin("run", flow)
    await asyncio.to_thread(server.holding.wait, 60)

    async def holds() -> bool:
        outputs = [path.read_bytes() for path in cli.home.rglob("bash_*.out")]
        return any(b"begun" in one for one in outputs) and is_held(lock)

    await eventually(holds, 60)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate)
    server.release()

    def script(request: dict[str, Any]) -> Any:
        said = [str(message["content"]) for message in request["messages"] if message["role"] == "tool"]
        if len(said) == 1:
            found = JOB.search(said[0])
            assert found is not None
            return {"tool": "BashOutput", "arguments": {"bash_id": found[0]}}
        return '{"done": true}'

    server.script = script
    (listed,) = (await asyncio.to_thread(cli.call, "runs", "--json")).object
    ran = await asyncio.to_thread(cli.call, "resume", listed["run"], "--json")
    assert ran.code == 0, ran.err
    assert not is_held(lock)
    said = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    assert "ended:" in said[1]
    assert "begun" in said[1]
    assert len([one for one in ran.object["calls"] if one["tool"] == "Bash"]) == 1

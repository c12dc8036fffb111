"""One real agent, end to end: `make real-agent` installs opencode from its package and points it at a scripted model.

Not part of `make test`, because it downloads the agent.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.performers.agents.harness import AgentHarness
from tests.support.model_server import ModelServer

PROGRAM = os.environ.get("OPENCODE") or shutil.which("opencode") or "opencode"
FOLDER = Path(PROGRAM).resolve().parents[1]


class Script:
    """The model behind the agent: it calls tools in turn, and repeats a call that was refused."""

    def __init__(self, *calls: Any) -> None:
        self._calls = list(calls)

    def __call__(self, request: dict[str, Any]) -> Any:
        if not request.get("tools"):
            return "A title"
        return self._calls.pop(0) if self._calls else "All done."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModelServer) -> AsyncIterator[AgentHarness]:
    made = AgentHarness(tmp_path, monkeypatch)
    # By its name, because 127.0.0.1 is the agent itself inside its sandbox.
    place = server.url.removeprefix("http://").removesuffix("/v1").replace("127.0.0.1", "localhost")
    made.rule(f'[egress]\nallow = ["{place}"]\n')
    config = {
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": {"baseURL": f"http://{place}/v1", "apiKey": "none"},
                "models": {"one": {"name": "One", "tool_call": True}},
            }
        },
        "model": "scripted/one",
        "small_model": "scripted/one",
        "permission": {"edit": "ask", "bash": "ask", "webfetch": "deny"},
        "autoupdate": False,
        "share": "disabled",
    }
    made.configure(
        command=[PROGRAM, "acp"],
        readable=[str(FOLDER)],
        hosts=[place],
        seconds=120,
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    )
    yield made
    await made.close()


async def test_an_edit_and_a_command_are_asked_denied_asked_again_and_approved(
    harness: AgentHarness, server: ModelServer
) -> None:
    write = {"tool": "write", "arguments": {"filePath": str(harness.work / "made.txt"), "content": "by the agent\n"}}
    run_it = {"tool": "bash", "arguments": {"command": "echo ran > ran.txt", "description": "Leaves a mark"}}
    server.script = Script(write, write, "Written.", run_it, run_it)
    harness.open()
    text = "# Task\n\n## STEP 1: Edit\n\nWrite made.txt.\n\n## STEP 2: Run\n\nRun the command.\n"
    run = await harness.do(text=text)
    for name, shown in (("made.txt", "+by the agent"), ("ran.txt", "echo ran")):
        (wait,) = await harness.waits(run)
        assert shown in str(wait.details["preview"])
        run = await harness.decide(run, "deny", reason="not yet")
        assert (run.status, harness.made(name)) == ("failed", False)  # this agent ends its turn when it is refused
        await harness.service.retry(run.id)
        run = await harness.service.drive(run.id)
        run = await harness.decide(run, "approve")
        assert harness.made(name)
    assert (run.status, await harness.said(run)) == ("completed", "All done.")
    assert (harness.work / "made.txt").read_text() == "by the agent\n"
    assert {"edit", "execute"} <= {one["kind"] for one in await harness.notes(run, "agent_call")}


async def test_its_session_is_continued_by_another_process_after_the_approval(
    harness: AgentHarness, server: ModelServer
) -> None:
    write = {"tool": "write", "arguments": {"filePath": str(harness.work / "made.txt"), "content": "by the agent\n"}}
    server.script = Script(write, write)
    harness.open()
    run = await harness.do(text="# Task\n\n## STEP 1: Edit\n\nWrite made.txt.\n")
    await harness.reopen()
    run = await harness.decide(run, "approve")
    assert (run.status, harness.made(), len(await harness.asked(run))) == ("completed", True, 1)

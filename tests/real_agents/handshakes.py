"""The built-in agents from their packages, as far as they go without an account: started, asked for a session, and not signed in.

`make real-agent` installs them. They have no network here, so no provider sees a request.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.performers.agents.catalogue import BUILT_IN
from tests.performers.agents.harness import AgentHarness

KEY = "sk-handshake-0123456789abcdef0123456789abcdef"
"""A key that no provider knows."""
SIGNED_OUT = ["claude-code", "codex", "gemini"]
FOLDER = os.environ.get("AGENTS", "")
STEP = "# Task\n\n## STEP 1: Greet\n\nSay hello.\n"


class BuiltInHarness(AgentHarness):
    """Runs steps with a built-in agent, started by its own command."""

    def configure(self, mode: str = "", **fields: Any) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in {"seconds": 90, **fields}.items()]
        (self.config / "cuebook.toml").write_text("\n".join([f"[agents.{self.agent}]", "hosts = []", *lines, ""]))

    def left(self) -> list[Path]:
        """The files that hold the key afterwards."""
        files = [path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink()]
        return [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.fixture
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BuiltInHarness]:
    agent = BUILT_IN[request.param]
    path = os.pathsep.join(filter(None, (FOLDER, os.environ["PATH"])))
    if shutil.which(agent.command[0], path=path) is None:
        pytest.skip(f"{agent.name} is not installed: {agent.install}")
    monkeypatch.setenv("PATH", path)
    for one in BUILT_IN.values():
        for key in one.optional:
            monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(BuiltInHarness, "agent", agent.name)
    made = BuiltInHarness(tmp_path, monkeypatch)
    made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("harness", SIGNED_OUT, indirect=True)
async def test_without_a_key_it_says_that_it_is_not_signed_in(harness: BuiltInHarness) -> None:
    run = await harness.do(text=STEP)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == "agent_sign_in", run.error
    assert f"The coding agent {harness.agent} failed. It is not signed in:" in run.error.message
    for key in BUILT_IN[harness.agent].optional:
        assert key in run.error.fix
    assert not await harness.waits(run), "it did nothing, so there is nothing to decide"


@pytest.mark.parametrize("harness", SIGNED_OUT, indirect=True)
async def test_with_a_key_it_opens_a_session_and_leaves_no_key_behind(
    harness: BuiltInHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BUILT_IN[harness.agent].optional[0], KEY)
    harness.configure(seconds=25)
    await harness.reopen()
    run = await harness.do(text=STEP)
    homes = list((harness.home / "data" / "cuebook" / "agents").glob("*/*/session.json"))
    assert len(homes) == 1, run.error
    assert json.loads(homes[0].read_bytes())["session"]
    assert run.status in ("failed", "awaiting_approval"), "its provider cannot be reached"
    assert harness.left() == []


@pytest.mark.parametrize("harness", [*SIGNED_OUT, "opencode"], indirect=True)
async def test_doctor_finds_it(harness: BuiltInHarness) -> None:
    command = (sys.executable, "-m", "cuebook", "doctor", "--json")
    process = await asyncio.create_subprocess_exec(*command, cwd=harness.work, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    found = {one["name"]: one for one in json.loads(out)["agents"]}
    assert found[harness.agent]["problem"] == ""
    assert found[harness.agent]["program"].endswith(BUILT_IN[harness.agent].command[0])

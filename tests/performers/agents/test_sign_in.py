"""Agents without an account: a typed outcome that says what to set, and no key that stays on the disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.performers.agents.harness import AGENT, AgentHarness

KEY = "sesame-open-0123456789"


def files(harness: AgentHarness) -> list[str]:
    homes = (harness.home / "data" / "cuebook" / "agents").glob("*/*/home/*")
    return sorted(path.name for path in homes)


def holding(harness: AgentHarness, text: str) -> list[Path]:
    found = [path for path in (harness.home / "data").rglob("*") if path.is_file()]
    return [path for path in found if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("mode", ["signed-out", "no-account"])
async def test_an_agent_that_is_not_signed_in_fails_and_has_done_nothing(harness: AgentHarness, mode: str) -> None:
    harness.configure(mode)
    harness.open()
    run = await harness.do("say hello")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == "agent_sign_in"
    assert "The coding agent test failed. It is not signed in: Authentication required." in run.error.message
    assert "`secret_env` or `secret_files` in [agents.test]" in run.error.fix
    assert not await harness.waits(run), "nothing is in doubt"


async def test_it_is_signed_in_with_its_key_which_does_not_stay(
    harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    harness.configure("signed-out", secret_env={"AGENT_KEY": "env:MY_KEY"}, sign_in="by-key")
    harness.open()
    run = await harness.do("execute echo hello > hello.txt")
    await harness.reopen()
    run = await harness.decide(run, "approve")  # another process signs in again and continues the session
    assert (run.status, harness.made("hello.txt")) == ("completed", True)
    assert "login.json" not in files(harness)
    assert "prompts.txt" in files(harness), "only files with the key are removed"
    assert holding(harness, KEY) == []


async def test_a_way_to_sign_in_that_it_does_not_have_is_not_tried(
    harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    harness.configure("signed-out", secret_env={"AGENT_KEY": "env:MY_KEY"}, sign_in="by-magic")
    harness.open()
    run = await harness.do("say hello")
    assert run.error is not None
    assert run.error.code == "agent_sign_in"


async def test_an_agent_that_dies_says_why(harness: AgentHarness) -> None:
    """The last lines of a stack trace alone do not."""
    trace = "Error: the part is missing\n    at one\n    at two\n}\n\nRuntime v1\n"
    harness.configure(command=["/bin/sh", "-c", f"printf '%s' '{trace}' >&2; exit 1"])
    harness.open()
    run = await harness.do("say hello")
    assert run.error is not None
    assert run.error.code == "agent_died"
    assert "Its last error output: Error: the part is missing / at two / } / Runtime v1" in run.error.message


async def test_a_package_of_npm_is_started_where_its_parts_are(harness: AgentHarness, tmp_path: Path) -> None:
    """Its program is a link to a file that looks for others beside it."""
    package = tmp_path / "lib" / "node_modules" / "agent"
    package.mkdir(parents=True)
    (package / "part.sh").write_text(f'exec "$PYTHON" "{AGENT}"\n')
    (package / "index.sh").write_text('#!/bin/sh\n. "$(dirname "$0")/part.sh"\n')
    (package / "index.sh").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "agent").symlink_to(package / "index.sh")
    harness.configure(command=[str(tmp_path / "bin" / "agent")], env={"PYTHON": sys.executable})
    harness.open()
    run = await harness.do("say hello")
    assert (run.status, await harness.said(run)) == ("completed", "hello"), run.error

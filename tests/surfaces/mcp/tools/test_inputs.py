"""Calls with wrong inputs or answers are refused with a message, and create nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import TEA, CommandLine, finished
from tests.support.model_server import ModelServer
from tests.surfaces.mcp.clients import McpClient, begun, over_stdio
from tests.surfaces.mcp.conftest import Connect

PICK = '# Pick\n\n## STEP 1: Ask\n\n@elicit(select, "Which?", "green", "black")\n'


async def _runs(client: McpClient) -> list[dict[str, Any]]:
    return list((await client.call("list_playbook_executions"))["executions"])


@pytest.fixture
def elsewhere(cli: CommandLine, tmp_path: Path) -> str:
    """A paused run of another folder, in the same store."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "tea.md").write_text(TEA)
    ran = finished(begun(cli, "run", "tea.md", "--no-ask", "--break", "1", "--json", folder=folder))
    return str(ran.object["run"])


async def test_a_run_of_another_folder_is_left_to_it(
    elsewhere: str, connect_each_once: Connect, server: ModelServer
) -> None:
    async with connect_each_once() as client:
        for tool, given in (
            ("resume_playbook_execution", {"variables": {"kind": "red"}}),
            ("restart_playbook_execution", {"step": "1"}),
            ("respond_to_elicitation", {"response": "yes"}),
        ):
            assert "the run cannot continue here" in await client.refused(tool, execution_id=elsewhere, **given)
        assert [run["status"] for run in await _runs(client)] == ["paused"]
        assert len(server.requests) == 1
        after = await client.call("cancel_playbook_execution", execution_id=elsewhere)
        assert after["status"] == "cancelled"


async def test_an_unknown_model_is_refused_everywhere(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        run = (await client.call("execute_playbook", playbook_id="tea", breakpoints=[1]))["execution_id"]
        wrong = {"model_id": "nowhere/x"}
        assert "nowhere" in await client.refused("execute_playbook", playbook_id="tea", **wrong)
        assert "nowhere" in await client.refused("playbook_run", content=TEA, **wrong)
        assert "nowhere" in await client.refused("resume_playbook_execution", execution_id=run, **wrong)
        assert "nowhere" in await client.refused("restart_playbook_execution", execution_id=run, step="1", **wrong)
        assert [(one["execution_id"], one["status"]) for one in await _runs(client)] == [(run, "paused")]


async def test_a_running_execution_cannot_be_changed(connect_each_once: Connect, server: ModelServer) -> None:
    server.hold_at = 1
    async with connect_each_once() as client:
        run = (await client.call("execute_playbook", playbook_id="tea", wait_seconds=0))["execution_id"]
        assert await asyncio.to_thread(server.holding.wait, 30)
        message = await client.refused("resume_playbook_execution", execution_id=run, variables={"kind": "red"})
        assert "no pause to end" in message
        server.release()
        after = await client.call("get_playbook_execution", execution_id=run, wait_seconds=30)
        assert (after["status"], after["variables"]["kind"]) == ("completed", "green")


async def test_one_key_belongs_to_one_set_of_arguments(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        given: dict[str, Any] = {"playbook_id": "tea", "client_key": "k"}
        run = (await client.call("execute_playbook", **given, breakpoints=[1]))["execution_id"]
        for other in ({}, {"breakpoints": [2]}, {"breakpoints": [1], "model_id": "test/other"}):
            assert "Another run was started" in await client.refused("execute_playbook", **given, **other)
        assert [one["execution_id"] for one in await _runs(client)] == [run]


async def test_invalid_inputs_and_answers_create_nothing(cli: CommandLine) -> None:
    cli.write("pick.md", PICK)
    cli.write("two.md", "# Two\n\n## INPUTS\n\n- `n` (number): N\n\n## STEP 1: X\n\n{{n}}\n")
    async with over_stdio(cli, "--tools") as client:
        for tool, given, message in (
            ("execute_playbook", {"playbook_id": "pick", "elicit": {"7": "green"}}, "no such step"),
            ("execute_playbook", {"playbook_id": "pick", "elicit": {"1": "red"}}, "not one of the options"),
            ("execute_playbook", {"playbook_id": "tea", "input_values": {"kind": ["red"]}}, "cannot be a list"),
            ("execute_playbook", {"playbook_id": "two"}, "needs n"),
            ("run_two", {"n": "many"}, "must be a number"),
            ("run_two", {"n": 1, "m": 2}, "no input named m"),
            ("run_two", {"n": 1, "client_key": {"k": 1}}, "client_key"),
        ):
            assert message in await client.refused(tool, **given), given
        assert await _runs(client) == []

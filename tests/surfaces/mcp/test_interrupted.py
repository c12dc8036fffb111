"""Interrupted executions: their driver has stopped, and they continue when they are resumed."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.mcp.clients import McpClient, begun, over_stdio, words
from tests.surfaces.mcp.conftest import Connect

FOR_EVER = 86_400


async def _interrupted(cli: CommandLine, server: ModelServer, folder: Path | None = None) -> str:
    """A run whose driver was stopped with Ctrl-C while a model answered."""
    server.hold_at = len(server.requests) + 1
    process = begun(cli, "run", "tea.md", folder=folder)
    assert await asyncio.to_thread(server.holding.wait, 30)
    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.communicate)
    server.release()
    return str(cli.call("runs", "--json").object[0]["run"])


async def test_an_interrupted_run_says_so_and_how_to_continue(
    cli: CommandLine, connect_each_once: Connect, server: ModelServer
) -> None:
    run = await _interrupted(cli, server)
    async with connect_each_once() as client:
        message = await client.raw("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER)
        now = message.structured_content
        assert now["status"] == "interrupted"
        assert now["next"]["tool"] == "resume_playbook_execution"
        assert now["next"]["arguments"] == {"execution_id": run}
        assert f"Execution {run}: interrupted, " in words(message)
        assert "continues on its own" not in words(message)
        assert "- status: interrupted" in await client.read(f"playbook://runs/{run}")
        titles = {one.name: one.title for one in (await client.client.list_resources(cache_mode="bypass")).resources}
        assert ", interrupted, " in str(titles[run])
        after = await client.call(now["next"]["tool"], **now["next"]["arguments"])
        assert after["status"] == "completed"


async def test_interrupted_runs_are_listed_as_such(cli: CommandLine, server: ModelServer) -> None:
    run = await _interrupted(cli, server)
    async with over_stdio(cli) as client:
        done = (await client.call("execute_playbook", playbook_id="tea"))["execution_id"]
        assert await _listed(client) == {run: "interrupted", done: "completed"}
        assert await _listed(client, playbook_id="tea", status=["interrupted"]) == {run: "interrupted"}
        assert await _listed(client, status=["running", "completed"]) == {done: "completed"}
        assert await _listed(client, status=["interrupted", "completed"], limit=1) == {done: "completed"}


async def _listed(client: McpClient, **given: Any) -> dict[str, str]:
    listed = await client.call("list_playbook_executions", **given)
    return {one["execution_id"]: one["status"] for one in listed["executions"]}


async def test_a_run_interrupted_in_another_folder_is_continued_there(
    cli: CommandLine, server: ModelServer, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(cli.tea, folder)
    run = await _interrupted(cli, server, folder)
    async with over_stdio(cli) as client:
        now = await client.call("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER)
        assert (now["status"], now["next"]["tool"]) == ("interrupted", None)
        assert f"`cuebook resume {run}`" in now["next"]["words"]


async def test_a_run_that_another_process_drives_is_waited_for(
    cli: CommandLine, server: ModelServer, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(cli.tea, folder)
    server.hold_at = 1
    process = begun(cli, "run", "tea.md", folder=folder)
    assert await asyncio.to_thread(server.holding.wait, 30)
    run = cli.call("runs", "--json").object[0]["run"]
    async with over_stdio(cli) as client:
        now = await client.call("get_playbook_execution", execution_id=run)
        assert (now["status"], now["next"]["tool"]) == ("running", "get_playbook_execution")
        waiting = asyncio.create_task(client.call("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER))
        server.release()
        assert (await waiting)["status"] == "completed"
    await asyncio.to_thread(process.communicate)

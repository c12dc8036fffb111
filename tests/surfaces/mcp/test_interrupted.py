"""Executions that nobody is at: whoever was driving one has let it go, and it goes on when somebody resumes it."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.surfaces.desk import Desk
from tests.surfaces.mcp.conftest import Visits
from tests.surfaces.mcp.visiting import Visit, begun, over_stdio, words
from tests.surfaces.model_server import ModelServer

FOR_EVER = 86_400


async def _interrupted(desk: Desk, server: ModelServer, folder: Path | None = None) -> str:
    """A run whose driver was stopped with Ctrl-C while a model answered."""
    server.hold_at = len(server.requests) + 1
    process = begun(desk, "run", "tea.md", folder=folder)
    assert await asyncio.to_thread(server.holding.wait, 30)
    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.communicate)
    server.release()
    return str(desk.call("runs", "--json").object[0]["run"])


async def test_an_interrupted_run_says_so_and_how_it_goes_on(
    desk: Desk, some_visits: Visits, server: ModelServer
) -> None:
    run = await _interrupted(desk, server)
    async with some_visits() as visit:
        told = await visit.raw("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER)
        now = told.structured_content
        assert now["status"] == "interrupted"
        assert now["next"]["tool"] == "resume_playbook_execution"
        assert now["next"]["arguments"] == {"execution_id": run}
        assert f"Execution {run}: interrupted, " in words(told)
        assert "goes on by itself" not in words(told).replace("does not go on by itself", "")
        assert "- status: interrupted" in await visit.read(f"playbook://runs/{run}")
        titles = {one.name: one.title for one in (await visit.client.list_resources(cache_mode="bypass")).resources}
        assert ", interrupted, " in str(titles[run])
        after = await visit.call(now["next"]["tool"], **now["next"]["arguments"])
        assert after["status"] == "completed"


async def test_interrupted_runs_are_listed_as_such(desk: Desk, server: ModelServer) -> None:
    run = await _interrupted(desk, server)
    async with over_stdio(desk) as visit:
        done = (await visit.call("execute_playbook", playbook_id="tea"))["execution_id"]
        assert await _listed(visit) == {run: "interrupted", done: "completed"}
        assert await _listed(visit, playbook_id="tea", status=["interrupted"]) == {run: "interrupted"}
        assert await _listed(visit, status=["running", "completed"]) == {done: "completed"}
        assert await _listed(visit, status=["interrupted", "completed"], limit=1) == {done: "completed"}


async def _listed(visit: Visit, **given: Any) -> dict[str, str]:
    listed = await visit.call("list_playbook_executions", **given)
    return {one["execution_id"]: one["status"] for one in listed["executions"]}


async def test_what_was_interrupted_in_another_folder_goes_on_there(
    desk: Desk, server: ModelServer, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(desk.tea, folder)
    run = await _interrupted(desk, server, folder)
    async with over_stdio(desk) as visit:
        now = await visit.call("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER)
        assert (now["status"], now["next"]["tool"]) == ("interrupted", None)
        assert f"`cuebook resume {run}`" in now["next"]["words"]


async def test_a_run_that_another_process_drives_is_waited_for(desk: Desk, server: ModelServer, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(desk.tea, folder)
    server.hold_at = 1
    process = begun(desk, "run", "tea.md", folder=folder)
    assert await asyncio.to_thread(server.holding.wait, 30)
    run = desk.call("runs", "--json").object[0]["run"]
    async with over_stdio(desk) as visit:
        now = await visit.call("get_playbook_execution", execution_id=run)
        assert (now["status"], now["next"]["tool"]) == ("running", "get_playbook_execution")
        waiting = asyncio.create_task(visit.call("get_playbook_execution", execution_id=run, wait_seconds=FOR_EVER))
        server.release()
        assert (await waiting)["status"] == "completed"
    await asyncio.to_thread(process.communicate)

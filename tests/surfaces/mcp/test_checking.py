"""What would come to nothing, or to something else than was meant, is refused in words; and then nothing was created."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.desk import TEA, Desk, finished
from tests.surfaces.mcp.conftest import Visits
from tests.surfaces.mcp.visiting import Visit, begun, over_stdio
from tests.surfaces.model_server import ModelServer

PICK = '# Pick\n\n## STEP 1: Ask\n\n@elicit(select, "Which?", "green", "black")\n'


async def _runs(visit: Visit) -> list[dict[str, Any]]:
    return list((await visit.call("list_playbook_executions"))["executions"])


@pytest.fixture
def elsewhere(desk: Desk, tmp_path: Path) -> str:
    """A paused run of another folder, in the same store."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "tea.md").write_text(TEA)
    ran = finished(begun(desk, "run", "tea.md", "--no-ask", "--break", "1", "--json", folder=folder))
    return str(ran.object["run"])


async def test_a_run_of_another_folder_is_left_to_it(elsewhere: str, some_visits: Visits, server: ModelServer) -> None:
    async with some_visits() as visit:
        for tool, given in (
            ("resume_playbook_execution", {"variables": {"kind": "red"}}),
            ("restart_playbook_execution", {"step": "1"}),
            ("respond_to_elicitation", {"response": "yes"}),
        ):
            assert "it would not go on here" in await visit.refused(tool, execution_id=elsewhere, **given)
        assert [run["status"] for run in await _runs(visit)] == ["paused"]
        assert len(server.requests) == 1
        after = await visit.call("cancel_playbook_execution", execution_id=elsewhere)
        assert after["status"] == "cancelled"


async def test_a_model_that_is_not_there_is_refused_wherever_it_is_named(some_visits: Visits) -> None:
    async with some_visits() as visit:
        run = (await visit.call("execute_playbook", playbook_id="tea", breakpoints=[1]))["execution_id"]
        wrong = {"model_id": "nowhere/x"}
        assert "nowhere" in await visit.refused("execute_playbook", playbook_id="tea", **wrong)
        assert "nowhere" in await visit.refused("playbook_run", content=TEA, **wrong)
        assert "nowhere" in await visit.refused("resume_playbook_execution", execution_id=run, **wrong)
        assert "nowhere" in await visit.refused("restart_playbook_execution", execution_id=run, step="1", **wrong)
        assert [(one["execution_id"], one["status"]) for one in await _runs(visit)] == [(run, "paused")]


async def test_a_run_under_way_takes_no_changes(some_visits: Visits, server: ModelServer) -> None:
    server.hold_at = 1
    async with some_visits() as visit:
        run = (await visit.call("execute_playbook", playbook_id="tea", wait_seconds=0))["execution_id"]
        assert await asyncio.to_thread(server.holding.wait, 30)
        told = await visit.refused("resume_playbook_execution", execution_id=run, variables={"kind": "red"})
        assert "no pause to end" in told
        server.release()
        after = await visit.call("get_playbook_execution", execution_id=run, wait_seconds=30)
        assert (after["status"], after["variables"]["kind"]) == ("completed", "green")


async def test_one_key_is_for_one_way_to_run_it(some_visits: Visits) -> None:
    async with some_visits() as visit:
        given: dict[str, Any] = {"playbook_id": "tea", "client_key": "k"}
        run = (await visit.call("execute_playbook", **given, breakpoints=[1]))["execution_id"]
        for other in ({}, {"breakpoints": [2]}, {"breakpoints": [1], "model_id": "test/other"}):
            assert "another run was started" in await visit.refused("execute_playbook", **given, **other)
        assert [one["execution_id"] for one in await _runs(visit)] == [run]


async def test_inputs_and_answers_that_do_not_fit_create_nothing(desk: Desk) -> None:
    desk.write("pick.md", PICK)
    desk.write("two.md", "# Two\n\n## INPUTS\n\n- `n` (number): N\n\n## STEP 1: X\n\n{{n}}\n")
    async with over_stdio(desk, "--tools") as visit:
        for tool, given, told in (
            ("execute_playbook", {"playbook_id": "pick", "elicit": {"7": "green"}}, "no such step"),
            ("execute_playbook", {"playbook_id": "pick", "elicit": {"1": "red"}}, "not one of the options"),
            ("execute_playbook", {"playbook_id": "tea", "input_values": {"kind": ["red"]}}, "no list"),
            ("execute_playbook", {"playbook_id": "two"}, "needs n"),
            ("run_two", {"n": "many"}, "must be a number"),
            ("run_two", {"n": 1, "m": 2}, "no input m"),
            ("run_two", {"n": 1, "client_key": {"k": 1}}, "client_key"),
        ):
            assert told in await visit.refused(tool, **given), given
        assert await _runs(visit) == []

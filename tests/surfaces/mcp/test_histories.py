"""Executions of a playbook: all of its file, whatever that held, and none of another file that is called the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.surfaces.desk import Desk
from tests.surfaces.mcp.conftest import Visits
from tests.surfaces.mcp.visiting import Visit

NOTE = "# Note\n\n## STEP 1: A\n\nDo A.\n"
RELEASE = """\
id: {id}
name: Release
steps:
  - id: ship
    command: cli touch {made}
    approval: required
"""


def put(desk: Desk, name: str, text: str) -> Path:
    path = desk.work / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


async def begun(visit: Visit, **given: Any) -> str:
    return str((await visit.call("execute_playbook", **given))["execution_id"])


async def listed(visit: Visit, **given: Any) -> list[tuple[str, str | None]]:
    found = await visit.call("list_playbook_executions", **given)
    return [(one["execution_id"], one["playbook_id"]) for one in found["executions"]]


async def test_executions_of_what_a_file_held_before_stay_in_its_list(desk: Desk, some_visits: Visits) -> None:
    put(desk, "deeper/note.md", NOTE)
    async with some_visits() as visit:
        first = await begun(visit, playbook_id="note")
        put(desk, "deeper/note.md", NOTE + "\nAnd more.\n")
        ran = await asyncio.to_thread(desk.call, "run", "deeper/note.md", "--json")
        put(desk, "deeper/note.md", NOTE + "\nAnd still more.\n")
        other = await begun(visit, content=NOTE.replace("Do A", "Do B"), name="note.md")
        expected = [(ran.object["run"], "note"), (first, "note")]
        assert await listed(visit, playbook_id="note") == expected
        assert await listed(visit, path="deeper/note.md") == expected
        assert await listed(visit, path=str(desk.work / "deeper" / "note.md")) == expected
        assert await listed(visit, playbook_id="note", limit=1) == expected[:1]
        assert await listed(visit, playbook_id="note", status=["failed"]) == []
        assert await listed(visit) == [(other, None), *expected]
        now = await visit.call("get_playbook_execution", execution_id=first)
        assert now["playbook_id"] == "note"


async def test_of_two_files_with_one_name_each_has_its_own(desk: Desk, some_visits: Visits) -> None:
    for folder, id in (("one", "blue"), ("two", "red")):
        put(desk, f"{folder}/release.yml", RELEASE.format(id=id, made=folder))
    async with some_visits() as visit:
        one = await begun(visit, path="one/release.yml")
        two = await begun(visit, path="two/release.yml")
        assert await listed(visit, playbook_id="blue") == [(one, "blue")]
        assert await listed(visit, playbook_id="red") == [(two, "red")]
        put(desk, "two/release.yml", RELEASE.format(id="red", made="three"))
        again = await begun(visit, playbook_id="red")
        assert await listed(visit, path="two/release.yml") == [(again, "red"), (two, "red")]
        assert await listed(visit, path="one/release.yml", status=["awaiting_approval"]) == [(one, "blue")]


async def test_a_path_means_its_file_where_two_playbook_folders_hold_one_of_that_name(
    desk: Desk, some_visits: Visits
) -> None:
    for folder, id in (("one", "blue"), ("two", "red")):
        put(desk, f"{folder}/release.yml", RELEASE.format(id=id, made=folder))
    folders = [str(desk.work / folder) for folder in ("one", "two")]
    desk.config.write_text(f"{desk.config.read_text()}\n[serve]\nfolders = {json.dumps(folders)}\n")
    async with some_visits() as visit:
        two = await begun(visit, path=str(desk.work / "two" / "release.yml"))
        assert await listed(visit, path=str(desk.work / "two" / "release.yml")) == [(two, "red")]
        assert await listed(visit, playbook_id="blue") == []


async def test_a_playbook_that_is_not_there_has_no_list(desk: Desk, some_visits: Visits) -> None:
    async with some_visits() as visit:
        refused = [
            await visit.refused("list_playbook_executions", **given)
            for given in ({"playbook_id": "tee"}, {"path": "tee.md"}, {"playbook_id": "tea", "path": "tea.md"})
        ]
    assert "no playbook 'tee'. list_playbooks lists" in refused[0]
    assert "no playbook at 'tee.md'" in refused[1]
    assert "by its playbook_id or by its path" in refused[2]

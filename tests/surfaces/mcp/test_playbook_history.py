"""Executions of a playbook: all those of its file, in any version, and none of another file with the same name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.command_line import CommandLine
from tests.surfaces.mcp.clients import McpClient
from tests.surfaces.mcp.conftest import Connect

NOTE = "# Note\n\n## STEP 1: A\n\nDo A.\n"
RELEASE = """\
id: {id}
name: Release
steps:
  - id: ship
    command: cli touch {made}
    approval: required
"""


def put(cli: CommandLine, name: str, text: str) -> Path:
    path = cli.work / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


async def begun(client: McpClient, **given: Any) -> str:
    return str((await client.call("execute_playbook", **given))["execution_id"])


async def listed(client: McpClient, **given: Any) -> list[tuple[str, str | None]]:
    found = await client.call("list_playbook_executions", **given)
    return [(one["execution_id"], one["playbook_id"]) for one in found["executions"]]


async def test_executions_of_earlier_versions_of_a_file_stay_in_its_list(
    cli: CommandLine, connect_each_once: Connect
) -> None:
    put(cli, "deeper/note.md", NOTE)
    async with connect_each_once() as client:
        first = await begun(client, playbook_id="note")
        put(cli, "deeper/note.md", NOTE + "\nAnd more.\n")
        ran = await asyncio.to_thread(cli.call, "run", "deeper/note.md", "--json")
        put(cli, "deeper/note.md", NOTE + "\nAnd still more.\n")
        other = await begun(client, content=NOTE.replace("Do A", "Do B"), name="note.md")
        expected = [(ran.object["run"], "note"), (first, "note")]
        assert await listed(client, playbook_id="note") == expected
        assert await listed(client, path="deeper/note.md") == expected
        assert await listed(client, path=str(cli.work / "deeper" / "note.md")) == expected
        assert await listed(client, playbook_id="note", limit=1) == expected[:1]
        assert await listed(client, playbook_id="note", status=["failed"]) == []
        assert await listed(client) == [(other, None), *expected]
        now = await client.call("get_playbook_execution", execution_id=first)
        assert now["playbook_id"] == "note"


async def test_of_two_files_with_one_name_each_has_its_own(cli: CommandLine, connect_each_once: Connect) -> None:
    for folder, id in (("one", "blue"), ("two", "red")):
        put(cli, f"{folder}/release.yml", RELEASE.format(id=id, made=folder))
    async with connect_each_once() as client:
        one = await begun(client, path="one/release.yml")
        two = await begun(client, path="two/release.yml")
        assert await listed(client, playbook_id="blue") == [(one, "blue")]
        assert await listed(client, playbook_id="red") == [(two, "red")]
        put(cli, "two/release.yml", RELEASE.format(id="red", made="three"))
        again = await begun(client, playbook_id="red")
        assert await listed(client, path="two/release.yml") == [(again, "red"), (two, "red")]
        assert await listed(client, path="one/release.yml", status=["awaiting_approval"]) == [(one, "blue")]


async def test_a_path_selects_one_of_two_files_with_the_same_name(cli: CommandLine, connect_each_once: Connect) -> None:
    for folder, id in (("one", "blue"), ("two", "red")):
        put(cli, f"{folder}/release.yml", RELEASE.format(id=id, made=folder))
    folders = [str(cli.work / folder) for folder in ("one", "two")]
    cli.config.write_text(f"{cli.config.read_text()}\n[serve]\nfolders = {json.dumps(folders)}\n")
    async with connect_each_once() as client:
        two = await begun(client, path=str(cli.work / "two" / "release.yml"))
        assert await listed(client, path=str(cli.work / "two" / "release.yml")) == [(two, "red")]
        assert await listed(client, playbook_id="blue") == []


async def test_a_missing_playbook_has_no_list(cli: CommandLine, connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        refused = [
            await client.refused("list_playbook_executions", **given)
            for given in ({"playbook_id": "tee"}, {"path": "tee.md"}, {"playbook_id": "tea", "path": "tea.md"})
        ]
    assert "no playbook 'tee'. list_playbooks lists" in refused[0]
    assert "no playbook at 'tee.md'" in refused[1]
    assert "Expected playbook_id or path" in refused[2]

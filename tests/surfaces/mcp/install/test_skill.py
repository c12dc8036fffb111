"""The skill for assistants is installed beside the entry, kept if its user changed it, and removed by `uninstall`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cuebook
from cuebook.dialects.playbook import Playbook
from cuebook.surfaces.mcp.install.clients import CLIENTS, Entry, removed, written
from cuebook.surfaces.mcp.install.edit import CannotEdit, out_of_json, out_of_toml
from cuebook.surfaces.mcp.install.skill import PLUGIN
from tests.support.command_line import CommandLine

SHIPPED = (PLUGIN / "skills" / "cuebook" / "SKILL.md").read_text("utf-8")


def test_install_writes_the_skill_and_uninstall_removes_it(cli: CommandLine) -> None:
    skill, entry = cli.work / ".claude/skills/cuebook/SKILL.md", cli.work / ".mcp.json"
    ran = cli.call("mcp", "install", "--client", "claude", "--write")
    assert (ran.code, skill.read_text().startswith(SHIPPED)) == (0, True)
    assert f"wrote the skill to {skill}" in ran.err
    assert "is already in" in cli.call("mcp", "install", "--client", "claude", "--write").err
    gone = cli.call("mcp", "uninstall", "--client", "claude")
    assert (gone.code, skill.exists(), skill.parent.exists()) == (0, False, False)
    assert json.loads(entry.read_text()) == {"mcpServers": {}}
    assert "there is no entry" in cli.call("mcp", "uninstall", "--client", "claude").err


def test_a_changed_skill_is_kept_unless_its_user_says_otherwise(cli: CommandLine) -> None:
    skill = cli.work / ".cursor/skills/cuebook/SKILL.md"
    cli.call("mcp", "install", "--client", "cursor", "--write")
    own = skill.read_text().replace("You do the thinking", "I do the thinking")
    skill.write_text(own)
    assert "kept" in cli.call("mcp", "install", "--client", "cursor", "--write").err
    assert "you have changed it" in cli.call("mcp", "uninstall", "--client", "cursor").err
    assert skill.read_text() == own
    assert "which you had changed" in cli.call("mcp", "install", "--client", "cursor", "--write", "--force").err
    assert skill.read_text() != own


def test_an_older_skill_that_nobody_changed_is_replaced(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuebook.surfaces.mcp.install import skill as module

    path = cli.work / "SKILL.md"
    older = cli.write("older.md", "---\nname: cuebook\ndescription: Older.\n---\n")
    monkeypatch.setattr(module, "_SKILL", older)
    assert module.install(path) == "written"
    monkeypatch.undo()
    assert module.install(path) == "written"
    assert path.read_text().startswith(SHIPPED)
    assert module.remove(path) == "removed"
    assert module.remove(path) == "missing"


def test_the_skill_is_not_installed_if_it_is_not_wanted(cli: CommandLine) -> None:
    cli.call("mcp", "install", "--client", "claude", "--write", "--no-skill")
    assert not (cli.work / ".claude").exists()
    cli.call("mcp", "install", "--client", "cursor", "--write", "--file", cli.work / "other.json")
    assert not (cli.work / ".cursor").exists()


def test_the_plugin_folder_is_complete() -> None:
    for file in (".claude-plugin/plugin.json", ".mcp.json", "gemini-extension.json"):
        assert isinstance(json.loads((PLUGIN / file).read_text()), dict)
    assert json.loads((PLUGIN / "gemini-extension.json").read_text())["version"] == cuebook.__version__
    book = Playbook.from_text(SHIPPED, "SKILL.md")
    assert [step.label for step in book.steps] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("name", CLIENTS)
def test_the_entry_of_each_client_can_be_removed(name: str, tmp_path: Path) -> None:
    client, path = CLIENTS[name], tmp_path / "settings"
    assert removed(client, path) is False
    before = '# mine\na = 1\n\n[b]\nc = "[x]"\n' if client.style == "toml" else '{\n  // mine\n  "a": [1]\n}\n'
    path.write_text(before)
    written(client, Entry(command=("/bin/cuebook", "mcp")), path)
    assert "cuebook" in path.read_text()
    assert removed(client, path) is True
    left = path.read_text()
    assert "mine" in left
    assert "cuebook" not in left


def test_only_the_entry_is_removed() -> None:
    text = '{"mcpServers": {"x": {"args": ["}"]}, "cuebook": {"command": "c", "env": {"A": "1"}}}, "z": 1.50}'
    assert out_of_json(text, ("mcpServers", "cuebook")) == '{"mcpServers": {"x": {"args": ["}"]} }, "z": 1.50}'
    toml = '[mcp_servers.cuebook]\ncommand = "c"\n\n[mcp_servers.cuebook.env]\nA = "1"\n\n[mcp_servers.x]\nurl = "u"\n'
    assert out_of_toml(toml, ("mcp_servers", "cuebook")) == '[mcp_servers.x]\nurl = "u"\n'
    with pytest.raises(CannotEdit):
        out_of_toml('mcp_servers = {cuebook = {command = "c"}}\n', ("mcp_servers", "cuebook"))

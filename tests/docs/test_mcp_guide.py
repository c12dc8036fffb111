"""The guide's configuration works as printed, and so do the entries that `cuebook mcp install` prints and writes."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from cuebook.surfaces.mcp.install.clients import CLIENTS
from cuebook.surfaces.mcp.tools import playbook_texts, runs
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, blocks
from tests.surfaces.mcp.clients import McpClient, Served, new_process, over_http, token_of

GUIDE = DOCS / "guides" / "mcp.md"
BLOCKS = blocks(GUIDE)
ENTRIES = [block for block in BLOCKS if block.language in ("json", "toml")]
each = pytest.mark.parametrize("block", ENTRIES, ids=[f"line {one.line}" for one in ENTRIES])


def entry_of(text: str, language: str = "json") -> dict[str, Any]:
    """The server's entry, whatever the client calls its table."""
    whole = tomllib.loads(text) if language == "toml" else json.loads(text)
    (table,) = whole.values()
    return dict(table["cuebook"])


@pytest.fixture
def command(cli: CommandLine) -> CommandLine:
    """The command line, with `cuebook` on the PATH."""
    made = cli.work.parent / "bin" / "cuebook"
    made.parent.mkdir()
    made.write_text(f'#!/bin/sh\nexec {sys.executable} -m cuebook "$@"\n')
    made.chmod(0o755)
    cli.environ["PATH"] = f"{made.parent}{os.pathsep}{cli.environ['PATH']}"
    return cli


async def books(cli: CommandLine, entry: dict[str, Any], cwd: Path) -> list[str]:
    """The tools that an assistant finds if it starts the server with this entry."""
    start = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]
    places = {"/path/to/project": str(cli.work), "${workspaceFolder}": str(cli.work)}
    first, *rest = [places.get(str(one), str(one)) for one in start]
    server = StdioServerParameters(command=first, args=rest, cwd=cwd, env=cli.environ)
    async with Client(server) as client:
        listed = await McpClient(client).call("list_playbooks")
    return [one["playbook_id"] for one in listed["playbooks"]]


@each
async def test_the_configuration_in_the_guide_works(command: CommandLine, served: list[Served], block: Block) -> None:
    entry = entry_of(block.text, block.language)
    if "url" not in entry:
        cwd = command.work if "--project" not in entry["args"] else command.home
        assert await books(command, entry, cwd) == ["tea"]
        return
    served.append(one := Served(command, command=new_process))
    assert entry["headers"] == {"Authorization": "Bearer ${CUEBOOK_TOKEN}"}
    url = entry["url"].replace("http://127.0.0.1:8765", one.address)
    async with over_http(url, token_of(command, "ann-assistant", "runner")) as client:
        assert [book["playbook_id"] for book in (await client.call("list_playbooks"))["playbooks"]] == ["tea"]


def test_the_guide_names_every_tool_and_every_client() -> None:
    text = GUIDE.read_text()
    for tool in (*runs.TOOLS, *playbook_texts.TOOLS):
        assert f"`{tool.name}`" in text
    for client in CLIENTS:
        assert f"`{client}`" in text


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_entry_written_for_a_client_starts_the_server(command: CommandLine, client: str) -> None:
    printed = command.call("mcp", "--tools", "install", "--client", client)
    assert printed.code == 0
    language = "toml" if CLIENTS[client].style == "toml" else "json"
    file = command.work / "config"
    other = '[mcp_servers.other]\ncommand = "x"\n' if language == "toml" else '{"theme": "dark"}'
    file.write_text(other)
    for _ in range(2):  # a second call changes nothing
        ran = command.call("mcp", "--tools", "install", "--client", client, "--write", "--file", file)
        assert ran.code == 0
    text = file.read_text()
    whole = tomllib.loads(text) if language == "toml" else json.loads(text)
    table = whole[CLIENTS[client].key]
    assert table["cuebook"] == entry_of(printed.out, language)
    assert ("other" in table) if language == "toml" else (whole["theme"] == "dark")
    if client in ("claude", "codex", "opencode"):  # one of each shape
        assert await books(command, table["cuebook"], command.home) == ["tea"]


def test_where_a_clients_file_is(cli: CommandLine) -> None:
    assert cli.call("mcp", "install", "--client", "cursor", "--write").code == 0
    assert json.loads((cli.work / ".cursor" / "mcp.json").read_text())["mcpServers"]["cuebook"]["args"][0]
    assert cli.call("mcp", "install", "--client", "codex", "--write").code == 0
    assert (cli.home / ".codex" / "config.toml").read_text().startswith("[mcp_servers.cuebook]\n")

"""An entry is added to an assistant's file without changing anything else in it, or not at all."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.surfaces.mcp.install.clients import CLIENTS, Entry, shown, written
from cuebook.surfaces.mcp.install.edit import CannotEdit, into_json, into_toml
from tests.support.command_line import CommandLine

COMMAND = Entry(command=("/bin/cuebook", "mcp"))
ADDRESS = Entry(url="http://127.0.0.1:1/mcp")
ENTRY = {"command": "/bin/cuebook", "args": ["mcp"]}
SERVERS = ("mcpServers", "cuebook")
TABLE = ("mcp_servers", "cuebook")
HEADING = '[mcp_servers.cuebook]\ncommand = "/bin/cuebook"\nargs = ["mcp"]\n'


def json_with(text: str) -> str:
    made = into_json(text, SERVERS, ENTRY)
    assert json.loads(made)["mcpServers"]["cuebook"] == ENTRY
    assert into_json(made, SERVERS, ENTRY) == made
    return made


def toml_with(text: str) -> str:
    made = into_toml(text, TABLE, ENTRY)
    assert tomllib.loads(made)["mcp_servers"]["cuebook"] == ENTRY
    assert into_toml(made, TABLE, ENTRY) == made
    return made


@pytest.mark.parametrize(
    "empty", ["", " \n", "{}", "{ }\n", '{"mcpServers": null}', '{"mcpServers": {"cuebook": null}}']
)
def test_an_empty_file_gets_the_entry(empty: str) -> None:
    assert json.loads(json_with(empty)) == {"mcpServers": {"cuebook": ENTRY}}


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (
            '{\n\t"a": [1, 2],\n\t"b": 1.0e400\n}',
            '{\n\t"a": [1, 2],\n\t"b": 1.0e400,\n\t"mcpServers": {\n\t\t"cuebook"',
        ),
        (
            '{\r\n    "a": "\\ud800"\r\n}\r\n',
            '{\r\n    "a": "\\ud800",\r\n    "mcpServers": {\r\n        "cuebook": {\r\n',
        ),
        ('{"a": 1.10}', '{"a": 1.10,\n  "mcpServers": {\n    "cuebook": {'),
        (
            '{\n  "mcpServers": {\n    "x": {"args": ["}", "{"]}\n  },\n  "z": 12345678901234567890.50\n}\n',
            '{\n  "mcpServers": {\n    "x": {"args": ["}", "{"]},\n    "cuebook": {',
        ),
    ],
    ids=["tabs and a large number", "line ends and a lone surrogate", "one line", "beside another server"],
)
def test_everything_else_in_json_is_kept(before: str, kept: str) -> None:
    after = json_with(before)
    assert after.startswith(kept)
    assert after.endswith(before[-1])
    assert after.count("\r") == (after.count("\n") if "\r" in before else 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{/* a comment\n}", "not valid JSON"),
        ("{# a comment\n}", "not valid JSON"),
        ("{,}", "change in other places"),
        ('{"a": [1,,]}', "not valid JSON"),
        ("[]", "does not contain an object"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"mcpServers": {"x": {"b": 1, "b": 1}}}', "duplicate key"),
        ('{"a": NaN}', "invalid number"),
        ('{"mcpServers": []}', "at 'mcpServers'"),
        ('{"mcpServers": {"cuebook": {"url": "x", "trust": true}}}', "another way (trust)"),
        ("[" * 100_000, "not valid JSON"),
        ('{"mcpServers": {"cuebook": {"args": ["a", /* mine */ "b"]}}}', "a comment within the part to be replaced"),
    ],
)
def test_json_that_would_be_harmed_is_refused(text: str, why: str) -> None:
    with pytest.raises(CannotEdit) as refused:
        into_json(text, SERVERS, ENTRY)
    assert why in str(refused.value)


def test_settings_of_the_user_in_an_entry_are_kept() -> None:
    before = '{"mcpServers": {"cuebook": {"env": {"A": "1"}, "command": "old", "url": "stale", "timeout": 1.5}}}'
    entry = json.loads(into_json(before, SERVERS, ENTRY))["mcpServers"]["cuebook"]
    assert entry == {"env": {"A": "1"}, "timeout": 1.5, **ENTRY}
    before = '{"mcpServers": {"cuebook": {"command": "x", "timeout": 1e400, "env": {"A":1.0}}}}'
    assert '"timeout": 1e400, "env": {"A":1.0}' in into_json(before, SERVERS, ENTRY)
    before = '{"mcpServers": {"cuebook": {"url": "old", "headers": {"Authorization": "Bearer mine"}}}}'
    entry = json.loads(into_json(before, SERVERS, {"httpUrl": "new", "headers": {}}))["mcpServers"]["cuebook"]
    assert entry == {"headers": {"Authorization": "Bearer mine"}, "httpUrl": "new"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", HEADING),
        ("# mine\n", f"# mine\n\n{HEADING}"),
        ("a = nan # mine\r\n", "a = nan # mine\r\n\r\n" + HEADING.replace("\n", "\r\n")),
        ('[mcp_servers.x]\ncommand = "x"', f'[mcp_servers.x]\ncommand = "x"\n\n{HEADING}'),
        (
            '[mcp_servers.cuebook] # mine\ncommand = "old" # "why" #1\n# and\nargs = [\n  "a",\n]\n\n# of x\n[x]\na = 1\n',
            '[mcp_servers.cuebook] # mine\ncommand = "/bin/cuebook" # "why" #1\n# and\nargs = ["mcp"]\n\n# of x\n[x]\na = 1\n',
        ),
        (
            '[ mcp_servers."cuebook" ]\nurl = "http://x" # there',
            '[ mcp_servers."cuebook" ]\ncommand = "/bin/cuebook"\nargs = ["mcp"]\n# there\n',
        ),
        (
            'a = """\n[mcp_servers.cuebook]\n"""\n[mcp_servers.cuebook]\ncommand = "old"\n',
            'a = """\n[mcp_servers.cuebook]\n"""\n[mcp_servers.cuebook]\nargs = ["mcp"]\ncommand = "/bin/cuebook"\n',
        ),
    ],
    ids=["nothing", "a comment", "line ends", "another server", "remarks", "a quoted name", "a text like it"],
)
def test_everything_else_in_toml_is_kept(before: str, after: str) -> None:
    assert toml_with(before) == after


def test_settings_of_the_user_in_a_table_are_kept() -> None:
    before = (
        '[mcp_servers.cuebook]\ncommand = "old"\nstartup_timeout_sec = 20.0\n\n[mcp_servers.cuebook.env]\nA = "1"\n'
    )
    assert tomllib.loads(into_toml(before, TABLE, ENTRY))["mcp_servers"]["cuebook"] == {
        "startup_timeout_sec": 20.0,
        "env": {"A": "1"},
        **ENTRY,
    }
    with pytest.raises(CannotEdit, match="another way \\(startup_timeout_sec, env\\)"):
        into_toml(before, TABLE, {"url": "http://x"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('mcp_servers = { cuebook = { command = "x" } }\n', "in a form other than a table"),
        ('mcp_servers = { x = { command = "x" } }\n', "cannot be extended"),
        ('[mcp_servers]\ncuebook.command = "x"\n', "in a form other than a table"),
        ('[mcp_servers.cuebook.env]\nA = "1"\n', "another way"),
        ('[[mcp_servers.cuebook]]\ncommand = "x"\n', "in a form other than a table"),
        ("mcp_servers = 1\n", "at 'mcp_servers'"),
        ('{"mcpServers": {}}', "not valid TOML"),
    ],
)
def test_toml_that_would_be_harmed_is_refused(text: str, why: str) -> None:
    with pytest.raises(CannotEdit) as refused:
        into_toml(text, TABLE, ENTRY)
    assert why in str(refused.value)


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "mcp.json", tmp_path / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link.symlink_to(real)
    written(CLIENTS["cursor"], COMMAND, link)
    assert link.is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["cuebook"] == ENTRY
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(real.parent) == ["mcp.json"]
    inode = real.stat().st_ino
    written(CLIENTS["cursor"], COMMAND, link)  # nothing to do
    assert real.stat().st_ino == inode


def test_a_broken_link_is_not_followed(tmp_path: Path) -> None:
    file, folder, missing = tmp_path / "mcp.json", tmp_path / "folder", tmp_path / "missing" / "there"
    for link in (file, folder):
        link.symlink_to(missing)
    for path in (file, folder / "mcp.json", folder / "deeper" / "mcp.json"):
        with pytest.raises(BadInput, match=f"a broken link to {missing}"):
            written(CLIENTS["cursor"], ADDRESS, path)
    assert sorted(os.listdir(tmp_path)) == ["folder", "mcp.json"]


def test_a_file_that_cannot_be_written_stays_intact(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"theme": "dark"}')
    odd = Entry(command=("/bin/cuebook", "\udc80"))  # a folder name that is not UTF-8
    with pytest.raises(BadInput, match="was not changed"):
        written(CLIENTS["cursor"], odd, file)
    assert file.read_text() == '{"theme": "dark"}'
    (tmp_path / "taken").write_text("")
    with pytest.raises(BadInput, match="cannot be"):
        written(CLIENTS["cursor"], COMMAND, tmp_path / "taken" / "mcp.json")
    file.write_bytes(b'{"theme": "\xff"}')
    with pytest.raises(BadInput, match="cannot be read"):
        written(CLIENTS["cursor"], COMMAND, file)
    assert file.read_bytes() == b'{"theme": "\xff"}'
    assert sorted(os.listdir(tmp_path)) == ["mcp.json", "taken"]


@pytest.mark.parametrize("comment", ["", "// mine\n"])
def test_opencode_2_has_its_servers_one_level_deeper(tmp_path: Path, comment: str) -> None:
    file = tmp_path / "opencode.json"
    file.write_text(comment + '{"mcp": {"servers": {"x": {"type": "local", "command": ["x"]}}}}')
    written(CLIENTS["opencode"], COMMAND, file)
    assert file.read_text().startswith(comment)
    assert json.loads(file.read_text().removeprefix(comment))["mcp"]["servers"]["cuebook"]["command"] == [
        "/bin/cuebook",
        "mcp",
    ]


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("claude", {"type": "http", "url": ADDRESS.url, "headers": {"Authorization": "Bearer ${CUEBOOK_TOKEN}"}}),
        ("cursor", {"url": ADDRESS.url, "headers": {"Authorization": "Bearer ${env:CUEBOOK_TOKEN}"}}),
        ("vscode", {"type": "http", "url": ADDRESS.url, "headers": {"Authorization": "Bearer ${env:CUEBOOK_TOKEN}"}}),
        ("gemini", {"httpUrl": ADDRESS.url, "headers": {"Authorization": "Bearer $CUEBOOK_TOKEN"}}),
        ("windsurf", {"serverUrl": ADDRESS.url, "headers": {"Authorization": "Bearer ${env:CUEBOOK_TOKEN}"}}),
        ("zed", {"url": ADDRESS.url, "headers": {"Authorization": "Bearer CUEBOOK_TOKEN"}}),
        (
            "opencode",
            {"type": "remote", "url": ADDRESS.url, "headers": {"Authorization": "Bearer {env:CUEBOOK_TOKEN}"}},
        ),
    ],
)
def test_each_client_has_its_own_key_for_a_url(client: str, entry: dict[str, object]) -> None:
    assert json.loads(shown(CLIENTS[client], ADDRESS)) == {CLIENTS[client].key: {"cuebook": entry}}


def test_a_served_instance_is_reached_by_its_url(cli: CommandLine) -> None:
    printed = cli.call("mcp", "--tools", "install", "--client", "codex", "--url", "http://127.0.0.1:1/mcp?a=b")
    assert tomllib.loads(printed.out)["mcp_servers"]["cuebook"] == {
        "url": "http://127.0.0.1:1/mcp?a=b&tools=each",
        "bearer_token_env_var": "CUEBOOK_TOKEN",
    }
    message = cli.call("mcp", "install", "--client", "zed", "--url", ADDRESS.url).err
    assert "replace CUEBOOK_TOKEN with the token itself" in message


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["install", "--client", "claude-desktop", "--url", ADDRESS.url], "supports only servers"),
        (
            ["--folder", ".", "--web", "http://x", "install", "--client", "zed", "--url", ADDRESS.url],
            "--folder, --web cannot be combined with --url",
        ),
        (["install", "--client", "cursor", "--url", "127.0.0.1:8765"], "is not the URL of an MCP server"),
        (["install", "--client", "cursor", "--url", ""], "is not the URL of an MCP server"),
        (["install", "--client", "cursor", "--url", "http://127.0.0.1:8765"], "is not the URL of an MCP server"),
        (["--folder", "playbooks", "install", "--client", "cursor"], "playbooks is not a folder"),
        (["--project", "elsewhere", "install", "--client", "cursor"], "elsewhere is not a folder"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(cli: CommandLine, given: list[str], why: str) -> None:
    ran = cli.call("mcp", *given, "--write")
    assert ran.code == 2
    assert why in ran.err
    assert sorted(os.listdir(cli.work)) == ["tea.md"]


def test_an_entry_that_cannot_be_written_is_printed(cli: CommandLine) -> None:
    file = cli.write("settings.json", "{/* a comment\n}")
    ran = cli.call("mcp", "install", "--client", "zed", "--write", "--file", file)
    assert ran.code == 2
    assert "It was not changed. Add the printed entry by hand" in ran.err
    assert file.read_text() == "{/* a comment\n}"
    assert "mcp" in json.loads(ran.out)["context_servers"]["cuebook"]["args"]

"""The entry for the common assistants: what it says, where it belongs, and how it gets there without harming the rest."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cuebook.kernel.errors import BadInput

NAME = "cuebook"
TOKEN = "CUEBOOK_TOKEN"
"""The variable that holds the token where an assistant reaches a server over HTTP."""


class Entry(NamedTuple):
    """How the server is reached: by a command, or at an address."""

    command: tuple[str, ...] = ()
    url: str = ""


class Client(NamedTuple):
    """An assistant that knows MCP servers."""

    title: str
    where: str
    """The file, from the home (`~`) or the project."""
    key: tuple[str, ...] = ("mcpServers",)
    """Where the servers stand in it."""
    style: Literal["plain", "typed", "list", "toml"] = "plain"
    """`typed` names the transport, `list` has command and arguments in one, `toml` is no JSON."""
    variable: str = "${%s}"
    """How a variable of the environment is written."""


CLIENTS: dict[str, Client] = {
    "claude": Client("Claude Code", ".mcp.json", style="typed"),
    "claude-desktop": Client(
        "Claude Desktop",
        "~/Library/Application Support/Claude/claude_desktop_config.json"
        if sys.platform == "darwin"
        else "~/.config/Claude/claude_desktop_config.json",
    ),
    "cursor": Client("Cursor", ".cursor/mcp.json", variable="${env:%s}"),
    "vscode": Client("VS Code", ".vscode/mcp.json", ("servers",), "typed", "${env:%s}"),
    "codex": Client("Codex", "~/.codex/config.toml", ("mcp_servers",), "toml"),
    "gemini": Client("Gemini CLI", ".gemini/settings.json", variable="$%s"),
    "windsurf": Client("Windsurf", "~/.codeium/windsurf/mcp_config.json", variable="${env:%s}"),
    "zed": Client("Zed", "~/.config/zed/settings.json", ("context_servers",)),
    "opencode": Client("OpenCode", "opencode.json", ("mcp",), "list", "{env:%s}"),
}


def path_of(client: Client, project: Path, home: Path) -> Path:
    return home / client.where[2:] if client.where.startswith("~/") else project / client.where


def shown(client: Client, entry: Entry) -> str:
    """The entry as it stands in the client's file, with what is around it."""
    if client.style == "toml":
        return _toml(client, entry)
    return json.dumps({client.key[0]: {NAME: _value(client, entry)}}, indent=2, ensure_ascii=False) + "\n"


def written(client: Client, entry: Entry, path: Path) -> None:
    """Puts the entry into the client's file; whatever else is in there stays as it is."""
    before = _read(path)
    after = _merged_toml(client, entry, before) if client.style == "toml" else _merged_json(client, entry, before, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(after, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix="Leave --write out, and copy it.") from None


def _value(client: Client, entry: Entry) -> dict[str, Any]:
    if entry.url:
        value: dict[str, Any] = {"url": entry.url, "headers": {"Authorization": f"Bearer {client.variable % TOKEN}"}}
        kind = {"typed": "http", "list": "remote"}.get(client.style)
        return {"type": kind, **value} if kind else value
    if client.style == "list":
        return {"type": "local", "command": list(entry.command), "enabled": True}
    value = {"command": entry.command[0], "args": list(entry.command[1:])}
    return {"type": "stdio", **value} if client.style == "typed" else value


def _merged_json(client: Client, entry: Entry, before: str, path: Path) -> str:
    try:
        known = json.loads(before) if before.strip() else {}
    except ValueError as error:
        raise BadInput(
            f"{path} is no plain JSON ({error}), and is left as it is.", fix="Leave --write out, and copy the entry."
        ) from None
    servers = known.setdefault(client.key[0], {}) if isinstance(known, dict) else None
    if not isinstance(servers, dict):
        raise BadInput(f"{path} has no place for '{client.key[0]}', and is left as it is.", fix="Leave --write out.")
    servers[NAME] = _value(client, entry)
    return json.dumps(known, indent=2, ensure_ascii=False) + "\n"


def _toml(client: Client, entry: Entry) -> str:
    lines = [f"[{client.key[0]}.{NAME}]"]
    if entry.url:
        lines += [f"url = {json.dumps(entry.url)}", f"bearer_token_env_var = {json.dumps(TOKEN)}"]
    else:
        arguments = ", ".join(json.dumps(one, ensure_ascii=False) for one in entry.command[1:])
        lines += [f"command = {json.dumps(entry.command[0], ensure_ascii=False)}", f"args = [{arguments}]"]
    return "\n".join(lines) + "\n"


def _merged_toml(client: Client, entry: Entry, before: str) -> str:
    """The table of this name is replaced; every other line stays."""
    head = re.escape(f"[{client.key[0]}.{NAME}]")
    kept = re.sub(rf"(?ms)^{head}[ \t]*\n.*?(?=^\[|\Z)", "", before).rstrip("\n")
    return f"{kept}\n\n{_toml(client, entry)}" if kept else _toml(client, entry)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.", fix="Leave --write out, and copy the entry.") from None

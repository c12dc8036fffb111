"""The configuration entry for common assistants: its content, its file, and how it is written.

A file is replaced atomically, and only if nothing else in it changes.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cuebook.kernel.errors import BadInput
from cuebook.surfaces.mcp.install.edit import (
    CannotEdit,
    into_json,
    into_toml,
    out_of_json,
    out_of_toml,
    read_json,
    table_of,
)

NAME = "cuebook"
TOKEN = "CUEBOOK_TOKEN"
"""The environment variable with the token for a server over HTTP."""
BY_HAND = "Add the printed entry by hand."


class Entry(NamedTuple):
    """How a client reaches the server: by a command, or at a URL."""

    command: tuple[str, ...] = ()
    url: str = ""


class Client(NamedTuple):
    """An assistant that supports MCP servers."""

    title: str
    where: str
    """The path of its file, below the home folder (`~`) or the project."""
    key: str = "mcpServers"
    """The key of the servers in that file."""
    style: Literal["plain", "typed", "list", "toml"] = "plain"
    """`typed` names the transport, `list` has command and arguments in one list, `toml` is TOML instead of JSON."""
    variable: str = "${%s}"
    """How to write an environment variable; `%s` if the client does not expand variables."""
    address: str = "url"
    """Its key for the URL of a streamable HTTP server; empty if it supports only commands."""
    skills: str = ""
    """The folder of its skills, below the home folder (`~`) or the project; empty if it has none."""


CLIENTS: dict[str, Client] = {
    "claude": Client("Claude Code", ".mcp.json", style="typed", skills=".claude/skills"),
    "claude-desktop": Client(
        "Claude Desktop",
        "~/Library/Application Support/Claude/claude_desktop_config.json"
        if sys.platform == "darwin"
        else "~/.config/Claude/claude_desktop_config.json",
        address="",
    ),
    "cursor": Client("Cursor", ".cursor/mcp.json", variable="${env:%s}", skills=".cursor/skills"),
    "vscode": Client("VS Code", ".vscode/mcp.json", "servers", "typed", "${env:%s}", skills=".github/skills"),
    "codex": Client("Codex", "~/.codex/config.toml", "mcp_servers", "toml", skills="~/.codex/skills"),
    "gemini": Client("Gemini CLI", ".gemini/settings.json", variable="$%s", address="httpUrl", skills=".gemini/skills"),
    "windsurf": Client(
        "Windsurf",
        "~/.codeium/windsurf/mcp_config.json",
        variable="${env:%s}",
        address="serverUrl",
        skills=".windsurf/skills",
    ),
    "zed": Client("Zed", "~/.config/zed/settings.json", "context_servers", variable="%s"),
    "opencode": Client("OpenCode", "opencode.json", "mcp", "list", "{env:%s}", skills=".opencode/skills"),
}


def path_of(client: Client, project: Path, home: Path) -> Path:
    return home / client.where[2:] if client.where.startswith("~/") else project / client.where


def shown(client: Client, entry: Entry) -> str:
    """The entry as it appears in the client's file, with the keys around it."""
    if client.style == "toml":
        return table_of((client.key, NAME), _value(client, entry))
    return json.dumps({client.key: {NAME: _value(client, entry)}}, indent=2, ensure_ascii=False) + "\n"


def token_needed(client: Client) -> str:
    """The remaining step for the user if the entry has a URL."""
    if client.style != "toml" and client.variable == "%s":
        return f"{client.title} does not expand variables: replace {TOKEN} with the token itself."
    return f"{client.title} reads the token from the variable {TOKEN}."


def written(client: Client, entry: Entry, path: Path) -> None:
    """Write the entry into the client's file. Raises `BadInput` if anything else in it would change."""
    _change(path, lambda before: _amended(client, entry, before))


def removed(client: Client, path: Path) -> bool:
    """Remove the entry from the client's file; returns whether there was one. Raises `BadInput` if anything else in it would
    change."""
    if not path.exists():
        return False
    return _change(path, lambda before: _without_entry(client, before))


def _change(path: Path, changed: Callable[[str], str]) -> bool:
    for one in (path, *path.parents):
        if os.path.islink(one) and not os.path.exists(one):
            raise BadInput(
                f"{one} is a broken link to {os.readlink(one)}; nothing was written.",
                fix="Create the target, or remove the link.",
            )
    try:
        before = path.read_bytes().decode()
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.", fix=BY_HAND) from None
    try:
        after = changed(before).encode()
    except CannotEdit as why:
        raise BadInput(f"{path} {why}. It was not changed.", fix=BY_HAND) from None
    except UnicodeEncodeError:
        raise BadInput(
            f"{path} was not changed: the entry has characters that UTF-8 cannot encode.", fix=BY_HAND
        ) from None
    if after == before.encode():
        return False
    try:
        replace_file(Path(os.path.realpath(path)), after)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix=BY_HAND) from None
    return True


def _without_entry(client: Client, before: str) -> str:
    if client.style == "toml":
        return out_of_toml(before, (client.key, NAME))
    nested = client.style == "list" and _is_nested(before, client.key)
    return out_of_json(before, (client.key, "servers", NAME) if nested else (client.key, NAME))


def _amended(client: Client, entry: Entry, before: str) -> str:
    value = _value(client, entry)
    if client.style == "toml":
        return into_toml(before, (client.key, NAME), value)
    if client.style == "list" and _is_nested(before, client.key):
        return into_json(before, (client.key, "servers", NAME), value)
    return into_json(before, (client.key, NAME), value)


def _is_nested(text: str, key: str) -> bool:
    """Whether the servers are one level deeper, as in OpenCode 2, which supports both forms."""
    try:
        servers = read_json(text)[key]["servers"]
    except (CannotEdit, LookupError, TypeError):
        return False
    return isinstance(servers, dict) and "type" not in servers


def _value(client: Client, entry: Entry) -> dict[str, Any]:
    if entry.url and client.style == "toml":
        return {"url": entry.url, "bearer_token_env_var": TOKEN}
    if entry.url:
        value: dict[str, Any] = {
            client.address: entry.url,
            "headers": {"Authorization": f"Bearer {client.variable % TOKEN}"},
        }
        kind = {"typed": "http", "list": "remote"}.get(client.style)
        return {"type": kind, **value} if kind else value
    if client.style == "list":
        return {"type": "local", "command": list(entry.command)}
    value = {"command": entry.command[0], "args": list(entry.command[1:])}
    return {"type": "stdio", **value} if client.style == "typed" else value


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file atomically, keeping its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb") as file:
            if path.exists():
                os.chmod(beside, stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)

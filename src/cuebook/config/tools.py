"""Everything that `cuebook.toml` lets playbooks access: tool servers, Python tools, web search, skills.

Only the form of the entries is checked: a server that does not start or a missing function is reported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import EVERYWHERE
from cuebook.kernel.tool_names import HOW_NAMED, SERVER_NAME

if TYPE_CHECKING:
    from cuebook.config.agents import AgentSettings

_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_SKILL = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_HANDLE = re.compile(r"(env|keyring|file|secret):\S+")
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_MANAGED = re.compile(r"(vault|op|aws|gcp|exec):\S")
SEARCHES = ("searxng", "brave", "tavily")


@dataclass(frozen=True)
class ToolServer:
    """An MCP server: a command that communicates over stdin and stdout, or a URL."""

    name: str
    where: str
    """The file and line that describe it."""
    command: tuple[str, ...] = ()
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, each with the handle of its value."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = False
    """Whether its claims about its own tools, such as being read-only, are trusted."""
    network: tuple[str, ...] = ()
    """The hosts that its command may reach; `EVERYWHERE` for `true`."""


@dataclass(frozen=True)
class Search:
    """The web search provider."""

    provider: Literal["searxng", "brave", "tavily"]
    url: str = ""
    key: str = ""
    """The handle of its key."""


@dataclass(frozen=True)
class SkillSettings:
    """The settings of a skill: values by name, secrets by their handles."""

    values: Mapping[str, str]
    where: str
    """The file and line that set them."""


@dataclass(frozen=True)
class NamedSecret:
    """A secret that a secret manager keeps."""

    handle: str
    """Where the manager has it, as in `op://Ops/GitHub/token`. Only the user's own file may say this."""
    where: str
    """The file and line that say so."""


@dataclass(frozen=True)
class Reach:
    servers: Mapping[str, ToolServer] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    """Python tools: `module:function` by name."""
    search: Search | None = None
    skills: Mapping[str, SkillSettings] = field(default_factory=dict)
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    secrets: Mapping[str, NamedSecret] = field(default_factory=dict)


Refuse = Callable[[str, str, str], BadInput]
"""Takes a dotted name, the problem and the fix; returns an error that includes the file and line."""


def server(name: str, table: Mapping[str, Any], where: str, refuse: Refuse, *, shared: bool) -> ToolServer:
    dotted = f"mcp.{name}"
    if not SERVER_NAME.fullmatch(name):
        raise refuse(dotted, f"'{name}' is not a valid tool server name.", HOW_NAMED)
    kinds: dict[str, Callable[[str, Any, Refuse], Any]] = {
        "command": words,
        "cwd": text,
        "env": texts,
        "secret_env": handles,
        "url": address,
        "headers": texts,
        "secret_headers": handles,
        "trusted": flag,
        "network": _network,
    }
    made = fields(dotted, table, kinds, refuse)
    if bool(made.get("command")) == bool(made.get("url")):
        raise refuse(
            dotted, "A tool server needs either a command or a url.", 'For example: command = ["my-server", "--stdio"].'
        )
    if shared and (made.get("trusted") or made.get("secret_env") or made.get("secret_headers")):
        raise refuse(
            dotted,
            "A project file may not trust a tool server or pass secrets to it.",
            "Move the table to your own cuebook.toml; `cuebook doctor` shows where that is.",
        )
    cwd = PurePosixPath(made.get("cwd", ""))
    if shared and (cwd.is_absolute() or ".." in cwd.parts):
        raise refuse(
            f"{dotted}.cwd",
            "The cwd of a project's tool server must be a relative path inside the workspace, without '..'.",
            "Correct it, or move the table to your own cuebook.toml.",
        )
    return ToolServer(name, where, **made)


def function(name: str, value: Any, refuse: Refuse, *, shared: bool) -> str:
    dotted = f"tools.{name}"
    if shared:
        raise refuse(
            dotted,
            "A project file may not define Python tools, because they run inside Cuebook itself, without a sandbox.",
            "Move the table to your own cuebook.toml.",
        )
    if not _TOOL.fullmatch(name):
        raise refuse(dotted, f"'{name}' is not a valid tool name.", "Use letters, digits, _ and -.")
    if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
        raise refuse(dotted, f"{dotted} must be a function.", 'For example: greet = "my_tools:greet".')
    return value


def search(table: Mapping[str, Any], refuse: Refuse, *, shared: bool) -> Search:
    if shared:
        raise refuse("search", "A project file may not configure web search.", "Move it to your own cuebook.toml.")
    kinds: dict[str, Callable[[str, Any, Refuse], Any]] = {"provider": text, "url": address, "key": handle}
    made = fields("search", table, kinds, refuse)
    if made.get("provider") not in SEARCHES:
        raise refuse("search.provider", f"search.provider must be one of {', '.join(SEARCHES)}.", "Correct it.")
    if made["provider"] == "searxng" and not made.get("url"):
        raise refuse("search", "searxng needs a url.", 'For example: url = "https://search.example.com".')
    if made["provider"] != "searxng" and not made.get("key"):
        raise refuse("search", f"{made['provider']} needs a key.", 'For example: key = "env:SEARCH_KEY".')
    return Search(**made)


def secret(name: str, value: Any, where: str, refuse: Refuse, *, shared: bool) -> NamedSecret:
    dotted = f"secrets.{name}"
    if shared:
        raise refuse(
            dotted,
            "A project file may not name secrets: it could start any program, or read any of your secrets.",
            "Move the table to your own cuebook.toml; `cuebook doctor` shows where that is.",
        )
    if not _SECRET.fullmatch(name):
        raise refuse("secrets", "Invalid secret name.", "Use up to 64 letters, digits, and . _ @ -, as in github.")
    if not isinstance(value, str) or not _MANAGED.match(value):
        raise refuse(
            dotted,
            f"{dotted} must say where a secret manager keeps the value; the value itself does not belong in a file.",
            'Write it as "vault:PATH#FIELD", "op://VAULT/ITEM/FIELD", "aws:NAME", "gcp:NAME" or "exec:PROGRAM ARGUMENTS".',
        )
    return NamedSecret(value, where)


def skill(name: str, table: Mapping[str, Any], where: str, refuse: Refuse, *, shared: bool) -> SkillSettings:
    dotted = f"skills.{name}"
    if shared:
        raise refuse(
            dotted,
            "A project file may not configure a skill: it could send your secrets elsewhere.",
            "Move the table to your own cuebook.toml, or set environment variables with these names.",
        )
    if not _SKILL.fullmatch(name):
        raise refuse(dotted, f"'{name}' is not a valid skill name.", "Use lowercase letters, digits and -.")
    values = {part: text(f"{dotted}.{part}", value, refuse) for part, value in table.items()}
    return SkillSettings(values, where)


def fields(
    dotted: str, table: Mapping[str, Any], kinds: Mapping[str, Callable[[str, Any, Refuse], Any]], refuse: Refuse
) -> dict[str, Any]:
    """The settings of a table, each converted by the function for its name."""
    made = {}
    for part, value in table.items():
        name = f"{dotted}.{part}"
        if part not in kinds:
            raise refuse(name, f"there is no setting '{name}'.", f"Known settings: {', '.join(kinds)}.")
        made[part] = kinds[part](name, value, refuse)
    return made


def text(name: str, value: Any, refuse: Refuse) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refuse(name, f"{name} must be a string.", "Put it in quotes.")
    return value.strip()


def flag(name: str, value: Any, refuse: Refuse) -> bool:
    if not isinstance(value, bool):
        raise refuse(name, f"{name} must be true or false.", "Correct or remove it.")
    return value


def _network(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    from cuebook.formats.addresses import BadHost, parse_place

    if isinstance(value, bool):
        return EVERYWHERE if value else ()
    if not isinstance(value, list) or not all(isinstance(host, str) for host in value):
        raise refuse(name, f"{name} must be true, false or a list of hosts.", 'For example: ["api.github.com"].')
    try:
        return tuple(str(parse_place(host)) for host in value)
    except BadHost as bad:
        raise refuse(name, bad.message, bad.fix) from None


def words(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise refuse(name, f"{name} must be a list of strings.", 'For example: ["my-server", "--stdio"].')
    return tuple(value)


def texts(name: str, value: Any, refuse: Refuse) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise refuse(name, f"{name} must be a table of strings.", 'For example: { NAME = "value" }.')
    return dict(value)


def handle(name: str, value: Any, refuse: Refuse) -> str:
    if not isinstance(value, str) or not _HANDLE.fullmatch(value):
        raise refuse(
            name,
            f"{name} must say where the secret is stored; the secret itself does not belong in a file.",
            'Write it as "env:NAME", "keyring:NAME" or "file:/path".',
        )
    return value


def handles(name: str, value: Any, refuse: Refuse) -> dict[str, str]:
    if not isinstance(value, dict):
        raise refuse(name, f"{name} must be a table.", 'For example: { TOKEN = "env:MY_TOKEN" }.')
    return {key: handle(f"{name}.{key}", one, refuse) for key, one in value.items()}


def address(name: str, value: Any, refuse: Refuse) -> str:
    given = text(name, value, refuse)
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise refuse(name, f"{name} must be an http or https URL without a password.", "Correct it.")
    return given

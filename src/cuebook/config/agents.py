"""The coding agents that `cuebook.toml` adds or changes. Only the form of the entries is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cuebook.config.tools import Refuse, fields, handles, texts, words

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class AgentSettings:
    """The settings of a coding agent; None for those that it does not set."""

    name: str
    where: str
    """The file and line that set them."""
    command: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None
    secret_env: Mapping[str, str] | None = None
    secret_files: Mapping[str, str] | None = None
    readable: tuple[str, ...] | None = None
    sign_in: str | None = None
    seconds: float | None = None
    stays: float | None = None
    memory: int | None = None
    processes: int | None = None


def agent(name: str, table: Mapping[str, Any], where: str, refuse: Refuse, *, shared: bool) -> AgentSettings:
    dotted = f"agents.{name}"
    if shared:
        raise refuse(
            dotted,
            "A project file may not define a coding agent: it could start any program with your secrets.",
            "Move the table to your own cuebook.toml; `cuebook doctor` shows where that is.",
        )
    if not _NAME.fullmatch(name):
        raise refuse(dotted, f"'{name}' is not a valid name of an agent.", "Use lowercase letters, digits and -.")
    kinds: dict[str, Callable[[str, Any, Refuse], Any]] = {
        "command": words,
        "hosts": _hosts,
        "env": texts,
        "secret_env": handles,
        "secret_files": _files,
        "readable": _paths,
        "sign_in": _word,
        "seconds": _number,
        "stays": _number,
        "memory": _size,
        "processes": _whole,
    }
    return AgentSettings(name, where, **fields(dotted, table, kinds, refuse))


def _hosts(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    from cuebook.formats.addresses import BadHost, parse_place

    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise refuse(name, f"{name} must be a list of hosts.", 'For example: ["api.example.com", "127.0.0.1:8080"].')
    try:
        return tuple(str(parse_place(host)) for host in value)
    except BadHost as bad:
        raise refuse(name, f"{name}: {bad.message}", bad.fix) from None


def _files(name: str, value: Any, refuse: Refuse) -> dict[str, str]:
    found = handles(name, value, refuse)
    for path in found:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise refuse(f"{name}.{path}", f"'{path}' must be a path in the agent's home folder.", "Make it relative.")
    return found


def _paths(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one.startswith("/") for one in value):
        raise refuse(name, f"{name} must be a list of absolute paths.", 'For example: ["/opt/tools"].')
    return tuple(value)


def _word(name: str, value: Any, refuse: Refuse) -> str:
    if not isinstance(value, str) or not value:
        raise refuse(name, f"{name} must be text.", 'For example: "api-key".')
    return value


def _number(name: str, value: Any, refuse: Refuse) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
        raise refuse(name, f"{name} must be a number of seconds.", "Correct it.")
    return float(value)


def _whole(name: str, value: Any, refuse: Refuse) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(name, f"{name} must be a whole number of at least 1.", "Correct it.")
    return value


def _size(name: str, value: Any, refuse: Refuse) -> int:
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    if isinstance(value, str) and value[-1:].lower() in units and value[:-1].isdigit():
        return int(value[:-1]) * units[value[-1].lower()]
    return _whole(name, value, refuse)

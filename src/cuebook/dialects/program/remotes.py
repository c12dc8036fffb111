"""Agents that live elsewhere: how their metadata says they are reached."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Literal

from cuebook.dialects.program.model import Remote
from cuebook.dialects.registry import Problem
from cuebook.dialects.wording import meant

TRANSPORTS = ("sse", "stdio", "websocket", "streamable-http", "memory")
_TYPES: dict[str, Literal["mcp", "cuebook"]] = {"mcp": "mcp", "cuebook": "cuebook", "playbooks": "cuebook"}
_AUTH = ("api_key", "bearer", "basic", "mtls")


def remote_of(metadata: Mapping[str, Any], line: int, problems: list[Problem]) -> Remote | None:
    """None for an agent of this program."""

    def wrong(message: str, fix: str) -> None:
        problems.append(Problem(message, line, fix, "REMOTE"))

    given = metadata.get("remote")
    if given is None and "mcp" in metadata:
        given = metadata["mcp"]
        given = {"type": "mcp", **given} if isinstance(given, dict) else given
    if given is None:
        return None
    if not isinstance(given, dict):
        wrong("What is 'remote' must be a table.", "Write type and url below it.")
        return None
    type = _TYPES.get(str(given.get("type", "mcp")).lower())
    if type is None:
        wrong(f"'{given['type']}' is no kind of remote agent.", meant(str(given["type"]), _TYPES))
        return None
    command = _command(given, wrong)
    transport = str(given.get("transport") or ("stdio" if command else "sse"))
    if type == "mcp" and transport not in TRANSPORTS:
        wrong(f"There is no transport '{transport}'.", meant(transport, TRANSPORTS))
    url = given.get("url") or ""
    if not isinstance(url, str) or not (url or command):
        wrong("A remote agent has no address.", "Write url, or the command that starts it.")
        return None
    auth = given.get("auth") or {}
    if not isinstance(auth, dict) or (auth and auth.get("type", "bearer") not in _AUTH):
        wrong("'auth' must be a table with a type.", f"There are {', '.join(_AUTH)}.")
        auth = {}
    return Remote(type, url, command, transport, _timeout(given, wrong), auth)


def _command(given: Mapping[str, Any], wrong: Any) -> tuple[str, ...]:
    command, args = given.get("command"), given.get("args") or []
    if command is None:
        return ()
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except (TypeError, ValueError):
        words = []
    words += args if isinstance(args, list) else [args]
    if not words or not all(isinstance(word, str | int | float) for word in words):
        wrong("'command' must be the words that start the tool server.", "Write it as one line, or as a list.")
        return ()
    return tuple(str(word) for word in words)


def _timeout(given: Mapping[str, Any], wrong: Any) -> float:
    seconds = given.get("timeout", 30)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        wrong(f"'timeout' must be a number of seconds, not {seconds!r}.", "Write timeout: 30.")
        return 30.0
    return float(seconds)

"""Parses the connections to remote agents from their metadata.

A program contains no credentials: the secret of `auth` is named as `${NAME}`, an environment variable of Cuebook, or by
its handle.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from cuebook.dialects.findings import Problem
from cuebook.dialects.program.model import Remote
from cuebook.dialects.program.parse.outline import Fence, Part
from cuebook.formats.suggestions import meant
from cuebook.kernel.effects import SecretUse

CARRIED = ("stdio", "streamable-http")
TRANSPORTS = (*CARRIED, "sse", "websocket", "memory")
_TYPES: dict[str, Literal["mcp", "cuebook", "playbook"]] = {
    **{"mcp": "mcp", "cuebook": "cuebook", "playbooks": "cuebook", "playbook": "playbook"}
}
_SECONDS = {"mcp": 30.0, "cuebook": 600.0}
"""The default timeout of one call. A playbook takes longer than a tool."""
_AUTH: dict[str, tuple[str, str]] = {
    "api_key": ("key", "{}"),
    "bearer": ("token", "Bearer {}"),
    "basic": ("password", "Basic {}"),
}
"""The field that names the secret and the value of the header, by type of authentication."""
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)\}")
_HANDLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*+|keyring:[^\s:][^\n]*+")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_USER = re.compile(r"[^\s:{}]{1,256}")

Wrong: TypeAlias = Callable[[str, str, str], None]
"""Reports a problem: the field, as in `auth.token`, the message and the fix."""


def remote_of(
    metadata: Mapping[str, Any], parts: Sequence[Part], line: int, errors: list[Problem], warnings: list[Problem]
) -> Remote | None:
    """Parse the configuration of a remote agent. Return None for a local agent. `parts` contains the metadata, and
    `line` is the agent's."""

    def wrong(field: str, message: str, fix: str) -> None:
        errors.append(Problem(message, _line_of(field, parts, line), fix, "REMOTE"))

    given = metadata.get("remote")
    if given is None and "mcp" in metadata:
        given = metadata["mcp"]
        given = {"type": "mcp", **given} if isinstance(given, dict) else given
    if given is None:
        return None
    if not isinstance(given, dict):
        wrong("", "'remote' must be a mapping.", "Write type and url below it.")
        return None
    type = _TYPES.get(str(given.get("type", "mcp")).lower())
    if type is None:
        wrong("type", f"Unknown type of remote agent '{given['type']}'.", meant(str(given["type"]), _TYPES))
        return None
    if type == "playbook":
        return _local(given, wrong)
    command = _command(given, wrong)
    url = given.get("url") or ""
    if not isinstance(url, str) or not (url or command):
        if "command" not in given:
            wrong("url", "A remote agent has neither a URL nor a command.", "Write url, or the command that starts it.")
        return None
    transport = _transport(given, url, command, wrong)
    if transport not in CARRIED and transport in TRANSPORTS:
        words = f"The transport '{transport}' is not supported: the agent cannot be reached."
        warnings.append(Problem(words, _line_of("transport", parts, line), f"Use {_or(CARRIED)}.", "REMOTE"))
    timeout = _timeout(given, _SECONDS[type], wrong)
    return Remote(type, url, command, transport, timeout, _auth(given, url, wrong))


def _local(given: Mapping[str, Any], wrong: Wrong) -> Remote | None:
    """An agent whose playbooks are files or stored playbooks on this machine."""
    named = given.get("playbooks", given.get("playbook"))
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(one, str) and one.strip() for one in names):
        wrong("playbooks", "A remote agent of the type 'playbook' names no playbooks.", "Write playbooks: [NAME].")
        return None
    surplus = [one for one in given if one not in ("type", "playbook", "playbooks")]
    if surplus:
        wrong(surplus[0], f"'{surplus[0]}' does not apply to the type 'playbook'.", "Remove it.")
        return None
    return Remote("playbook", playbooks=tuple(one.strip() for one in names))


def _line_of(field: str, parts: Sequence[Part], line: int) -> int:
    """The line of a field below `remote`, such as `auth.token`, or the nearest line that can be found."""
    path = [("remote", "mcp"), *((name,) for name in field.split(".") if name)]
    for part in parts:
        if path and not isinstance(part, Fence) and part.text.strip().partition(":")[0] in path[0]:
            line = part.number
            path.pop(0)
    return line


def _command(given: Mapping[str, Any], wrong: Wrong) -> tuple[str, ...]:
    command, args = given.get("command"), given.get("args") or []
    if command is None:
        return ()
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except (TypeError, ValueError):
        words = []
    words += args if isinstance(args, list) else [args]
    if not words or not all(isinstance(word, str | int | float) for word in words):
        message = "'command' must be the command line that starts the tool server."
        wrong("command", message, "Write it as a string, or as a list of words.")
        return ()
    return tuple(str(word) for word in words)


def _transport(given: Mapping[str, Any], url: str, command: tuple[str, ...], wrong: Wrong) -> str:
    usual = "stdio" if command else "streamable-http"
    transport = str(given.get("transport") or usual).replace("_", "-")
    transport = "streamable-http" if transport == "http" else transport
    if transport not in TRANSPORTS:
        wrong("transport", f"Unknown transport '{transport}'.", meant(transport, TRANSPORTS))
    elif url and command:
        wrong("command", "A remote agent has both a url and a command.", "Keep only one of them.")
    elif (transport == "stdio") != bool(command):
        what = "needs a command" if transport == "stdio" else "needs a url"
        wrong("transport", f"The transport '{transport}' {what}.", f"Write transport: {usual}, or leave it out.")
    return transport


def _timeout(given: Mapping[str, Any], usual: float, wrong: Wrong) -> float:
    seconds = given.get("timeout", usual)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        wrong("timeout", f"'timeout' must be a number of seconds, got {seconds!r}.", "Write timeout: 30.")
        return usual
    return float(seconds)


# --- authentication -----------------------------------------------------------------------------------------


def _auth(given: Mapping[str, Any], url: str, wrong: Wrong) -> SecretUse | None:
    auth = given.get("auth")
    if auth is None:
        return None
    kind = auth.get("type", "bearer") if isinstance(auth, dict) else None
    if kind == "mtls":
        message = "Client certificates (mtls) are not supported for remote agents."
        wrong("auth", message, f"Use {_or(_AUTH)}, or a proxy next to Cuebook that presents the certificate.")
        return None
    if not isinstance(auth, dict) or not isinstance(kind, str) or kind not in _AUTH:
        wrong("auth", "'auth' must be a mapping with a type.", f"The types are {_or(_AUTH)}.")
        return None
    if not url:
        wrong("auth", "'auth' needs a url.", "Remove it: a command obtains its own credentials.")
        return None
    field, form = _AUTH[kind]
    header, form = _shape(kind, form, auth, wrong)
    handle = _handle(auth.get(field))
    if not handle:
        message = f"The {field} of 'auth' must be a reference to a secret, not the secret itself."
        wrong(f"auth.{field}", message, f"Write {field}: ${{NAME}}, and set the variable NAME where Cuebook runs.")
        return None
    return SecretUse(header, handle, form)


def _shape(kind: str, form: str, auth: Mapping[str, Any], wrong: Wrong) -> tuple[str, str]:
    """The name of the header, and the form of its value around the secret."""
    if kind == "basic":
        user = auth.get("username")
        if not isinstance(user, str) or not _USER.fullmatch(user):
            wrong(
                "auth.username",
                "'auth' has no valid username.",
                "Write username: NAME, without ':' or braces.",
            )
            return "Authorization", form
        return "Authorization", f"Basic {user}:{{}}"
    if kind == "bearer":
        return "Authorization", form
    header = str(auth.get("header", "X-API-Key"))
    if not _HEADER.fullmatch(header):
        wrong("auth.header", "'header' must be the name of a header.", "Write header: X-API-Key.")
    return header, form


def _handle(named: Any) -> str:
    """The handle of a secret; empty if the value is not a reference to a secret."""
    if not isinstance(named, str):
        return ""
    variable = _VARIABLE.fullmatch(named.strip())
    if variable is not None:
        return f"env:{variable['name']}"
    return named.strip() if _HANDLE.fullmatch(named.strip()) else ""


def _or(words: Sequence[str] | Mapping[str, Any]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"

"""Parses what a command may reach beyond its workspace: the hosts of `network`, with the `credentials` that git gives them,
and the paths of `reads`.

Hosts and paths are fixed in the text, so that what a run may reach is known before it starts. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cuebook.dialects.pipeline.model import Credential, Secret
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.addresses import BadHost, parse_place
from cuebook.formats.values import Value

MOST = 20
"""The maximum number of hosts, and of paths, of a step."""
_OF_THE_SYSTEM = ("proc", "dev", "sys")


def hosts(scope: Scope, value: Value, at: str) -> tuple[str, ...]:
    """The hosts that a command may reach, in normal form."""
    found: dict[str, None] = {}
    for number, one in enumerate(_entries(scope, value, at)):
        text = scope.shape.text(one, f"{at}[{number}]").strip()
        if not text or not scope.fixed(text, one.line, at):
            continue
        try:
            found[str(parse_place(text))] = None
        except BadHost as error:
            scope.shape.wrong(one.line, f"{at}: {error.message}", error.fix, "BAD_HOST")
    return tuple(found)


def credentials(scope: Scope, value: Value, hosts: Collection[str], at: str) -> dict[str, Credential]:
    """A user name and a password for each host that git signs in at."""
    shape = scope.shape
    found: dict[str, Credential] = {}
    for name, one, line in shape.named(value, at):
        where = f"{at}.{name}"
        try:
            host = str(parse_place(name))
        except BadHost as error:
            shape.wrong(line, f"{where}: {error.message}", error.fix, "BAD_HOST")
            continue
        if host not in hosts:
            shape.wrong(line, f"{where}: the command cannot reach this host.", "Add it to network.", "BAD_HOST")
        fields = shape.closed(one, where, ("username", "password"), ("username", "password"))
        if len(fields) < 2:
            continue
        words = {key: shape.text(field, f"{where}.{key}") for key, field in fields.items()}
        username = scope.words(words["username"], fields["username"].line, f"{where}.username")
        password = scope.words_or_secret(words["password"], fields["password"].line, f"{where}.password")
        if isinstance(password, Secret):
            found[host] = Credential(username, password)
        elif words["password"]:
            fix = "Declare an argument with `secret: true` and refer to it, or write secret:HANDLE."
            shape.wrong(fields["password"].line, f"{where}.password must be a secret.", fix)
    return found


def paths(scope: Scope, value: Value, at: str) -> tuple[str, ...]:
    """The paths outside the workspace that a command may read."""
    found: dict[str, None] = {}
    for number, one in enumerate(_entries(scope, value, at)):
        text = scope.shape.text(one, f"{at}[{number}]").strip()
        if not text or not scope.fixed(text, one.line, at):
            continue
        flaw = path_flaw(text)
        if flaw:
            fix = "Write the full path of a file or folder, or a path that begins with ~/."
            scope.shape.wrong(one.line, f"{at}: '{text[:60]}' {flaw}.", fix, "BAD_PATH")
        found[text] = None
    return tuple(found)


def path_flaw(path: str) -> str:
    """Why a command cannot be given this path to read, as a clause; empty if it can."""
    parts = path.split("/")
    if "\0" in path or ".." in parts:
        return "contains '..' or a NUL character"
    if not path.startswith(("/", "~/")):
        return "is below the workspace, where commands can read anyway" if not path.startswith("~") else "is not a path"
    names = [part for part in parts if part not in ("", ".", "~")]
    if not names:
        return "is a whole home or file system"
    if path.startswith("/") and names[0] in _OF_THE_SYSTEM:
        return f"is part of /{names[0]}, which describes the running system"
    return "contains a pattern" if re.search(r"[*?\[]", path) else ""


def _entries(scope: Scope, value: Value, at: str) -> tuple[Value, ...]:
    entries = scope.shape.items(value, at, at_least=1)
    if len(entries) > MOST:
        scope.shape.wrong(entries[MOST].line, f"{at} has more than {MOST} entries.", "List fewer.")
    return tuple(entries[:MOST])

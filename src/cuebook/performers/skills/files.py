"""Skills in folders with a `SKILL.md`: found below roots, and read. Their settings and server are only reported.

The text is untrusted: its front matter is read as plain YAML of bounded size, and nothing in it is run or fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from cuebook.formats.builder import SMALL
from cuebook.formats.values import Malformed, Value
from cuebook.formats.yaml import read_yaml
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.files.paths import name_inside, read_named_inside

FOLDERS = (".sweny/skills", ".claude/skills", ".agents/skills", ".gemini/skills")
"""The folders of skills below a root; the first match counts."""
FILE = "SKILL.md"
CATEGORIES = ("git", "observability", "tasks", "notification", "data", "general")

_ID = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.ASCII)
_HEAD = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LONGEST_HEAD = 16_000
_MOST_FOLDERS = 500
"""The maximum number of folders that are searched for a skill whose folder has another name."""
_MAX_BYTES = 500_000


class BadSkill(BadInput):
    """The file does not describe a skill."""

    code = "bad_skill"


class Server(msgspec.Struct, frozen=True):
    """A tool server that a skill brings along. The values of `env` only describe the variables that are needed."""

    type: str
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    headers: dict[str, str] = {}
    env: dict[str, str] = {}


class FileSkill(msgspec.Struct, frozen=True):
    """A skill as its file describes it."""

    id: str
    description: str
    category: str
    instruction: str
    mcp: Server | None = None
    required: dict[str, str] = {}
    """The required variables, by the names of its settings."""


class Place(msgspec.Struct, frozen=True):
    """The location of a file: a root, and the path that policies use for it."""

    root: Path
    path: str


def is_id(given: str) -> bool:
    return bool(_ID.fullmatch(given))


def find(roots: Sequence[Path], skill: str) -> Place | None:
    """The file of a skill. Its folder usually has its name; otherwise the name in the file counts."""
    for root in roots:
        for folder in FOLDERS:
            path = f"{folder}/{skill}/{FILE}"
            if _is_there(root, path):
                return Place(root, path)
            for name in _names(root, folder):
                if name != skill and _is_called(root, f"{folder}/{name}/{FILE}", skill):
                    return Place(root, f"{folder}/{name}/{FILE}")
    return None


def ids(roots: Sequence[Path]) -> list[str]:
    """The names of folders with skills, for messages."""
    return sorted({name for root in roots for folder in FOLDERS for name in _names(root, folder)})


def read(place: Place) -> tuple[FileSkill, str]:
    """The skill, and the real path of the file that was opened."""
    data, name = read_named_inside(place.root, place.path, _MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadSkill(f"{place.path}: this is not UTF-8 text.", fix="Save it as UTF-8.") from None
    return parse(text, place.path), name


def parse(text: str, where: str) -> FileSkill:
    head = _HEAD.match(text)
    if head is None:
        raise BadSkill(
            f"{where}:1: the file does not begin with front matter that names the skill.",
            fix="Begin it with ---, name: my-skill, ---.",
        )
    described = _fields(head[1], where)
    fields = described.plain
    name = fields.get("name")
    if not isinstance(name, str) or not is_id(name):
        raise BadSkill(
            f"{_at(where, described, 'name')}: its name is {str(name)[:80]!a}, but a skill's name may contain only lowercase letters, digits and single '-'.",
            fix="Write it like `name: code-review`, with at most 64 characters.",
        )
    instruction, server = text[head.end() :].strip(), _server(fields.get("mcp"), _at(where, described, "mcp"))
    if not instruction and server is None:
        raise BadSkill(f"{where}: it contains neither an instruction nor an mcp server.", fix="Add an instruction.")
    description, category = fields.get("description"), fields.get("category")
    return FileSkill(
        id=name,
        description=description if isinstance(description, str) else "",
        category=category if category in CATEGORIES else "general",
        instruction=instruction,
        mcp=server,
        required=_required(fields.get("config"), _at(where, described, "config")),
    )


# --- the front matter -----------------------------------------------------------------------------------------


def _at(where: str, head: Value, field: str) -> str:
    """The line of a field; the first line of the file if the field is missing."""
    return f"{where}:{head.lines.get(field, 1)}"


def _fields(head: str, where: str) -> Value:
    if len(head) > _LONGEST_HEAD:
        raise BadSkill(
            f"{where}: its front matter is longer than {_LONGEST_HEAD} characters.", fix="Move text below it."
        )
    try:
        fields = read_yaml(f"\n{head}", SMALL)  # lines count from the '---' before it
    except Malformed as error:
        raise error.in_file(where, BadSkill) from None
    if fields.kind != "map":
        raise BadSkill(
            f"{where}:2: its front matter must consist of names and values.", fix="Write it like `name: my-skill`."
        )
    return fields


def _server(given: Any, where: str) -> Server | None:
    if given is None:
        return None
    try:
        server = msgspec.convert({"type": "", **given} if isinstance(given, dict) else given, Server)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadSkill(f"{where}: its mcp server is invalid: {error}.", fix=_MCP) from None
    if bool(server.command) == bool(server.url):
        raise BadSkill(f"{where}: its mcp server needs either a command or a url.", fix=_MCP)
    kind = "stdio" if server.command else "http"
    if server.type not in ("", kind):
        raise BadSkill(f"{where}: its mcp server is not of type {server.type!a}: it has a {_HAS[kind]}.", fix=_MCP)
    return msgspec.structs.replace(server, type=kind)


_HAS = {"stdio": "command", "http": "url"}
_MCP = "Write it with command and args, or with url and headers; env lists the variables that it needs."


def _required(given: Any, where: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(
        isinstance(name, str) and isinstance(one, dict) for name, one in given.items()
    ):
        raise BadSkill(
            f"{where}: its config must contain a table for each setting.", fix="Write NAME: {required: true}."
        )
    return {name: str(one.get("env") or name) for name, one in given.items() if one.get("required") is True}


# --- folders ------------------------------------------------------------------------------------------


def _names(root: Path, folder: str) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_FOLDERS) if not entry.name.startswith("."))
    except OSError:
        return
    for name in names:
        if _is_there(root, f"{folder}/{name}/{FILE}"):
            yield name


def _is_there(root: Path, path: str) -> bool:
    """Whether there is such a file below the root. A link that leads out of the root does not count."""
    try:
        return os.path.isfile(root / name_inside(root, path))
    except (BadInput, NotFound):
        return False


def _is_called(root: Path, path: str, skill: str) -> bool:
    try:
        return read(Place(root, path))[0].id == skill
    except BadInput:
        return False

"""Policy files as plain values with the line of each, from TOML or YAML. Knows nothing of what the values mean."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cuebook.kernel.errors import BadInput

LARGEST = 250_000
"""Bytes of a policy file."""
_DEEPEST = 8
_MOST = 50_000

Key = tuple[str | int, ...]
"""A path into the values, as in `("commands", "allow", 2)`."""


class Source(NamedTuple):
    """A policy file that was read."""

    where: str
    values: dict[str, Any]
    lines: dict[Key, int]

    def place(self, key: Key = ()) -> str:
        """`FILE:LINE` of a value, or of the nearest one around it."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.where}:{self.lines[key]}" if key in self.lines else self.where


def read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{path}: the file cannot be read: {error.strerror}.", fix="Check it.") from None
    if len(data) > LARGEST:
        raise BadInput(f"{path}: the file is larger than {LARGEST:,} bytes.", fix="No policy needs that much.")
    return data


def parse(path: Path, data: bytes) -> Source:
    """Reads the content of a file as its suffix says."""
    readers: dict[str, Callable[[str, str], Source]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: a policy is a .toml or .yaml file.", fix="Rename it.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: this is not UTF-8 text.", fix="Save it as UTF-8.") from None
    try:
        return reader(str(path), text)
    except RecursionError:
        raise _too_deep(str(path)) from None


# --- TOML ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\#[^\n]* | \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' | [\[\]{},=.\n]
    | [^\s\[\]{},=.\#"']+""",
    re.DOTALL | re.VERBOSE,
)


def _toml(where: str, text: str) -> Source:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = found[1] if found else text.count("\n") + 1
        said = re.sub(r"\s*\(at [^)]*\)", "", str(error)).strip().rstrip(".")
        raise BadInput(f"{where}:{line}: this is not TOML: {said}.", fix="Correct it.") from None
    return Source(where, values, _TomlLines(text).lines)


class _TomlLines:
    """Finds the line of every key and item, because TOML's reader keeps none. The text is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line, last = 1, 0
        for found in _TOKEN.finditer(text):
            line += text.count("\n", last, found.start())
            last = found.start()
            if not found[0].startswith("#"):
                self._tokens.append((found[0], line))
        self._at = 0
        self._document()

    def _document(self) -> None:
        table: Key = ()
        while self._at < len(self._tokens):
            if self._is("\n"):
                self._at += 1
            elif self._is("["):
                while self._is("["):
                    self._at += 1
                table = self._key((), "]")
                while self._is("]"):
                    self._at += 1
            else:
                self._value(self._key(table, "="))

    def _key(self, table: Key, until: str) -> Key:
        key = table
        while self._at < len(self._tokens) and not self._is(until):
            word, line = self._tokens[self._at]
            self._at += 1
            if word not in (".", "\n"):
                key = (*key, _unquoted(word))
                self.lines.setdefault(key, line)
        if until == "=":
            self._at += 1
        return key

    def _value(self, key: Key) -> None:
        if self._is("["):
            self._at += 1
            self._array(key)
        elif self._is("{"):
            self._at += 1
            while self._at < len(self._tokens) and not self._is("}"):
                if self._is(",") or self._is("\n"):
                    self._at += 1
                else:
                    self._value(self._key(key, "="))
            self._at += 1
        else:
            while self._at < len(self._tokens) and self._tokens[self._at][0] not in (",", "]", "}", "\n"):
                self._at += 1

    def _array(self, key: Key) -> None:
        number = 0
        while self._at < len(self._tokens) and not self._is("]"):
            if self._is(",") or self._is("\n"):
                self._at += 1
                continue
            self.lines[(*key, number)] = self._tokens[self._at][1]
            self._value((*key, number))
            number += 1
        self._at += 1

    def _is(self, word: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][0] == word


def _unquoted(word: str) -> str:
    return str(tomllib.loads(f"key = {word}")["key"]) if word[0] in "\"'" else word


# --- YAML ---------------------------------------------------------------------------------------------


def _yaml(where: str, text: str) -> Source:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        _check_depth(where, text)
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else text.count("\n") + 1
        fix = "Put a pattern that begins with * in quotes." if "alias" in str(error.problem) else "Correct it."
        raise BadInput(f"{where}:{line}: this is not YAML: {error.problem}.", fix=fix) from None
    except YAMLError as error:
        said = " ".join(str(error).split())
        raise BadInput(f"{where}: this is not YAML: {said}.", fix="Correct it.") from None
    lines: dict[Key, int] = {}
    values = {} if root is None else _plain(root, (), where, lines)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise BadInput(f"{where}: a policy must be a table of settings.", fix="Write it as in `version: 1`.")
    return Source(where, values, lines)


def _check_depth(where: str, text: str) -> None:
    """Ends before the reader does: it takes its time over what is nested deeply."""
    from ruamel.yaml import YAML
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            raise _too_deep(f"{where}:{event.start_mark.line + 1}")


def _too_deep(where: str) -> BadInput:
    return BadInput(f"{where}: the values are nested too deeply.", fix="Write it as a policy is written.")


def _plain(node: Any, key: Key, where: str, lines: dict[Key, int]) -> Any:
    """The plain value of a node. Nothing is built that a text could ask for: unknown tags are refused."""
    from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

    line = node.start_mark.line + 1
    if key:
        lines.setdefault(key, line)
    # A few aliases of aliases can stand for more values than there are atoms.
    if len(key) > _DEEPEST or len(lines) > _MOST:
        raise _too_deep(f"{where}:{line}")
    if isinstance(node, MappingNode):
        values: dict[str, Any] = {}
        for name_node, value_node in node.value:
            at = name_node.start_mark.line + 1
            if not isinstance(name_node, ScalarNode):
                raise BadInput(f"{where}:{at}: a setting's name must be a text.", fix="Correct it.")
            name = str(name_node.value)
            if name in values:
                raise BadInput(f"{where}:{at}: '{name}' is there twice.", fix="Remove one of them.")
            lines[(*key, name)] = at
            values[name] = _plain(value_node, (*key, name), where, lines)
        return values
    if isinstance(node, SequenceNode):
        return [_plain(item, (*key, number), where, lines) for number, item in enumerate(node.value)]
    return _scalar(str(node.tag), node.value, f"{where}:{line}")


def _scalar(tag: str, text: str, where: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": lambda number: int(number.replace("_", ""), 0),
        "float": float,
        "bool": lambda word: word.lower() == "true",
        "null": lambda word: None,
    }
    reader = readers.get(tag.removeprefix("tag:yaml.org,2002:"))
    try:
        if reader is not None:
            return reader(text)
    except ValueError:
        pass
    raise BadInput(f"{where}: '{text}' is nothing that a policy may hold.", fix="Put it in quotes.")

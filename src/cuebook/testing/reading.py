"""YAML and JSON as values that know how they were written, and where; and a reader that gathers everything wrong with a
file before it complains.

It knows nothing of what the values mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cuebook.dialects.yaml12 import slip
from cuebook.kernel.errors import BadInput

LARGEST = 2_000_000
"""Bytes of a file."""
_DEEPEST = 24
_MOST = 50_000

_TAG = "tag:yaml.org,2002:"


class BadFile(BadInput):
    """A file cannot be used as it is written."""

    code = "bad_file"


@dataclass(frozen=True)
class Node:
    """A value and the line it begins on."""

    line: int
    kind: str
    """`map`, `seq`, or what a scalar is: `str`, `int`, `float`, `bool`, `null`."""
    text: str = ""
    """A scalar as it was written."""
    items: Sequence[Node] = ()
    fields: Mapping[str, Node] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each field's name."""

    @property
    def is_scalar(self) -> bool:
        return self.kind not in ("map", "seq")

    @property
    def plain(self) -> Any:
        """The value itself."""
        if self.kind == "map":
            return {name: one.plain for name, one in self.fields.items()}
        if self.kind == "seq":
            return [one.plain for one in self.items]
        return _SCALARS[self.kind](self.text)

    @property
    def written(self) -> Any:
        """The value as a prompt would show it: 1.10 is not 1.1, and what has parts is JSON."""
        if not self.is_scalar:
            return self._json()
        return self.plain if self.kind in ("bool", "null") else self.text

    def _json(self) -> str:
        if self.kind == "map":
            return "{" + ", ".join(f"{_quoted(name)}: {one._json()}" for name, one in self.fields.items()) + "}"
        if self.kind == "seq":
            return "[" + ", ".join(one._json() for one in self.items) + "]"
        if self.kind in ("int", "float"):
            return self.text if _JSON_NUMBER.fullmatch(self.text) else _quoted(self.text)
        return _quoted(self.plain)


_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def _quoted(value: str | bool | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(text: str) -> int | float:
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        return int(text)  # leading zeros are no octal number in YAML 1.2


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: dict[str, Any] = {
    "str": str,
    "int": _number,
    "float": _float,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda text: None,
}


def read(path: Path) -> Node:
    """The one document in a YAML 1.2 file. `BadFile` names the line."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadFile(f"{path}: the file cannot be read: {error.strerror}.", fix="Check the path.") from None
    if len(data) > LARGEST:
        raise BadFile(f"{path}: the file is larger than {LARGEST:,} bytes.", fix="Split it.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadFile(f"{path}:{line}: this is not UTF-8 text.", fix="Save it as UTF-8.") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Node:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    try:
        depth = 0
        for event in YAML(typ="safe", pure=True).parse(text):  # composing takes its time over what is nested deeply
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > _DEEPEST:
                raise _too_much(where, event.start_mark.line + 1)
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else text.count("\n") + 1
        message, fix = slip(str(error.problem or error.context))
        raise BadFile(f"{where}:{line}: {message}.", fix=fix) from None
    except (YAMLError, ValueError) as error:
        said = " ".join(str(error).split())
        raise BadFile(f"{where}: this is not YAML: {said}.", fix="Correct it.") from None
    return Node(1, "null") if root is None else _Making(where).node(root, 0)


def parse_json(text: str, where: str) -> Node:
    """The same of JSON, except for the lines, which its reader does not tell."""
    try:
        numbers: dict[str, Any] = {"parse_int": _Int, "parse_float": _Float, "parse_constant": _Float}
        return _of_json(json.loads(text.removeprefix("\ufeff"), **numbers))
    except json.JSONDecodeError as error:
        raise BadFile(f"{where}:{error.lineno}: this is not JSON: {error.msg}.", fix="Correct it.") from None
    except RecursionError:
        raise BadFile(f"{where}: it is nested too deeply.", fix="Flatten it.") from None


class _Int(str):
    """A number as it was written."""


class _Float(str):
    """A number as it was written."""


def _of_json(value: Any) -> Node:
    match value:
        case dict():
            fields = {name: _of_json(one) for name, one in value.items()}
            return Node(1, "map", fields=fields, lines=dict.fromkeys(fields, 1))
        case list():
            return Node(1, "seq", items=[_of_json(one) for one in value])
        case _Int():
            return Node(1, "int", str(value))
        case bool() | None:
            return Node(1, "null" if value is None else "bool", _quoted(value))
        case _Float():
            return Node(1, "float", str(value))
        case _:
            return Node(1, "str", str(value))


def _too_much(where: str, line: int) -> BadFile:
    return BadFile(f"{where}:{line}: there is too much below this.", fix="Write it with fewer levels and references.")


class _Making:
    """Turns the nodes of the YAML library into ours. Nothing is built that a text could ask for."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._made = 0

    def node(self, given: Any, depth: int) -> Node:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        line = given.start_mark.line + 1
        self._made += 1
        # A few references to references can stand for more values than there are atoms.
        if depth > _DEEPEST or self._made > _MOST:
            raise _too_much(self._where, line)
        if isinstance(given, MappingNode):
            return self._map(given, line, depth)
        if isinstance(given, SequenceNode):
            return Node(line, "seq", items=[self.node(one, depth + 1) for one in given.value])
        return self._scalar(given, line)

    def _map(self, given: Any, line: int, depth: int) -> Node:
        from ruamel.yaml.nodes import ScalarNode

        fields: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for name_node, value in given.value:
            at = name_node.start_mark.line + 1
            if not isinstance(name_node, ScalarNode):
                raise BadFile(f"{self._where}:{at}: a name must be a text.", fix="Correct it.")
            name = str(name_node.value)
            if name in fields:
                raise BadFile(
                    f"{self._where}:{at}: '{name}' is there twice.", fix=f"The other is on line {lines[name]}."
                )
            fields[name], lines[name] = self.node(value, depth + 1), at
        return Node(line, "map", fields=fields, lines=lines)

    def _scalar(self, given: Any, line: int) -> Node:
        kind = str(given.tag).removeprefix(_TAG)
        if kind == "timestamp":  # a date is what was written, not a moment
            kind = "str"
        if kind not in _SCALARS:
            raise BadFile(f"{self._where}:{line}: there is no kind of value '{given.tag}'.", fix="Take the tag out.")
        node = Node(line, kind, str(given.value))
        try:
            _SCALARS[kind](node.text)
        except (ValueError, KeyError):
            raise BadFile(
                f"{self._where}:{line}: {_shown(node)} cannot be read as a value of the kind '{kind}'.",
                fix="Put it in quotes, and take a tag out.",
            ) from None
        return node


class Reader:
    """Reads nodes as what they should be, and notes what they are not."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[tuple[int, str]] = []

    def finish(self) -> None:
        """Raises `BadFile` with everything that was wrong, in the order of the file."""
        if self.problems:
            raise BadFile("\n".join(f"{self.where}:{line}: {words}" for line, words in sorted(self.problems)))

    def wrong(self, line: int, message: str, fix: str = "") -> None:
        self.problems.append((line, f"{message} {fix}".rstrip()))

    def table(self, node: Node, known: Sequence[str], what: str) -> dict[str, Node]:
        """The fields that may stand here; others are noted."""
        fields = self.fields(node, what)
        for name in fields:
            if name not in known:
                self.wrong(node.lines[name], f"There is no '{name}' in {what}.", meant(name, known))
        return {name: one for name, one in fields.items() if name in known and one.kind != "null"}

    def fields(self, node: Node, what: str) -> dict[str, Node]:
        """The fields, whatever they are called."""
        if node.kind == "map":
            return dict(node.fields)
        if node.kind != "null":
            self.wrong(node.line, f"{_first_up(what)} must be a table of names and values, not {_shown(node)}.")
        return {}

    def text(self, node: Node, what: str) -> str:
        if not node.is_scalar:
            self.wrong(node.line, f"{_first_up(what)} must be a text, not {_shown(node)}.")
            return ""
        return node.text

    def several(self, node: Node) -> Iterator[Node]:
        """One or a list of them."""
        if node.kind == "seq":
            yield from node.items
        elif node.kind != "null":
            yield node

    def texts(self, node: Node, what: str) -> tuple[str, ...]:
        return tuple(self.text(one, what) for one in self.several(node))

    def flag(self, node: Node, what: str) -> bool:
        if node.kind != "bool":
            self.wrong(node.line, f"{_first_up(what)} must be true or false, not {_shown(node)}.")
        return node.kind == "bool" and bool(node.plain)

    def choice(self, node: Node, what: str, known: Sequence[str]) -> str:
        given = self.text(node, what)
        if given and given not in known:
            self.wrong(node.line, f"{_first_up(what)} cannot be '{given}'.", meant(given, known))
        return given


def meant(name: str, known: Iterable[str]) -> str:
    """What may have been meant, or all there is."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"There are: {', '.join(names)}." if names else "There are none."


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(node: Node) -> str:
    if not node.is_scalar:
        return "a list" if node.kind == "seq" else "a table"
    return f"'{node.text}'" if len(node.text) <= 60 else f"a text of {len(node.text)} characters"

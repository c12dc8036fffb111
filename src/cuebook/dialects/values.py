"""Values that know the lines they were written on, and how they are put together: no name twice, and not without end.

It knows neither how they are written nor what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from cuebook.kernel.errors import BadInput

_LONGEST_NUMBER = 250
"""Characters. What is longer is a mistake, and no float could come near it, even where the digits are hexadecimal."""


class Limits(msgspec.Struct, frozen=True):
    """How much a text may hold."""

    depth: int = 100
    values: int = 5_000_000
    aliased: int = 50_000
    """Values that stand there only by reference: a few references to references can stand for more than there are atoms."""


ORDINARY = Limits()


class Malformed(BadInput):
    """The text cannot be read."""

    code = "malformed"

    def __init__(self, line: int, message: str, fix: str = "Correct it.") -> None:
        self.line = line
        super().__init__(message, fix=fix)


_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value and the line it begins on."""

    line: int
    kind: str
    """`map`, `seq`, or what a scalar is: `str`, `int`, `float`, `bool`, `null`."""
    text: str = ""
    """A scalar as it was written, without quotes."""
    items: Sequence[Value] = ()
    fields: Mapping[str, Value] = _NO_FIELDS
    lines: Mapping[str, int] = _NO_FIELDS
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
        return _PLAIN[self.kind](self.text)


def _whole(text: str) -> int:
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.removeprefix("+"))
    return int(f"{sign}{digits}", 0 if digits[:2] in ("0o", "0x") else 10)


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_PLAIN: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _whole,
    "float": _real,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
}


def shown(value: Value) -> str:
    """A value as a message quotes it."""
    if not value.is_scalar:
        return "a list" if value.kind == "seq" else "a table"
    if value.kind == "null":
        return "nothing"
    return f"'{value.text}'" if len(value.text) <= 60 else f"a text of {len(value.text)} characters"


# --- building -----------------------------------------------------------------------------------------------


class Open:
    """A map or a list that is still being filled."""

    __slots__ = ("anchor", "before", "fields", "items", "kind", "line", "lines", "name", "name_line")

    def __init__(self, kind: str, line: int, anchor: str | None, before: int) -> None:
        self.kind, self.line, self.anchor, self.before = kind, line, anchor, before
        self.items: list[Value] = []
        self.fields: dict[str, Value] = {}
        self.lines: dict[str, int] = {}
        self.name: str | None = None
        self.name_line = 0


class Building:
    """Puts values together as they come. Not recursive."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: list[Open] = []
        self._anchors: dict[str, tuple[Value, int] | None] = {}
        """By name, with the number of values in it; None while it is being filled."""
        self._made = 0
        self._aliased = 0
        self.root: Value | None = None

    @property
    def top(self) -> Open | None:
        return self._open[-1] if self._open else None

    def opened(self, kind: str, line: int, anchor: str | None = None) -> None:
        self._count(1, line)
        top = self.top
        if top is not None and top.kind == "map" and top.name is None:
            raise Malformed(line, "a name must be a text")
        if len(self._open) >= self._limits.depth:
            raise _too_much(line)
        if anchor is not None:
            self._anchors[anchor] = None
        self._open.append(Open(kind, line, anchor, self._made - 1))

    def closed(self) -> None:
        done = self._open.pop()
        if done.kind == "map":
            value = Value(done.line, "map", fields=done.fields, lines=done.lines)
        else:
            value = Value(done.line, "seq", items=done.items)
        self._put(value, done.anchor, self._made - done.before)

    def scalar(self, line: int, kind: str, text: str, anchor: str | None = None) -> None:
        self._count(1, line)
        if kind in ("int", "float") and len(text) > _LONGEST_NUMBER:
            raise Malformed(line, f"this number has {len(text)} characters", "Put it in quotes.")
        self._put(Value(line, kind, text), anchor, 1)

    def alias(self, line: int, anchor: str) -> None:
        if anchor not in self._anchors:
            raise Malformed(
                line, f"nothing is called '&{anchor}' before this", "Put a text that begins with * in quotes."
            )
        found = self._anchors[anchor]
        if found is None:
            raise Malformed(line, f"'*{anchor}' stands inside what it stands for", "Write it out.")
        value, size = found
        self._aliased += size
        if self._aliased > self._limits.aliased:
            raise _too_much(line)
        self._count(size, line)
        self._put(value, None, size)

    def _count(self, more: int, line: int) -> None:
        self._made += more
        if self._made > self._limits.values:
            raise _too_much(line)

    def _put(self, value: Value, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        top = self.top
        if top is None:
            self.root = value
        elif top.kind == "seq":
            top.items.append(value)
        elif top.name is None:
            self._name(top, value)
        else:
            top.fields[top.name], top.lines[top.name] = value, top.name_line
            top.name = None

    def _name(self, top: Open, value: Value) -> None:
        if not value.is_scalar:
            raise Malformed(value.line, "a name must be a text")
        if value.text in top.fields:
            first = top.lines[value.text]
            raise Malformed(value.line, f"'{value.text}' is there twice", f"The other is on line {first}.")
        top.name, top.name_line = value.text, value.line


def _too_much(line: int) -> Malformed:
    return Malformed(line, "there is too much below this", "Write it with fewer levels and references.")

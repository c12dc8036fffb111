"""Builds values from the events of a reader, with the same limits, anchors and duplicate checks for every format."""

from __future__ import annotations

import msgspec

from cuebook.formats.values import Malformed, Value


class Limits(msgspec.Struct, frozen=True):
    """Limits on the contents of a file."""

    depth: int = 100
    values: int = 5_000_000
    aliased: int = 50_000
    """Values reached only through aliases: a few aliases of aliases can expand to billions of values."""
    number: int = 250
    """Characters in a number. A longer number is a mistake: it exceeds every float, even in hexadecimal."""


ORDINARY = Limits()
SMALL = Limits(depth=24, values=50_000)
"""Limits for input, answer and test case files."""
UNCONVERTED = msgspec.structs.replace(SMALL, number=1_000_000)
"""Like `SMALL`, for readers that keep numbers as written."""


def checked_text(text: str) -> str:
    """Returns the text without a byte order mark. Raises `Malformed` if it cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(text.count("\n", 0, error.start) + 1, "this is not valid text", "Save it as UTF-8.") from None
    return text.removeprefix("\ufeff")


def whole_characters(text: str, line: int) -> str:
    """Joins surrogate pairs that were escaped as two separate halves."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Malformed(line, "half of a surrogate pair is missing") from None


class OpenValue:
    """A map or a list that is still being filled."""

    __slots__ = ("anchor", "before", "fields", "items", "kind", "line", "lines", "name", "name_line")

    def __init__(self, kind: str, line: int, anchor: str | None, before: int) -> None:
        self.kind, self.line, self.anchor, self.before = kind, line, anchor, before
        self.items: list[Value] = []
        self.fields: dict[str, Value] = {}
        self.lines: dict[str, int] = {}
        self.name: str | None = None
        self.name_line = 0


class Builder:
    """Assembles values as a reader finds them. Rejects duplicate names and anything that exceeds the limits.

    Not recursive, so depth cannot overflow the stack.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: list[OpenValue] = []
        self._anchors: dict[str, tuple[Value, int] | None] = {}
        """Anchored values by name, each with the number of values in it; None while it is being filled."""
        self._made = 0
        self._aliased = 0
        self.root: Value | None = None

    @property
    def top(self) -> OpenValue | None:
        return self._open[-1] if self._open else None

    def opened(self, kind: str, line: int, anchor: str | None = None) -> None:
        self._count(1, line)
        top = self.top
        if top is not None and top.kind == "map" and top.name is None:
            raise Malformed(line, "a name must be a string")
        if len(self._open) >= self._limits.depth:
            raise _too_much(line)
        if anchor is not None:
            self._anchors[anchor] = None
        self._open.append(OpenValue(kind, line, anchor, self._made - 1))

    def closed(self) -> None:
        done = self._open.pop()
        if done.kind == "map":
            value = Value(done.line, "map", fields=done.fields, lines=done.lines)
        else:
            value = Value(done.line, "seq", items=done.items)
        self._put(value, done.anchor, self._made - done.before)

    def scalar(self, line: int, kind: str, text: str, anchor: str | None = None) -> None:
        self._count(1, line)
        if kind in ("int", "float") and len(text) > self._limits.number:
            raise Malformed(line, f"this number has {len(text)} characters", "Put it in quotes.")
        self._put(Value(line, kind, text), anchor, 1)

    def alias(self, line: int, anchor: str) -> None:
        if anchor not in self._anchors:
            raise Malformed(
                line,
                f"unknown alias '*{anchor}'",
                f"Define '&{anchor}' before it, or put a string that begins with * in quotes.",
            )
        found = self._anchors[anchor]
        if found is None:
            raise Malformed(line, f"circular alias '*{anchor}'", "Write the value out.")
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

    def _name(self, top: OpenValue, value: Value) -> None:
        if not value.is_scalar:
            raise Malformed(value.line, "a name must be a string")
        if value.text in top.fields:
            first = top.lines[value.text]
            raise Malformed(
                value.line, f"'{value.text}' is defined twice", f"Remove one of them; the first is on line {first}."
            )
        top.name, top.name_line = value.text, value.line


def _too_much(line: int) -> Malformed:
    return Malformed(
        line, "this is nested too deeply or has too many values", "Write it with fewer levels and references."
    )

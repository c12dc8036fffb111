"""Reads JSON into values that record their line."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder

from cuebook.formats.builder import ORDINARY, Builder, Limits, OpenValue, checked_text, whole_characters
from cuebook.formats.values import Malformed, Value

_SPACES = frozenset(" \t\n\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(
    r"(?:(?P<bool>true|false)|(?P<null>null)|(?P<int>-?(?:0|[1-9][0-9]*))(?P<float>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))(?![\w.+-])",
    re.ASCII,
)


_STRINGS = JSONDecoder()


def read_json(text: str, limits: Limits = ORDINARY) -> Value:
    """Parses a JSON document. Raises `Malformed` with the line."""
    return _Json(checked_text(text), limits).value()


class _Json:
    """Reads a JSON document from start to end, without recursion."""

    def __init__(self, text: str, limits: Limits) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._builder = Builder(limits)

    def value(self) -> Value:
        builder = self._builder
        while builder.root is None:
            top = builder.top
            if top is None or top.name is not None or top.kind == "seq":
                self._item(top)
            else:
                self._field(top)
        if self._peek():
            raise self._wrong("there is more text after the value")
        return builder.root

    def _item(self, top: OpenValue | None) -> None:
        """Reads a value. In a list, also reads the comma before it, or the end of the list."""
        if top is not None and top.kind == "seq":
            if self._ends("]"):
                return
            if top.items:
                self._expect(",")
        letter = self._peek()
        line = self._line
        if letter in ("{", "["):
            self._at += 1
            self._builder.opened("map" if letter == "{" else "seq", line)
        elif letter == '"':
            self._builder.scalar(line, "str", self._string())
        else:
            self._builder.scalar(line, *self._plain())

    def _field(self, top: OpenValue) -> None:
        """Reads a name and its colon, or the end of the map."""
        if self._ends("}"):
            return
        if top.fields:
            self._expect(",")
        if self._peek() != '"':
            raise self._wrong("expected a name in double quotes")
        line = self._line
        self._builder.scalar(line, "str", self._string())
        self._expect(":")

    def _ends(self, bracket: str) -> bool:
        if self._peek() != bracket:
            return False
        self._at += 1
        self._builder.closed()
        return True

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong(f"'{sign}' is missing")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        letter = self._text[self._at : self._at + 1]
        if letter not in _SPACES:
            return letter
        found = _SPACE.match(self._text, self._at)
        if found:
            self._line += self._text.count("\n", self._at, found.end())  # a string contains no line breaks
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _string(self) -> str:
        try:
            text, self._at = _STRINGS.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            said = re.sub(r"( starting)? at$|:.*", "", error.msg)
            raise self._wrong(said[:1].lower() + said[1:]) from None
        return whole_characters(str(text), self._line)

    def _plain(self) -> tuple[str, str]:
        found = _SCALAR.match(self._text, self._at)
        if found is None:
            raise self._wrong("a value is missing" if self._at >= len(self._text) else "invalid value")
        self._at = found.end()
        kind = next(name for name in ("float", "int", "bool", "null") if found[name])
        return kind, found[0]

    def _wrong(self, message: str) -> Malformed:
        return Malformed(self._line, f"invalid JSON: {message}")

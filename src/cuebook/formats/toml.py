"""Reads TOML into values that record their line. The standard library parses it but does not keep line numbers."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from cuebook.formats.builder import ORDINARY, Builder, Limits
from cuebook.formats.values import Key, Malformed, Value

_TOKEN = re.compile(
    r"""\#[^\n]* | \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' | [\[\]{},=.\n]
    | [^\s\[\]{},=.\#"']+""",
    re.DOTALL | re.VERBOSE,
)
_KINDS: dict[type, str] = {str: "str", bool: "bool", int: "int", float: "float"}


def read_toml(text: str, limits: Limits = ORDINARY) -> Value:
    """Parses a TOML document into a table. Raises `Malformed` with the line."""
    try:
        builder = Builder(limits)
        _build(builder, tomllib.loads(text), _Lines(text).lines, (), 1)
    except ValueError as error:  # also raised for a number with more digits than Python converts
        found = re.search(r"line (\d+)", str(error))
        said = re.sub(r"\s*\(at [^)]*\)", "", str(error)).strip().rstrip(".")
        line = int(found[1]) if found else text.count("\n") + 1
        raise Malformed(line, f"invalid TOML: {said}") from None
    except RecursionError:
        raise Malformed(1, "this is nested too deeply", "Write it with fewer levels.") from None
    return builder.root if builder.root is not None else Value(1, "map")


def _build(builder: Builder, value: Any, lines: dict[Key, int], key: Key, line: int) -> None:
    if isinstance(value, dict):
        builder.opened("map", line)
        for name, one in value.items():
            at = lines.get((*key, name), line)
            builder.scalar(at, "str", name)
            _build(builder, one, lines, (*key, name), at)
        builder.closed()
    elif isinstance(value, list):
        builder.opened("seq", line)
        for number, one in enumerate(value):
            _build(builder, one, lines, (*key, number), lines.get((*key, number), line))
        builder.closed()
    else:
        builder.scalar(line, _KINDS.get(type(value), "date"), _text_of(value))


def _text_of(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
    return str(value.isoformat())


class _Lines:
    """Finds the line of every key and item in a valid TOML document."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._tables: dict[Key, int] = {}
        """The number of tables so far in each array of tables."""
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
                table = self._header()
            else:
                self._value(self._key(table, "="))

    def _header(self) -> Key:
        """The key of the table that `[a.b]` or `[[a.b]]` begins. In an array of tables, it refers to the last table."""
        brackets = self._skip("[")
        parts: list[tuple[str, int]] = []
        while self._at < len(self._tokens) and not self._is("]"):
            word, line = self._tokens[self._at]
            self._at += 1
            if word != ".":
                parts.append((_unquoted(word), line))
        self._skip("]")
        key: Key = ()
        for number, (part, line) in enumerate(parts, start=1):
            key = (*key, part)
            self.lines.setdefault(key, line)
            if brackets == 2 and number == len(parts):
                self._tables[key] = self._tables.get(key, 0) + 1
            if key in self._tables:
                key = (*key, self._tables[key] - 1)
                self.lines.setdefault(key, line)
        return key

    def _skip(self, word: str) -> int:
        """Skips consecutive occurrences of a word and returns their number."""
        count = 0
        while self._is(word):
            self._at += 1
            count += 1
        return count

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

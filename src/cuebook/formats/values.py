"""Values from a data file, each with its line number, and errors that report it.

This module depends on neither the syntax of files (see `yaml`, `json` and `toml`) nor the meaning of values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from cuebook.kernel.errors import BadInput

Key = tuple[str | int, ...]
"""A path to a value, as in `("commands", "allow", 2)`."""


class Malformed(BadInput):
    """The input cannot be parsed."""

    code = "malformed"

    def __init__(self, line: int, message: str, fix: str = "Correct it.") -> None:
        self.line = line
        super().__init__(message, fix=fix)

    def in_file(self, where: str, error: type[BadInput] = BadInput) -> BadInput:
        """Converts it to an error that includes the file name."""
        return error(f"{where}:{self.line}: {self.message}.", fix=self.fix)


class BadFile(BadInput):
    """A file cannot be used in its current form."""

    code = "bad_file"


_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value and the line it begins on."""

    line: int
    kind: str
    """`map`, `seq`, or the kind of a scalar: `str`, `int`, `float`, `bool`, `null`; in TOML also `date`."""
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

    @property
    def written(self) -> Any:
        """The value as a prompt shows it: numbers as they were written (1.10 is not 1.1), lists and tables as JSON."""
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

    @property
    def is_finite(self) -> bool:
        """Whether JSON can represent it: no number in it is infinite or NaN."""
        if self.kind == "map":
            return all(one.is_finite for one in self.fields.values())
        if self.kind == "seq":
            return all(one.is_finite for one in self.items)
        return self.kind != "float" or math.isfinite(self.plain)

    def lines_by_key(self) -> dict[Key, int]:
        """The line of every value in it: the line of its name, or of its list item."""
        return dict(self._lines_below(()))

    def _lines_below(self, key: Key) -> Iterator[tuple[Key, int]]:
        for name, one in self.fields.items():
            yield (*key, name), self.lines[name]
            yield from one._lines_below((*key, name))
        for number, one in enumerate(self.items):
            yield (*key, number), one.line
            yield from one._lines_below((*key, number))


_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def _quoted(value: str | bool | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _whole(text: str) -> int:
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.removeprefix("+"))
    return int(f"{sign}{digits}", 0 if digits[:2] in ("0o", "0x") else 10)


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _date(text: str) -> Any:
    import tomllib

    return tomllib.loads(f"date = {text}")["date"]


_PLAIN: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _whole,
    "float": _real,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
    "date": _date,
}


def shown(value: Value) -> str:
    """A value as quoted in messages."""
    if not value.is_scalar:
        return "a list" if value.kind == "seq" else "a table"
    if value.kind == "null":
        return "nothing"
    return f"'{value.text}'" if len(value.text) <= 60 else f"a string of {len(value.text)} characters"


# --- files --------------------------------------------------------------------------------------------------


def read_file(path: Path, largest: int, error: type[BadInput] = BadInput) -> bytes:
    """Returns the contents of a file. Raises an error with the path if it is unreadable or larger than `largest`
    bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as why:
        raise error(f"{path}: the file cannot be read: {why.strerror}.", fix="Check the path.") from None
    if len(data) > largest:
        raise error(f"{path}: the file is larger than {largest:,} bytes.", fix="Make it smaller.")
    return data


def decoded(data: bytes, where: str, error: type[BadInput] = BadInput) -> str:
    """Decodes the text of a file, without a byte order mark. Raises an error with the file and line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = data[: why.start].count(b"\n") + 1
        raise error(f"{where}:{line}: this is not UTF-8 text.", fix="Save it as UTF-8.") from None

"""Reads a test file: converts its values to the types that a case expects, and collects all problems in one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cuebook.formats.builder import SMALL
from cuebook.formats.suggestions import meant
from cuebook.formats.values import BadFile, Malformed, Value, decoded, read_file, shown
from cuebook.formats.yaml import read_yaml

_LARGEST = 2_000_000
"""The maximum size of a test file in bytes."""


def read(path: Path) -> Value:
    """The single document in a YAML file. Raises `BadFile` with the line of the mistake."""
    text = decoded(read_file(path, _LARGEST, BadFile), str(path), BadFile)
    try:
        return read_yaml(text, SMALL)
    except Malformed as error:
        raise error.in_file(str(path), BadFile) from None


class CaseReader:
    """Converts values to the expected types and collects the problems. A missing value counts as empty."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[tuple[int, str]] = []

    def finish(self) -> None:
        """Raises `BadFile` with every problem, in file order."""
        if self.problems:
            raise BadFile("\n".join(f"{self.where}:{line}: {words}" for line, words in sorted(self.problems)))

    def wrong(self, line: int, message: str, fix: str = "") -> None:
        self.problems.append((line, f"{message} {fix}".rstrip()))

    def table(self, value: Value, known: Sequence[str], what: str) -> dict[str, Value]:
        """The known fields that have a value; unknown fields are reported."""
        fields = self.fields(value, what)
        for name in fields:
            if name not in known:
                self.wrong(value.lines[name], f"Unknown key '{name}' in {what}.", meant(name, known))
        return {name: one for name, one in fields.items() if name in known and one.kind != "null"}

    def fields(self, value: Value, what: str) -> dict[str, Value]:
        """The fields of a table, whatever their names."""
        if value.kind == "map":
            return dict(value.fields)
        if value.kind != "null":
            self._not(value, what, "a table of names and values")
        return {}

    def text(self, value: Value, what: str) -> str:
        if not value.is_scalar:
            self._not(value, what, "a string")
            return ""
        return value.text

    def several(self, value: Value) -> Iterator[Value]:
        """The items of a list, or the value itself."""
        if value.kind == "seq":
            yield from value.items
        elif value.kind != "null":
            yield value

    def texts(self, value: Value, what: str) -> tuple[str, ...]:
        return tuple(self.text(one, what) for one in self.several(value))

    def flag(self, value: Value, what: str) -> bool:
        if value.kind != "bool":
            self._not(value, what, "true or false")
        return value.kind == "bool" and bool(value.plain)

    def choice(self, value: Value, what: str, known: Sequence[str]) -> str:
        given = self.text(value, what)
        if given and given not in known:
            self.wrong(value.line, f"{_first_up(what)} cannot be '{given}'.", meant(given, known))
        return given

    def _not(self, value: Value, what: str, expected: str) -> None:
        self.wrong(value.line, f"{_first_up(what)} must be {expected}, not {shown(value)}.")


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]

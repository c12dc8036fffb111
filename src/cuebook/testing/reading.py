"""YAML as values that know their lines, and a reader that gathers everything wrong with a file before it complains.

It knows nothing of what the values mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cuebook.dialects.values import Limits, Malformed, Value, shown
from cuebook.dialects.wording import meant
from cuebook.dialects.yaml12 import read_yaml
from cuebook.kernel.errors import BadInput

LARGEST = 2_000_000
"""Bytes of a file."""
_LIMITS = Limits(depth=24, values=50_000)


class BadFile(BadInput):
    """A file cannot be used as it is written."""

    code = "bad_file"


def read(path: Path) -> Value:
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


def parse(text: str, where: str) -> Value:
    try:
        return read_yaml(text, _LIMITS)
    except Malformed as error:
        raise BadFile(f"{where}:{error.line}: {error.message}.", fix=error.fix) from None


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

    def table(self, value: Value, known: Sequence[str], what: str) -> dict[str, Value]:
        """The fields that may stand here; others are noted."""
        fields = self.fields(value, what)
        for name in fields:
            if name not in known:
                self.wrong(value.lines[name], f"There is no '{name}' in {what}.", meant(name, known))
        return {name: one for name, one in fields.items() if name in known and one.kind != "null"}

    def fields(self, value: Value, what: str) -> dict[str, Value]:
        """The fields, whatever they are called."""
        if value.kind == "map":
            return dict(value.fields)
        if value.kind != "null":
            self.wrong(value.line, f"{_first_up(what)} must be a table of names and values, not {shown(value)}.")
        return {}

    def text(self, value: Value, what: str) -> str:
        if not value.is_scalar:
            self.wrong(value.line, f"{_first_up(what)} must be a text, not {shown(value)}.")
            return ""
        return value.text

    def several(self, value: Value) -> Iterator[Value]:
        """One or a list of them."""
        if value.kind == "seq":
            yield from value.items
        elif value.kind != "null":
            yield value

    def texts(self, value: Value, what: str) -> tuple[str, ...]:
        return tuple(self.text(one, what) for one in self.several(value))

    def flag(self, value: Value, what: str) -> bool:
        if value.kind != "bool":
            self.wrong(value.line, f"{_first_up(what)} must be true or false, not {shown(value)}.")
        return value.kind == "bool" and bool(value.plain)

    def choice(self, value: Value, what: str, known: Sequence[str]) -> str:
        given = self.text(value, what)
        if given and given not in known:
            self.wrong(value.line, f"{_first_up(what)} cannot be '{given}'.", meant(given, known))
        return given


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]

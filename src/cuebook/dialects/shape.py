"""Reads values as what a format says they are, and notes what they are not: line, words, code and what to do.

`SCHEMA` means that the format's schema refuses it; every other code says what is wrong by its name. It knows kinds of
values, and nothing of what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cuebook.dialects.registry import Problem
from cuebook.dialects.values import Value, shown
from cuebook.dialects.wording import Hints

SCHEMA = "SCHEMA"
_MOST_TOLD = 200


class Shape:
    """What has been found wrong so far. Where something is not what it should be, an empty value stands for it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.meant = Hints().meant
        """What may have been meant by a name that is not known."""

    def wrong(self, line: int, message: str, fix: str = "Correct it.", code: str = SCHEMA) -> None:
        self.problems.append(Problem(message, line, fix, code))

    def odd(self, line: int, message: str, fix: str, code: str) -> None:
        self.warnings.append(Problem(message, line, fix, code))

    # --- tables ---

    def closed(
        self, value: Value, at: str, known: Collection[str], needed: Sequence[str] = (), former: Collection[str] = ()
    ) -> Mapping[str, Value]:
        """The fields of a table in which no others may stand; those that are needed must. What is said of `former` ones is
        said elsewhere.
        """
        if value.kind != "map":
            self._not(value, at, "a table of names and values")
            return {}
        fields = value.fields
        for name in fields:
            if name not in known and name not in former:
                self.wrong(value.lines[name], f"There is no '{name}' in {at}.", self.meant(name, known))
        self.needs(value, at, needed)
        return fields

    def needs(self, value: Value, at: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in value.fields:
                self.wrong(value.line, f"'{name}' is missing in {at}.", "Add it.")

    def named(self, value: Value, at: str) -> Iterator[tuple[str, Value, int]]:
        """The fields of a table, whatever they are called, with the line of each name."""
        if value.kind != "map":
            self._not(value, at, "a table of names and values")
            return
        for name, one in value.fields.items():
            yield name, one, value.lines[name]

    # --- lists ---

    def items(self, value: Value, at: str, *, at_least: int = 0) -> Sequence[Value]:
        if value.kind != "seq":
            self._not(value, at, "a list")
            return ()
        if len(value.items) < at_least:
            self.wrong(value.line, f"{at} must not be empty.", "Add to it, or take it out.")
        return value.items

    def texts(self, value: Value, at: str, *, at_least: int = 0, empty: bool = False) -> tuple[str, ...]:
        items = self.items(value, at, at_least=at_least)
        return tuple(self.text(one, f"{at}[{number}]", empty=empty) for number, one in enumerate(items))

    # --- scalars ---

    def text(self, value: Value, at: str, *, empty: bool = False) -> str:
        if value.kind != "str":
            fix = "Put it in quotes." if value.is_scalar and value.kind != "null" else "Write a text."
            self._not(value, at, "a text", fix)
            return ""
        if not value.text and not empty:
            self.wrong(value.line, f"{at} must not be empty.", "Write a text, or take it out.")
        return value.text

    def whole(self, value: Value, at: str, least: int) -> int | None:
        number = value.plain if value.kind in ("int", "float") else None
        if number is None or not math.isfinite(number) or number != int(number) or number < least:
            self._not(value, at, f"a whole number of at least {least}")
            return None
        return int(number)

    def number(self, value: Value, at: str, least: float) -> float | None:
        number = value.plain if value.kind in ("int", "float") else None
        if number is None or not math.isfinite(number) or number < least:
            self._not(value, at, f"a number of at least {least:g}")
            return None
        return float(number)

    def flag(self, value: Value, at: str) -> bool:
        if value.kind != "bool":
            self._not(value, at, "true or false", "Write true or false without quotes.")
            return False
        return bool(value.plain)

    def choice(self, value: Value, at: str, known: Sequence[str]) -> str:
        given = self.text(value, at, empty=True)
        if value.kind == "str" and given not in known:
            self.wrong(value.line, f"{at} cannot be '{given[:60]}'.", self.meant(given, known))
        return given if given in known else known[0]

    # --- anything ---

    def plain(self, value: Value, at: str) -> Any:
        """The value itself, which JSON must be able to hold."""
        if not _finite(value):
            self.wrong(value.line, f"{at} holds a number that is not finite.", "JSON has no such number.", "NOT_FINITE")
            return None
        return value.plain

    def _not(self, value: Value, at: str, wanted: str, fix: str = "Correct it.") -> None:
        self.wrong(value.line, f"{at} must be {wanted}, not {shown(value)}.", fix)


def _finite(value: Value) -> bool:
    if value.kind == "map":
        return all(map(_finite, value.fields.values()))
    if value.kind == "seq":
        return all(map(_finite, value.items))
    return value.kind != "float" or math.isfinite(value.plain)


def in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.line or 0))


def as_told(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """So many as anyone would read."""
    rest = len(problems) - _MOST_TOLD
    if rest <= 0:
        return problems
    last = problems[_MOST_TOLD]
    more = Problem(f"There are {rest} more problems from here on.", last.line, "Correct those before first.", last.code)
    return (*problems[:_MOST_TOLD], more)

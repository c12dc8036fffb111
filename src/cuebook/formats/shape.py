"""Checks that values have the types a format expects, and collects every problem with its line, fix and code.

`SCHEMA` is the code for everything the format's schema rejects; every other code names its problem. This module checks
the types of values, not their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.formats.suggestions import Hints
from cuebook.formats.values import Value, shown

SCHEMA = "SCHEMA"
_MOST_SHOWN = 200


class Problem(msgspec.Struct, frozen=True):
    """A problem in a file."""

    message: str
    line: int | None = None
    fix: str = ""
    code: str = ""


class Shape:
    """Checks values one by one. A value of the wrong type is reported as a problem and treated as empty."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.meant = Hints().meant
        """Suggests a known name for an unknown one."""

    def wrong(self, line: int, message: str, fix: str = "Correct it.", code: str = SCHEMA) -> None:
        self.problems.append(Problem(message, line, fix, code))

    def odd(self, line: int, message: str, fix: str, code: str) -> None:
        self.warnings.append(Problem(message, line, fix, code))

    # --- tables ---

    def closed(
        self, value: Value, at: str, known: Collection[str], needed: Sequence[str] = (), former: Collection[str] = ()
    ) -> Mapping[str, Value]:
        """The fields of a table. Only `known` fields are allowed, and `needed` fields are required.

        The caller reports `former` fields.
        """
        if value.kind != "map":
            self._not(value, at, "a table of names and values")
            return {}
        fields = value.fields
        for name in fields:
            if name not in known and name not in former:
                self.wrong(value.lines[name], f"Unknown key '{name}' in {at}.", self.meant(name, known))
        self.needs(value, at, needed)
        return fields

    def needs(self, value: Value, at: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in value.fields:
                self.wrong(value.line, f"'{name}' is missing in {at}.", "Add it.")

    def named(self, value: Value, at: str) -> Iterator[tuple[str, Value, int]]:
        """The fields of a table that allows any names, with the line of each name."""
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
            self.wrong(value.line, f"{at} must not be empty.", "Add an entry, or remove it.")
        return value.items

    def texts(self, value: Value, at: str, *, at_least: int = 0, empty: bool = False) -> tuple[str, ...]:
        items = self.items(value, at, at_least=at_least)
        return tuple(self.text(one, f"{at}[{number}]", empty=empty) for number, one in enumerate(items))

    # --- scalars ---

    def text(self, value: Value, at: str, *, empty: bool = False) -> str:
        if value.kind != "str":
            fix = "Put it in quotes." if value.is_scalar and value.kind != "null" else "Write a string here."
            self._not(value, at, "a string", fix)
            return ""
        if not value.text and not empty:
            self.wrong(value.line, f"{at} must not be empty.", "Fill it in, or remove it.")
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
        """The value itself, which must be valid in JSON."""
        if not value.is_finite:
            self.wrong(
                value.line, f"{at} contains a number that is not finite.", "JSON does not support it.", "NOT_FINITE"
            )
            return None
        return value.plain

    def _not(self, value: Value, at: str, expected: str, fix: str = "Correct it.") -> None:
        self.wrong(value.line, f"{at} must be {expected}, not {shown(value)}.", fix)


def in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.line or 0))


def first_problems(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """The first problems, and a note about how many more there are."""
    rest = len(problems) - _MOST_SHOWN
    if rest <= 0:
        return problems
    last = problems[_MOST_SHOWN]
    more = Problem(f"There are {rest} more problems from here on.", last.line, "Correct the others first.", last.code)
    return (*problems[:_MOST_SHOWN], more)

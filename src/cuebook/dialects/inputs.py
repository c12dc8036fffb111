"""The inputs of a run: types, equality, validation, and error messages."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import float_info
from typing import Any

DEEPEST = 100
"""The maximum nesting of lists and objects. Code that handles values may recurse."""
_LARGEST = int(float_info.max)
"""The largest integer. Many JSON parsers cannot represent a larger one."""
WORDS = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "string[]": "a list of strings",
}
"""The types of inputs, each with the phrase that messages use."""


def shown(value: Any) -> str:
    """A value, shortened for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= 40 else text[:40] + "…"


def alike(one: Any, other: Any) -> bool:
    """Deep equality as in JSON: 1 equals 1.0, and true differs from 1."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case (list() | tuple(), list() | tuple()):
            return len(one) == len(other) and all(map(alike, one, other))
        case dict(), dict():
            return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    return bool(one == other)


def among(value: Any, enum: tuple[Any, ...]) -> bool:
    return any(alike(value, one) for one in enum)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value can be represented in JSON and is not nested too deeply."""
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) <= _LARGEST
        case float():
            return math.isfinite(value)
        case str():
            return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
        case list() | tuple():
            return depth < DEEPEST and all(is_plain(one, depth + 1) for one in value)
        case Mapping():
            names = all(isinstance(name, str) and is_plain(name, depth) for name in value)
            return names and depth < DEEPEST and all(is_plain(one, depth + 1) for one in value.values())
    return False


def is_deep(value: Any) -> bool:
    """Whether lists and objects are nested too deeply."""
    level = [value]
    for _ in range(DEEPEST):
        level = [one for outer in level for one in _within(outer)]
    return any(isinstance(one, list | dict) for one in level)


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def is_of(type_: str, value: Any) -> bool:
    """Whether a value has one of the types in `WORDS`."""
    match type_:
        case "string":
            return isinstance(value, str)
        case "number" | "integer":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and (type_ == "number" or (math.isfinite(value) and value == int(value)))
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list)
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def flaw(value: Any, type_: str | None, enum: tuple[Any, ...]) -> str:
    """The problem with a value, as a clause; empty if it is valid. Without a type, any type is valid."""
    if not is_plain(value):
        return "cannot be represented in JSON (numbers must be finite, names and strings valid UTF-8)"
    if type_ is not None and not is_of(type_, value):
        return f"must be {WORDS[type_]}, not {shown(value)}"
    if enum and not among(value, enum):
        return f"must be one of {', '.join(map(shown, enum))}, not {shown(value)}"
    return ""


def input_errors(missing: Sequence[str], wrong: Sequence[str]) -> str:
    """One message for all missing and invalid inputs."""
    parts = []
    if missing:
        parts.append(f"Missing input{'s' if len(missing) > 1 else ''}: {', '.join(missing)}.")
    if wrong:
        parts.append(f"Invalid input{'s' if len(wrong) > 1 else ''}: {'; '.join(wrong)}.")
    return " ".join(parts)


def input_fix(missing: Sequence[str], wrong: int, secrets: Collection[str] = ()) -> str:
    """The fix, with an option for each missing input. A secret is passed by its handle."""
    if missing:
        given = " ".join(f"--{name} {'HANDLE' if name in secrets else 'VALUE'}" for name in missing)
        handles = (
            " A handle is env:NAME, keyring:NAME, file:PATH or secret:NAME." if set(secrets) & set(missing) else ""
        )
        return f"Pass {given}.{handles}"
    return f"Correct {'it' if wrong == 1 else 'them'} and start again."

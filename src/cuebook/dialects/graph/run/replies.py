"""Extracts the data of a node from a model's reply. Pure; takes time proportional to the length of the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.formats.schema import mismatches

NOTHING = object()
"""The value if no JSON was found. None cannot be used, because null is JSON."""

TOO_DEEP = object()
"""The value if all JSON that was found is nested too deeply."""

DEEPEST = 100
"""The maximum nesting of objects and arrays."""

_OPENING = re.compile(r"```([a-zA-Z]*)\s*$")
_MARKS = re.compile(r'[{}"\\]')
_SHORT = 40


def data_of(text: str, schema: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The data of a reply, and a clause about how it violates the schema; the clause is empty if the data matches.

    Without a schema, a reply that is an object is used as is. Any other reply becomes the `summary`, next to the fields
    of any object in it.
    """
    value = found_in(text)
    if schema is None:
        if not isinstance(value, dict):
            return {"summary": text}, ""
        return (value if text.lstrip().startswith("{") else {"summary": text, **value}), ""
    if value is NOTHING or value is TOO_DEEP:
        problem = "no JSON" if value is NOTHING else f"JSON nested more than {DEEPEST} deep"
        return {"summary": text}, f"the reply holds {problem}"
    problem = "; ".join(mismatches(schema, value))
    return (value if isinstance(value, dict) else {"value": value}), problem


def found_in(text: str) -> Any:
    """The JSON in a reply: the whole reply, the last fenced block that is JSON, or the last object in braces.

    `NOTHING` if there is none.
    """
    found = NOTHING
    for candidate in _candidates(text.strip()):
        try:
            value = msgspec.json.decode(candidate)
        except RecursionError:
            found = TOO_DEEP
        except ValueError:
            continue
        else:
            if candidate.count("{") + candidate.count("[") <= DEEPEST or _is_shallow(value):
                return value
            found = TOO_DEEP
    return found


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        containers = [one for one in level if isinstance(one, dict | list)]
        if not containers:
            return True
        level = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]
    return False


def _candidates(text: str) -> Iterator[str]:
    """The parts of a reply that may be JSON. Parts of the same kind do not overlap, so trying them all takes linear
    time."""
    if text[:1] in ("{", "[", '"') or len(text) < _SHORT:
        yield text
    yield from reversed(_fenced(text))
    if "{" in text:
        yield from reversed(_braces(text))


def _fenced(text: str) -> list[str]:
    """The fenced blocks that are marked as JSON or look like it."""
    found: list[str] = []
    block: list[str] | None = None
    language = ""
    for line in text.split("\n") if "```" in text else ():
        if block is not None and not line.lstrip(" \t").startswith("```"):
            block.append(line)
        elif block is not None:
            inner = "\n".join(block)
            if language.lower() == "json" or inner.lstrip()[:1] in ("{", "["):
                found.append(inner)
            block = None
        else:
            opening = _OPENING.search(line, max(0, line.rfind("```")))
            if opening is not None:
                block, language = [], opening[1]
    return found


def _braces(text: str) -> list[str]:
    """The parts between outermost balanced braces. Quotes count only inside braces."""
    found: list[str] = []
    depth, start, inside, escaped = 0, 0, False, -1
    for mark in _MARKS.finditer(text):
        if mark.start() == escaped:
            continue
        match mark[0]:
            case "\\":
                escaped = mark.end() if inside else -1
            case '"':
                inside = depth > 0 and not inside
            case "{" if not inside:
                start = start if depth else mark.start()
                depth += 1
            case "}" if depth and not inside:
                depth -= 1
                if not depth:
                    found.append(text[start : mark.end()])
    return found

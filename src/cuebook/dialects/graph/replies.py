"""From a model's reply to a node's data. Pure, and in time that is in proportion to the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.dialects.schemas import mismatches

NOTHING = object()
"""No JSON was found; null is JSON."""

_FENCED = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_SHORT = 40


def data_of(text: str, schema: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The data that a reply comes to, and how it breaks the schema, empty where it does not.

    Without a schema, a reply that is an object is the data; another one is the summary, next to whatever object it holds.
    """
    value = found_in(text)
    if schema is None:
        if not isinstance(value, dict):
            return {"summary": text}, ""
        return (value if text.lstrip().startswith("{") else {"summary": text, **value}), ""
    if value is NOTHING:
        return {"summary": text}, "the reply holds no JSON"
    problem = "; ".join(mismatches(schema, value))
    return (value if isinstance(value, dict) else {"value": value}), problem


def found_in(text: str) -> Any:
    """The JSON of a reply: all of it, the last fenced block, or the last braces; `NOTHING` where there is none."""
    for candidate in _candidates(text.strip()):
        try:
            return msgspec.json.decode(candidate)
        except (ValueError, RecursionError):
            continue
    return NOTHING


def _candidates(text: str) -> Iterator[str]:
    if text[:1] in ("{", "[", '"') or len(text) < _SHORT:
        yield text
    if "{" not in text:
        return
    fenced = _FENCED.findall(text)
    if fenced:
        yield fenced[-1]
    braces = _last_braces(text)
    if braces:
        yield braces


def _last_braces(text: str) -> str:
    """The last balanced `{...}`, in one pass."""
    depth, start, found, inside, escaped = 0, 0, "", False, False
    for place, letter in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                inside = False
        elif letter == '"' and depth:
            inside = True
        elif letter == "{":
            start = start if depth else place
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
            found = text[start : place + 1] if not depth else found
    return found

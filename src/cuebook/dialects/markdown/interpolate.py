"""Fills placeholders in: `{{name}}`, `{{name:type}}` and `{{name:type:default}}`, in a single pass.

A value is never read again, so that what a model wrote cannot pull in other values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

_HEAD = re.compile(r"\{\{(\w+)(?::(\w+)(:)?)?", re.ASCII)


class Placeholder(msgspec.Struct, frozen=True):
    name: str
    default: str | None
    start: int
    end: int


def placeholders(text: str) -> Iterator[Placeholder]:
    """In order. Takes time in proportion to the text, whatever it holds."""
    position = 0
    brace = -1
    while (head := _HEAD.search(text, position)) is not None:
        position = head.start() + 1
        end, default = head.end(), None
        if head[3]:
            if brace < end:
                brace = text.find("}", end)
            if brace < 0:
                return
            default, end = text[head.end() : brace], brace
        if text.startswith("}}", end):
            yield Placeholder(head[1], default, head.start(), end + 2)
            position = end + 2


def render(text: str, values: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The text with values in place, and the names that had none: those stay as they are written."""
    pieces: list[str] = []
    unresolved: dict[str, None] = {}
    done = 0
    for found in placeholders(text):
        value = values.get(found.name, found.default)
        if value is None:
            unresolved[found.name] = None
            continue
        pieces += (text[done : found.start], value)
        done = found.end
    pieces.append(text[done:])
    return "".join(pieces), tuple(unresolved)

"""Replaces placeholders in a single pass: `{{name}}`, `{{name:type}}` and `{{name:type:default}}`.

Placeholders inside a value are not replaced, because the value may come from a model.
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
    """The placeholders in the text, in order. Takes time proportional to the length of the text."""
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
    """The text with placeholders replaced, and the names without a value, whose placeholders are kept."""
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

"""Whether a text is a workflow graph, told by the names at its top level, so that a broken one is known too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import splitext

from cuebook.dialects.graph.parse import FIELDS

_SUFFIXES = ("", ".yml", ".yaml", ".json")
_NAME = re.compile(r"^(?:\"(\w+)\"|'(\w+)'|(\w+))[ \t]*:(?=[ \t\r\n]|$)", re.ASCII | re.MULTILINE)
_FLOW = re.compile(
    r"\"([^\"\\]*(?:\\.[^\"\\]*)*)\"|'([^']*(?:''[^']*)*)'|([{\[])|([}\]])|(,)|(\w+)", re.ASCII | re.DOTALL
)
_BEFORE = re.compile(r"(?:\s|#[^\n]*|---(?=\s)|%[^\n]*\n)*")


def recognises(text: str, name: str) -> bool:
    """Nodes and edges, an id and an entry, or an id and a name beside which nothing stands that no workflow has."""
    if splitext(name)[1].lower() not in _SUFFIXES:
        return False
    names: set[str] = set()
    for one in _names(text):
        names.add(one)
        if {"nodes", "edges"} <= names or {"id", "entry"} <= names:
            return True
    return {"id", "name"} <= names <= set(FIELDS)


def _names(text: str) -> Iterator[str]:
    text = text.removeprefix("\ufeff")
    begin = _BEFORE.match(text)
    at = begin.end() if begin else 0
    if text[at : at + 1] == "{":
        yield from _flow_names(text, at)
        return
    for found in _NAME.finditer(text):
        yield found[1] or found[2] or found[3]


def _flow_names(text: str, at: int) -> Iterator[str]:
    """The names in the outermost braces."""
    depth = 0
    named = False
    for found in _FLOW.finditer(text, at):
        if found[3]:
            depth += 1
            named = named and depth > 1
        elif found[4]:
            depth -= 1
            if depth == 0:
                return
        elif depth == 1 and found[5]:
            named = False
        elif depth == 1 and not named:
            named = True
            yield found[1] or found[2] or found[6] or ""

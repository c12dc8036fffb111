"""The names at the top level of a text in YAML or JSON, also of one that is broken further down. It knows no dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator

SUFFIXES = ("", ".yml", ".yaml", ".json")
"""How the files end that may hold such a text; empty where it is no file."""
_NAME = re.compile(r"^(?:\"(\w+)\"|'(\w+)'|(\w+))[ \t]*:(?=[ \t\r\n]|$)", re.ASCII | re.MULTILINE)
_FLOW = re.compile(
    r"\"([^\"\\]*(?:\\.[^\"\\]*)*)\"|'([^']*(?:''[^']*)*)'|([{\[])|([}\]])|(,)|(\w+)", re.ASCII | re.DOTALL
)
_BEFORE = re.compile(r"(?:\s|#[^\n]*|---(?=\s)|%[^\n]*\n)*")


def names(text: str) -> Iterator[str]:
    """One after the other, so that nobody reads on who knows enough."""
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

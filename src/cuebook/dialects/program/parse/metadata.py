"""Separates the text below a heading into metadata, written as YAML, and the description.

In a compiled program, metadata is a block at the beginning, from `metadata:` to `---`. In an uncompiled source it may be anywhere.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.program.parse.outline import RULE, Fence, Line, Part
from cuebook.formats.values import Malformed
from cuebook.formats.yaml import read_yaml

_BLOCK = "metadata"
KNOWN = frozenset(
    {
        "author", "cli_entry", "delivery_channel", "execution_mode", "export", "hidden", "mcp", "meeting",
        "meeting_notifications", "model", "optional_attendees", "public", "remote", "required_attendees", "startup_mode",
    }
)  # fmt: skip
"""Known keys. At the beginning of the text a line with one of them is metadata, in compiled programs too."""
_KEY = re.compile(r"(?P<key>[a-z][a-z0-9_]*+):(?:[ \t]++(?P<value>.*\S))?[ \t]*+")
_FILLED = re.compile(r"[{$]")
"""Text that is filled in when a playbook begins is not metadata."""


class Area(msgspec.Struct, frozen=True):
    description: str
    metadata: dict[str, Any]
    problems: list[Problem]
    warnings: list[Problem]


def area_of(parts: list[Part], *, compiled: bool) -> Area:
    return _Reading(parts, compiled).area()


class _Reading:
    def __init__(self, parts: list[Part], compiled: bool) -> None:
        self._parts, self._compiled = parts, compiled
        self._kept: list[str] = []
        self._begins = True
        """Whether only metadata was found so far."""
        self._metadata: dict[str, Any] = {}
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []

    def area(self) -> Area:
        at = self._block()
        while at < len(self._parts):
            at = self._one(at)
        while self._kept and (not self._kept[-1].strip() or RULE.fullmatch(self._kept[-1])):
            self._kept.pop()
        description = "\n".join(line.rstrip() for line in self._kept).strip("\n").rstrip()
        return Area(description, self._metadata, self._problems, self._warnings)

    def _block(self) -> int:
        """Parse a block that ends in `---`, and return the index after it."""
        begin = next((at for at, part in enumerate(self._parts) if _text(part).strip()), len(self._parts))
        if begin == len(self._parts) or _text(self._parts[begin]).rstrip() != f"{_BLOCK}:":
            return 0
        lines: list[Line] = []
        for at in range(begin, len(self._parts)):
            part = self._parts[at]
            if isinstance(part, Fence):
                return 0
            if part.text.rstrip() == "---":
                self._take(lines, must=True)
                return at + 1
            lines.append(part)
        if self._compiled and any(_KEY.fullmatch(line.text) for line in lines[1:]):
            message = "The metadata that begins here does not end with '---', so unknown keys are read as text."
            self._warnings.append(Problem(message, lines[0].number, "Write --- after its last line.", "OPEN_METADATA"))
        return 0

    def _one(self, at: int) -> int:
        part = self._parts[at]
        found = None if isinstance(part, Fence) else _KEY.fullmatch(part.text)
        known = found is not None and (found["key"] in KNOWN or found["key"] == _BLOCK)
        if found is not None and (
            self._begins and known if self._compiled else not _FILLED.search(found["value"] or "")
        ):
            lines = self._lines(at, bare=not found["value"])
            if self._take(lines, must=known):
                behind = at + len(lines)
                if found["key"] == _BLOCK and behind < len(self._parts) and _text(self._parts[behind]).strip() == "---":
                    behind += 1
                return behind
        self._kept.append(_text(part))
        self._begins = self._begins and not _text(part).strip()
        return at + 1

    def _lines(self, at: int, *, bare: bool) -> list[Line]:
        """The line of a key and the lines that belong to it: indented lines and, after a bare key, list items."""
        lines: list[Line] = []
        while at < len(self._parts):
            part = self._parts[at]
            inside = not lines or _text(part)[:1] in (" ", "\t") or (bare and _text(part).startswith("- "))
            if isinstance(part, Fence) or not inside:
                break
            lines.append(part)
            at += 1
        while not lines[-1].text.strip():
            lines.pop()
        return lines

    def _take(self, lines: list[Line], *, must: bool) -> bool:
        """Store the lines if they are metadata, and return whether they are. With `must`, invalid YAML is reported."""
        try:
            values = read_yaml("\n".join(line.text for line in lines)).plain
        except Malformed as error:
            if must:
                line = lines[0].number + error.line - 1
                self._problems.append(Problem(f"Metadata: {error.message}.", line, error.fix, "METADATA"))
            return must
        if not isinstance(values, dict):
            return False
        inner = values.pop(_BLOCK, None)
        for name, value in {**(inner if isinstance(inner, dict) else {}), **values}.items():
            if name in self._metadata:
                message = f"'{name}' appears twice."
                self._problems.append(Problem(message, lines[0].number, "Keep one of them.", "METADATA"))
            self._metadata[name] = value
        return True


def _text(part: Part) -> str:
    return part.raw if isinstance(part, Fence) else part.text

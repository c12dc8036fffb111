"""Splits a playbook into sections and finds the lines that may be directives, branch markers or sub-steps.

Other modules interpret these lines.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["step", "system", "inputs", "artifacts", "other"]

# ASCII character classes, because other implementations of the format have only these.
TITLE = re.compile(r"#\s+(.+)", re.ASCII)
_SECTION = re.compile(r"##\s+.+", re.ASCII)
# At most 15 digits: not every implementation could represent a larger number.
_STEP = re.compile(r"##\s+STEP\s+(\d{1,15}):\s+(.+)", re.ASCII)
_KINDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"##\s+SYSTEM(?:\s+PROMPT)?", re.ASCII | re.IGNORECASE), "system"),
    (re.compile(r"##\s+INPUTS", re.ASCII | re.IGNORECASE), "inputs"),
    (re.compile(r"##\s+(?:ARTIFACTS|OUTPUT)", re.ASCII | re.IGNORECASE), "artifacts"),
)

# The leading line break is a literal that the search can jump to; `^` would be tried at every character.
_MARK = re.compile(r"\n(?:(##)[^\S\n]|###[^\S\n]|[^\S\n]*(?:@(?:output|elicit|prompt|tool|approve)\(|```))")
_FENCE = re.compile(r"\n[^\S\n]*(?:```|~~~)")
_FENCE_LINE = re.compile(r"(`{3,}|~{3,})(.*)")


class Section(msgspec.Struct, gc=False):
    kind: Kind
    heading: int
    """The index of its heading's row; -1 for the text before the first section."""
    end: int = 0
    """The index after its last row."""
    number: int = 0
    title: str = ""
    marks: list[int] = []
    """The indices of rows that may be a directive, a branch marker or the heading of a sub-step."""

    @property
    def start(self) -> int:
        return self.heading + 1


class Outline(msgspec.Struct, frozen=True, gc=False):
    raw: list[str]
    rows: list[str]
    """The same lines without trailing whitespace."""
    preamble: Section
    sections: list[Section]

    def text(self, section: Section) -> str:
        """The text of a section as written."""
        return "\n".join(self.raw[section.start : section.end]).strip()


def outline(text: str, *, fenced: bool = False) -> Outline:
    """Splits playbook text into sections. With `fenced`, lines inside a closed code fence are plain text."""
    # Split on "\n" only: `splitlines` also splits on U+2028 and form feeds, and would shift the line numbers.
    raw = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    rows = list(map(str.rstrip, raw))
    quoted = {index for a, b in fences(rows) for index in range(a + 1, b)} if fenced else set()
    current = preamble = Section("other", -1)
    sections: list[Section] = []
    joined = "\n" + "\n".join(rows)
    index, position = -1, 0
    for found in _MARK.finditer(joined):
        index += joined.count("\n", position, found.start() + 1)
        position = found.start() + 1
        if index in quoted:
            continue
        if found[1] is None:
            current.marks.append(index)
            continue
        section = _section(rows[index], index)
        if section is not None:
            current.end = index
            sections.append(section)
            current = section
    current.end = len(rows)
    return Outline(raw, rows, preamble, sections)


def _section(row: str, index: int) -> Section | None:
    step = _STEP.fullmatch(row)
    if step is not None:
        return Section("step", index, number=int(step[1]), title=step[2].strip())
    if _SECTION.fullmatch(row) is None:
        return None
    for pattern, kind in _KINDS:
        if pattern.fullmatch(row):
            return Section(kind, index)
    return Section("other", index)


def title(outline: Outline) -> tuple[str | None, str]:
    """The title and the description. The title is None if it is missing."""
    end = outline.preamble.end
    for index in range(end):
        row = outline.rows[index]
        if row.startswith("#") and (found := TITLE.fullmatch(row)):
            return found[1].strip(), "\n".join(outline.raw[index + 1 : end]).strip()
    return None, ""


def fences(rows: list[str]) -> list[tuple[int, int]]:
    """The row indices of the start and end of each closed code fence. Branch markers are not fences."""
    found: list[tuple[int, int]] = []
    opened, fence = -1, ""
    joined = "\n" + "\n".join(rows)
    index, position = -1, 0
    for candidate in _FENCE.finditer(joined):
        index += joined.count("\n", position, candidate.start() + 1)
        position = candidate.start() + 1
        line = _FENCE_LINE.fullmatch(rows[index].strip())
        if line is None:
            continue
        run, info = line[1], line[2]
        if opened < 0:
            if run[0] == "~" or "`" not in info:
                opened, fence = index, run
        elif run[0] == fence[0] and len(run) >= len(fence) and not info:
            found.append((opened, index))
            opened = -1
    return found

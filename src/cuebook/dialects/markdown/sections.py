"""Cuts a playbook's text into sections and finds the lines in them that may mean something.

It knows headings, and where directives and branch markers can stand; what these say is read elsewhere.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["step", "system", "inputs", "artifacts", "other"]

# ASCII classes, because the format's other readers have no others.
TITLE = re.compile(r"#\s+(.+)", re.ASCII)
_SECTION = re.compile(r"##\s+.+", re.ASCII)
# A number of more digits is no step: not every reader of the definition could hold it.
_STEP = re.compile(r"##\s+STEP\s+(\d{1,15}):\s+(.+)", re.ASCII)
_KINDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"##\s+SYSTEM(?:\s+PROMPT)?", re.ASCII | re.IGNORECASE), "system"),
    (re.compile(r"##\s+INPUTS", re.ASCII | re.IGNORECASE), "inputs"),
    (re.compile(r"##\s+(?:ARTIFACTS|OUTPUT)", re.ASCII | re.IGNORECASE), "artifacts"),
)

# The line break in front is a literal that the search can leap to; `^` would be tried at every character.
_MARK = re.compile(r"\n(?:(##)[^\S\n]|###[^\S\n]|[^\S\n]*(?:@(?:output|elicit|prompt|tool)\(|```))")
_FENCE = re.compile(r"\n[^\S\n]*(?:```|~~~)")
_FENCE_LINE = re.compile(r"(`{3,}|~{3,})(.*)")


class Section(msgspec.Struct, gc=False):
    kind: Kind
    heading: int
    """Index of its heading's row; -1 for what stands before the first section."""
    end: int = 0
    """Index after its last row."""
    number: int = 0
    title: str = ""
    marks: list[int] = []
    """Indices of the rows that may be a directive, a branch marker or the heading of a sub-step."""

    @property
    def start(self) -> int:
        return self.heading + 1


class Outline(msgspec.Struct, frozen=True, gc=False):
    raw: list[str]
    rows: list[str]
    """The same lines without trailing blanks."""
    preamble: Section
    sections: list[Section]

    def text(self, section: Section) -> str:
        """What the section says, as it was written."""
        return "\n".join(self.raw[section.start : section.end]).strip()


def outline(text: str, *, fenced: bool = False) -> Outline:
    """The sections of a text. With `fenced`, nothing inside a closed code fence begins one or means anything."""
    # Split on "\n" only: `splitlines` also splits on U+2028 and form feeds, and would shift the numbers.
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
    """Title and description; None where there is no title."""
    end = outline.preamble.end
    for index in range(end):
        row = outline.rows[index]
        if row.startswith("#") and (found := TITLE.fullmatch(row)):
            return found[1].strip(), "\n".join(outline.raw[index + 1 : end]).strip()
    return None, ""


def fences(rows: list[str]) -> list[tuple[int, int]]:
    """Code fences that are opened and closed, as indices of both rows. A branch marker is no fence."""
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

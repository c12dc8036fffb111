"""Splits the lines of a step into its text, branches and sub-steps, and reads the directives of each.

The parser and the checker share these drafts. Lines that the format silently ignores are recorded as oddities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Literal

import msgspec

from cuebook.dialects.markdown.parse.directives import Directive, read
from cuebook.dialects.markdown.parse.sections import Outline, Section

_CONDITION = re.compile(r'```(if|elif)\s+(\w+)\s*(==|!=)\s*"([^"]*)"\s*```', re.ASCII)
_SUBSTEP = re.compile(r"###\s+STEP\s+(\d+[a-z]):\s+(.+)", re.ASCII)

OddityKind = Literal["stray_marker", "nested_if", "second_block", "missing_endif", "substep_outside", "unread"]


class Oddity(msgspec.Struct, frozen=True, gc=False):
    kind: OddityKind
    index: int
    """The index of the row."""


class Passage(msgspec.Struct, gc=False):
    """The lines of a step or sub-step, without directives, markers and headings."""

    kept: list[tuple[int, int]] = []
    """Ranges of row indices."""
    directives: list[Directive] = []

    def text(self, rows: list[str]) -> str:
        """The text without surrounding blank lines. A line removed between blank lines leaves one blank line."""
        if len(self.kept) == 1:
            start, end = self.kept[0]
            return "\n".join(rows[start:end]).strip("\n")
        lines: list[str] = []
        for start, end in self.kept:
            if lines and start < end and not lines[-1] and not rows[start]:
                while len(lines) > 1 and not lines[-2]:
                    lines.pop()
                while start < end and not rows[start]:
                    start += 1
            lines += rows[start:end]
        return "\n".join(lines).strip("\n")


class SubDraft(msgspec.Struct, frozen=True, gc=False):
    index: int
    label: str
    title: str
    passage: Passage


class BranchDraft(msgspec.Struct, frozen=True, gc=False):
    index: int
    """The index of the marker's row."""
    condition: tuple[str, str, str] | None
    """Variable, operator and value; None for `else`."""
    lead: Passage
    """The lines before the first sub-step; the whole branch if it has no sub-steps."""
    substeps: list[SubDraft]


class StepDraft(msgspec.Struct, frozen=True, gc=False):
    section: Section
    outside: list[Passage]
    """The lines outside the branches, in order."""
    branches: list[BranchDraft]
    oddities: list[Oddity]

    def directives(self) -> list[Directive]:
        """The directives of the step itself."""
        return [directive for passage in self.outside for directive in passage.directives]

    def passages(self) -> list[Passage]:
        """All passages: those outside the branches first, then those inside."""
        inside = [p for b in self.branches for p in (b.lead, *(sub.passage for sub in b.substeps))]
        return [*self.outside, *inside]


def draft(outline: Outline, section: Section) -> StepDraft:
    reader = _Reader(outline.rows, section)
    for index in section.marks:
        reader.read(index)
    return reader.finish()


def content(passages: list[Passage], rows: list[str]) -> str:
    """The passages as one text, separated by blank lines."""
    if len(passages) == 1:
        return passages[0].text(rows).strip()
    # Only the whole text is trimmed: an indented heading inside must stay indented, or it would become a heading.
    return "\n\n".join(text for passage in passages if (text := passage.text(rows))).strip()


def letters(index: int) -> str:
    """Letters for an index: a to z, then aa, ab and so on."""
    word = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        word = chr(ord("a") + letter) + word
    return word


def headless_letters(number: int, branches: Sequence[BranchDraft]) -> list[str]:
    """For each branch, the letter of its sub-step if it has no heading: the letter of its position, or the next free
    letter if a heading already uses that letter.
    """
    taken = {sub.label for branch in branches for sub in branch.substeps}
    spare = (letter for place in count(len(branches)) if f"{number}{(letter := letters(place))}" not in taken)
    places = [letters(place) for place in range(len(branches))]
    return [
        next(spare) if not branch.substeps and f"{number}{letter}" in taken else letter
        for branch, letter in zip(branches, places, strict=True)
    ]


class _Reader:
    def __init__(self, rows: list[str], section: Section) -> None:
        self.rows = rows
        self.section = section
        self.passage = Passage()
        self.outside = [self.passage]
        self.branches: list[BranchDraft] = []
        self.oddities: list[Oddity] = []
        self.opened = -1
        """The row of the `if` that opened the current block; -1 outside a block."""
        self.cursor = section.start

    def read(self, index: int) -> None:
        row = self.rows[index]
        text = row.strip()
        if text[0] == "@":
            self._directive(text, index)
        elif text[0] == "`":
            self._marker(text, index)
        else:
            self._substep(row, index)

    def finish(self) -> StepDraft:
        if self.opened >= 0:
            self._odd("missing_endif", self.opened)
        self.passage.kept.append((self.cursor, self.section.end))
        return StepDraft(self.section, self.outside, self.branches, self.oddities)

    def _directive(self, text: str, index: int) -> None:
        directive = read(text, index + 1)
        self.passage.directives.append(directive)
        if not directive.is_text:
            self._remove(index)

    def _marker(self, text: str, index: int) -> None:
        if text == "```endif```":
            self._end(index)
        elif text == "```else```":
            self._branch(index, "else", None)
        elif (found := _CONDITION.fullmatch(text)) is not None:
            self._branch(index, found[1], (found[2], found[3], found[4]))
        else:
            self._odd("unread", index)

    def _branch(self, index: int, word: str, condition: tuple[str, str, str] | None) -> None:
        if word != "if" and self.opened < 0:
            return self._odd("stray_marker", index)
        if word == "if":
            # Other implementations read a nested or second `if` as another alternative.
            if self.opened >= 0:
                self._odd("nested_if", index)
            elif self.branches:
                self._odd("second_block", index)
            self.opened = self.opened if self.opened >= 0 else index
        self._remove(index)
        self.passage = Passage()
        self.branches.append(BranchDraft(index, condition, self.passage, []))

    def _end(self, index: int) -> None:
        if self.opened < 0:
            return self._odd("stray_marker", index)
        self._remove(index)
        self.opened = -1
        self.passage = Passage()
        self.outside.append(self.passage)

    def _substep(self, row: str, index: int) -> None:
        found = _SUBSTEP.fullmatch(row)
        if found is None:
            return self._odd("unread", index)
        if self.opened < 0:
            return self._odd("substep_outside", index)
        self._remove(index)
        self.passage = Passage()
        self.branches[-1].substeps.append(SubDraft(index, found[1], found[2].strip(), self.passage))

    def _remove(self, index: int) -> None:
        self.passage.kept.append((self.cursor, index))
        self.cursor = index + 1

    def _odd(self, kind: OddityKind, index: int) -> None:
        self.oddities.append(Oddity(kind, index))

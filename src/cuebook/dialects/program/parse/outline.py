"""Divides a program's text by its headings into agents, playbooks and sections. It does not interpret them.

HTML comments are removed, except in code fences. Every line keeps its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from cuebook.dialects.findings import Problem

SectionKind = Literal["triggers", "steps", "notes"]

_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<sign>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`]*)")
_HEADING = re.compile(r"(?P<level>#{1,6})(?:[ \t]++(?P<title>.*))?")
_SECTION = re.compile(r"(?P<kind>trigger|step|note)s?[ \t]*+:?+", re.IGNORECASE)
RULE = re.compile(r"(?:-{3,}+|\*{3,}+|_{3,}+)[ \t]*+")


class Line(msgspec.Struct, frozen=True):
    number: int
    text: str


class Fence(msgspec.Struct, frozen=True):
    """A code block."""

    number: int
    """The line of the opening fence."""
    info: str
    """The text after the opening fence, as in `python`."""
    text: str
    """Without the indentation of the fence."""
    raw: str


Part: TypeAlias = Line | Fence


class Section(msgspec.Struct, frozen=True):
    kind: SectionKind
    line: int
    parts: list[Part]


class PlaybookPart(msgspec.Struct, frozen=True):
    title: str
    line: int
    parts: list[Part]
    """The text before the first section."""
    sections: list[Section]


class AgentPart(msgspec.Struct, frozen=True):
    title: str
    line: int
    parts: list[Part]
    playbooks: list[PlaybookPart]


class Outline(msgspec.Struct, frozen=True):
    frontmatter: list[Line]
    agents: list[AgentPart]
    stray: int
    """The first line of text before the first agent; 0 if there is none."""
    problems: list[Problem]
    warnings: list[Problem]


def outline(text: str) -> Outline:
    problems: list[Problem] = []
    parts = list(_parts(text, problems))
    frontmatter, parts = _frontmatter(parts)
    found = Outline(frontmatter, [], 0, problems, [])
    return msgspec.structs.replace(found, stray=_divide(parts, found))


# --- lines, comments and fences -----------------------------------------------------------------------------


def _parts(text: str, problems: list[Problem]) -> Iterator[Part]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].startswith("#!"):
        lines[0] = ""
    last_end = max((at for at, line in enumerate(lines) if "-->" in line), default=-1)
    at = 0
    while at < len(lines):
        opened = _FENCE.fullmatch(lines[at])
        if opened is not None:
            fence, at = _fence(lines, at, opened, problems)
            yield fence
            continue
        line, behind = _uncommented(lines, at, last_end)
        yield Line(at + 1, line)
        at = behind


def _uncommented(lines: list[str], at: int, last_end: int) -> tuple[str, int]:
    """A line without comments, and the index of the next line. An unclosed `<!--` is text."""
    kept: list[str] = []
    line, place = lines[at], 0
    while True:
        begin = line.find("<!--", place)
        if begin < 0:
            kept.append(line[place:])
            return "".join(kept), at + 1
        kept.append(line[place:begin])
        end = line.find("-->", begin + 4)
        while end < 0:
            if at >= last_end:
                kept.append(line[begin:])
                return "".join(kept), at + 1
            at += 1
            line, begin = lines[at], 0
            end = line.find("-->")
        place = end + 3


def _fence(lines: list[str], at: int, opened: re.Match[str], problems: list[Problem]) -> tuple[Fence, int]:
    sign, indent = opened["sign"], len(opened["indent"])
    close = re.compile(rf"[ \t]*+{re.escape(sign[0])}{{{len(sign)},}}[ \t]*+")
    end = at + 1
    while end < len(lines) and not close.fullmatch(lines[end]):
        end += 1
    if end == len(lines):
        problems.append(
            Problem("The code block that begins here is not closed.", at + 1, f"Close it with {sign}.", "OPEN_FENCE")
        )
    inner = (line[indent:] if not line[:indent].strip() else line for line in lines[at + 1 : end])
    raw = "\n".join(lines[at : end + 1])
    return Fence(at + 1, opened["info"].strip(), "\n".join(inner), raw), end + 1


def _frontmatter(parts: list[Part]) -> tuple[list[Line], list[Part]]:
    begin = next((at for at, part in enumerate(parts) if isinstance(part, Fence) or part.text.strip()), len(parts))
    if begin == len(parts) or not _is_dashes(parts[begin]):
        return [], parts
    inside: list[Line] = []
    for at in range(begin + 1, len(parts)):
        part = parts[at]
        if isinstance(part, Fence):
            break
        if _is_dashes(part):
            return inside, parts[at + 1 :]
        inside.append(part)
    return [], parts


def _is_dashes(part: Part) -> bool:
    return isinstance(part, Line) and part.text.rstrip() == "---"


# --- headings -----------------------------------------------------------------------------------------------


def _divide(parts: list[Part], found: Outline) -> int:
    """Assign the parts to their headings. Return the first line that belongs to no agent."""
    stray = 0
    here: list[Part] = []
    for part in parts:
        heading = _HEADING.fullmatch(part.text) if isinstance(part, Line) else None
        opened = None if heading is None else _opened(found, heading, part.number)
        if opened is not None:
            here = opened
        elif found.agents:
            here.append(part)
        elif not stray and (isinstance(part, Fence) or (part.text.strip() and not RULE.fullmatch(part.text))):
            stray = part.number
    return stray


def _opened(found: Outline, heading: re.Match[str], line: int) -> list[Part] | None:
    """The list that collects the lines below a heading; None for a heading that is part of the surrounding text."""
    level, title = len(heading["level"]), _title(heading["title"] or "")
    if level == 1:
        found.agents.append(AgentPart(title, line, [], []))
        return found.agents[-1].parts
    if not found.agents:
        return None
    playbooks = found.agents[-1].playbooks
    section = _SECTION.fullmatch(title)
    if section is not None and playbooks:
        if level != 3:
            what = "is a playbook heading" if level == 2 else f"has {level} number signs"
            fix = f"Write ### {title}."
            found.warnings.append(Problem(f"The heading '{title}' {what}.", line, fix, "SECTION_LEVEL"))
        kind: SectionKind = f"{section['kind'].lower()}s"  # type: ignore[assignment]
        playbooks[-1].sections.append(Section(kind, line, []))
        return playbooks[-1].sections[-1].parts
    if level == 2:
        playbooks.append(PlaybookPart(title, line, [], []))
        return playbooks[-1].parts
    if playbooks and level == 3:
        fix = "The sections of a playbook are Triggers, Steps and Notes."
        message = f"Unknown section '{title}' is treated as text."
        found.warnings.append(Problem(message, line, fix, "UNKNOWN_SECTION"))
        if not playbooks[-1].sections:
            return None
        playbooks[-1].parts.append(Line(line, f"### {title}"))
        return playbooks[-1].parts
    return None


def _title(written: str) -> str:
    """A title without closing number signs."""
    title = written.strip()
    bare = title.rstrip("#")
    return bare.rstrip() if bare != title and (not bare or bare[-1].isspace()) else title

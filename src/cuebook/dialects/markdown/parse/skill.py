"""Reads a skill (`SKILL.md`) as a playbook: its numbered steps become steps, the text around them becomes context.

A skill begins with front matter that has a name and a description, and it has no step headings of the playbook format. Its
text is for a model: nothing in it is a directive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.markdown.model import Book, Step
from cuebook.dialects.markdown.parse.sections import TITLE, fences, outline
from cuebook.formats.values import Malformed

_MOST_FRONT_MATTER = 20_000
_KEY = re.compile(r"(name|description):\s*(.*)", re.ASCII)
_HEADING = re.compile(r"(#{1,6})\s+(.+?)(?:\s+#+)?", re.ASCII)
_NUMBERED_HEADING = re.compile(r"(?:step\s+)?(\d{1,4})(?:\s*[.):–-]\s*|\s+)(.+)", re.ASCII | re.IGNORECASE)
_ITEM = re.compile(r" {0,3}(\d{1,9})[.)]\s+(\S.*)", re.ASCII)
_PROCEDURE = re.compile(r"\b(steps?|workflow|instructions?|process|procedure|how to)\b", re.IGNORECASE)
_BOLD = re.compile(r"\*\*(.+?)\*\*|__(.+?)__")
_SENTENCE = re.compile(r"(.+?[.!?:])(?:\s|$)")
_LONGEST_TITLE = 60


class _Part(msgspec.Struct):
    """A numbered step as it is written: its number, its title, and its rows."""

    number: int
    title: str
    start: int
    end: int
    content: str


def is_skill(text: str) -> bool:
    return _front_matter(_rows(text)) is not None and not any(one.kind == "step" for one in outline(text).sections)


def read_skill(text: str) -> Book | None:
    """The skill as a document; None if the text is not a skill."""
    if not is_skill(text):
        return None
    rows = _rows(text)
    named = _front_matter(rows)
    assert named is not None
    name, description, begins = named
    quoted = {index for a, b in fences(rows) for index in range(a, b + 1)}
    headings = [
        (index, len(found[1]), found[2])
        for index in range(begins, len(rows))
        if index not in quoted and (found := _HEADING.fullmatch(rows[index]))
    ]
    titled = [index for index, level, _ in headings if level == 1][:1]
    title = _title_of(rows[titled[0]]) if titled else name
    skipped = {*range(begins), *titled}
    parts = _numbered_headings(rows, headings) or _numbered_list(rows, begins, headings, quoted)
    if not parts:
        body = _text(rows, skipped, range(len(rows)))
        line = next((index for index in range(begins, len(rows)) if rows[index].strip()), begins - 1) + 1
        return Book(title, (Step(1, "1", title, body or description, line),), description=description)
    steps = tuple(
        Step(position, str(position), part.title, part.content, part.start + 1)
        for position, part in enumerate(parts, 1)
    )
    taken = {index for part in parts for index in range(part.start, part.end)}
    context = _text(rows, skipped | taken, range(len(rows)))
    return Book(title, steps, system=context, description=description, warnings=_warnings(parts))


def _rows(text: str) -> list[str]:
    raw = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return list(map(str.rstrip, raw))


def _front_matter(rows: list[str]) -> tuple[str, str, int] | None:
    """The name, the description, and the index of the first row after them; None if the text does not begin so."""
    if rows[0] != "---":
        return None
    end = next((index for index in range(1, len(rows)) if rows[index] == "---"), None)
    if end is None:
        return None
    name, description = _named(rows[1:end])
    return (name.strip(), description.strip(), end + 1) if name.strip() and description.strip() else None


def _named(rows: list[str]) -> tuple[str, str]:
    """The name and the description. Many skills have a colon in the description that YAML does not allow there."""
    from cuebook.formats.yaml import read_yaml_or_json

    try:
        value = read_yaml_or_json("\n".join(rows), False, _MOST_FRONT_MATTER, "Shorten it.").plain
    except Malformed:
        value = {found[1]: found[2].strip("\"' ") for row in rows if (found := _KEY.fullmatch(row))}
    known = value if isinstance(value, dict) else {}
    name, description = (known.get(key) for key in ("name", "description"))
    return (name if isinstance(name, str) else "", description if isinstance(description, str) else "")


def _title_of(row: str) -> str:
    found = TITLE.fullmatch(row)
    return found[1].strip() if found is not None else row


def _numbered_headings(rows: list[str], headings: list[tuple[int, int, str]]) -> list[_Part]:
    """The sections whose headings are numbered, all on the level of the first one, which is number 1."""
    numbered = [
        (index, level, found)
        for index, level, words in headings
        if level > 1 and (found := _NUMBERED_HEADING.fullmatch(words))
    ]
    first = next((level for _, level, found in numbered if found[1] == "1"), None)
    parts: list[_Part] = []
    for index, level, found in numbered:
        if level != first:
            continue
        end = next((at for at, other, _ in headings if at > index and other <= level), len(rows))
        content = "\n".join(rows[index + 1 : end]).strip()
        parts.append(_Part(int(found[1]), found[2].strip(), index, end, content or found[2].strip()))
    return parts


def _numbered_list(rows: list[str], begins: int, headings: list[tuple[int, int, str]], quoted: set[int]) -> list[_Part]:
    """The items of the skill's procedure: the first numbered list below a heading that says so, otherwise the first one with
    several items, otherwise the first one."""
    borders = [begins, *(index for index, _, _ in headings if index >= begins), len(rows)]
    titles = {index: words for index, _, words in headings}
    lists: list[tuple[bool, list[_Part]]] = []
    for start, end in pairwise(borders):
        parts = list(_items(rows, start, end, quoted))
        if parts:
            lists.append((bool(_PROCEDURE.search(titles.get(start, ""))), parts))
    best = sorted(lists, key=lambda one: (not one[0], len(one[1]) < 2))
    return best[0][1] if best else []


def _items(rows: list[str], start: int, end: int, quoted: set[int]) -> Iterable[_Part]:
    """The items of the first numbered list between two rows."""
    begun: list[tuple[int, re.Match[str]]] = []
    over = end
    for index in range(start, end):
        found = None if index in quoted else _ITEM.fullmatch(rows[index])
        if found is not None:
            begun.append((index, found))
        elif begun and _ends_list(rows, index, quoted):
            over = index
            break
    ends = [*(index for index, _ in begun[1:]), over]
    for (index, found), until in zip(begun, ends, strict=False):
        indent = found.start(2)
        more = [row[indent:] if not row[:indent].strip() else row.lstrip() for row in rows[index + 1 : until]]
        content = "\n".join([found[2], *more]).strip()
        yield _Part(int(found[1]), _short(found[2]), index, until, content)


def _ends_list(rows: list[str], index: int, quoted: set[int]) -> bool:
    """Whether a row is a paragraph after a list: not indented, and not directly below an item's text."""
    row = rows[index]
    return bool(row) and not row[0].isspace() and index not in quoted and not rows[index - 1].strip()


def _short(text: str) -> str:
    """A title for a list item: its bold beginning, or its first sentence."""
    bold = _BOLD.match(text)
    if bold is not None:
        return (bold[1] or bold[2]).strip().rstrip(".:") or text
    sentence = _SENTENCE.match(text)
    title = (sentence[1] if sentence is not None else text).rstrip(".:").strip()
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1].rstrip()}…"


def _text(rows: list[str], left_out: set[int], among: Iterable[int]) -> str:
    kept = "\n".join("" if index in left_out else rows[index] for index in among)
    return re.sub(r"\n{3,}", "\n\n", kept).strip()


def _warnings(parts: list[_Part]) -> tuple[Problem, ...]:
    """A warning for each number that is out of order, unless all items have the same number, as lists may be written."""
    if len({part.number for part in parts}) == 1:
        return ()
    return tuple(
        Problem(f"Non-sequential step number: expected {expected}, got {part.number}", part.start + 1, code="W1")
        for expected, part in enumerate(parts, 1)
        if part.number != expected
    )

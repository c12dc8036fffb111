"""The lists below the headings of a playbook: triggers, steps and notes, compiled or as the author wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.program.model import Code, ListingLine, Note, Trigger, TriggerKind
from cuebook.dialects.program.parse.outline import RULE, Fence, Part

_ITEM = re.compile(r"(?P<indent>[ \t]*+)(?:[-*+•]|\d{1,4}[.)])[ \t]++(?P<text>.*)")
_STEP = re.compile(
    r"(?P<number>\d{1,4}(?:\.\d{1,4})*+)[ \t]*+:[ \t]*+(?P<code>[A-Za-z]{3})(?![A-Za-z])[ \t]*+:?+[ \t]*+(?P<text>.*)",
    re.DOTALL,
)
_OTHER_CODE = re.compile(r"\d{1,4}(?:\.\d{1,4})*+[ \t]*+:")
_TRIGGER = re.compile(
    r"(?:T(?P<id>\d{1,4})|(?P<number>\d{1,4}))[ \t]*+:[ \t]*+(?P<kind>BGN|CND|EVT)\b[ \t]*+:?+[ \t]*+(?P<text>.*)",
    re.DOTALL | re.IGNORECASE,
)
_CODED = re.compile(r"T?\d{1,4}[ \t]*+:[ \t]*+(?P<code>[A-Z]{2,6})(?!\w).*", re.DOTALL)
_NOTE = re.compile(r"N(?P<id>\d{1,4})\b[ \t]*+:?+[ \t]*+(?P<text>.*)", re.DOTALL)
_BEGINS = re.compile(
    r"(?:at|in|from|on)\s++(?:the\s++)?(?:beginning|start|startup)\b"
    r"|(?:when|once|after|as soon as)\s++(?:the\s++|this\s++)?(?:programs?|agent|application|playbook|system)\s++"
    r"(?:starts?|begins?|is\s++started|runs?|is\s++run|launches)\b",
    re.IGNORECASE,
)
_HAPPENS = re.compile(
    r"\b(?:receiv\w*+|message|arrives?|invit\w*+|joins?|leaves?|says?|asks?|asked|tells?|mentions?|sends?|requests?|wants?"
    r"|clicks?|uploads?|types?|enters?|repl(?:y|ies)|responds?|provides?)\b",
    re.IGNORECASE,
)


class Item(msgspec.Struct, frozen=True):
    text: str
    line: int
    raw: tuple[str, ...]
    """The lines as written."""


class Steps(msgspec.Struct, frozen=True):
    lines: tuple[ListingLine, ...]
    uncompiled: tuple[str, ...]
    warnings: list[Problem]


def items_of(parts: list[Part]) -> list[Item]:
    """The items of a list at any depth, with their continuation lines. Text that is not a list counts as one item."""
    found: list[tuple[list[str], list[str], int]] = []
    for part in parts:
        text = part.raw if isinstance(part, Fence) else part.text
        if not text.strip() or RULE.fullmatch(text):
            continue
        item = _ITEM.fullmatch(text)
        if item is not None or not found:
            found.append(([(item["text"] if item else text).strip()], [text.rstrip()], part.number))
        else:
            found[-1][0].append(text.strip())
            found[-1][1].append(text.rstrip())
    return [Item("\n".join(text), line, tuple(raw)) for text, raw, line in found]


def is_list(parts: list[Part]) -> bool:
    """Whether the text begins with a list item."""
    first = next((part for part in parts if isinstance(part, Fence) or part.text.strip()), None)
    return first is not None and not isinstance(first, Fence) and _ITEM.fullmatch(first.text) is not None


def steps_of(parts: list[Part]) -> Steps:
    """The listing if the first item is numbered, as compilers do it; otherwise the lines as written."""
    items = items_of(parts)
    if not items or _STEP.fullmatch(items[0].text) is None:
        return Steps((), tuple(line for item in items for line in item.raw), _half_numbered(items))
    lines: list[ListingLine] = []
    more: dict[int, list[str]] = {}
    warnings: list[Problem] = []
    for item in items:
        step = line_of(item.text, item.line)
        if step is None:
            fix = "Number it as 02:EXE, or write it on the line of the step."
            message = "This item has no number, so it counts as part of the previous step."
            if _OTHER_CODE.match(item.text):
                fix = "The codes are EXE, TNK, QUE, CND, JMP, CHK, RET and YLD."
                message = "This item has a number but no three-letter code, so it counts as part of the previous step."
            warnings.append(Problem(message, item.line, fix, "UNNUMBERED_STEP"))
            more.setdefault(len(lines) - 1, []).append(f"- {item.text}")
            continue
        lines.append(step)
    for index, texts in more.items():
        line = lines[index]
        lines[index] = msgspec.structs.replace(line, text="\n".join([line.text, *texts]))
    return Steps(tuple(lines), (), warnings)


def _half_numbered(items: list[Item]) -> list[Problem]:
    """Report a first step without a number: the mistake would be hard to find."""
    if not any(_STEP.fullmatch(item.text) for item in items):
        return []
    message = "This item has no number, but a later step has one, so none of the steps can be run."
    return [Problem(message, items[0].line, "Number it as 01:EXE.", "UNNUMBERED_STEP")]


def line_of(text: str, line: int = 0) -> ListingLine | None:
    """Parse `02.01:QUE Say(user, Hello)`. Return None if there is no number or code."""
    step = _STEP.fullmatch(text)
    if step is None:
        return None
    number = ".".join(part.zfill(2) for part in step["number"].split("."))
    code: Code = step["code"].upper()  # type: ignore[assignment]  # the linter reports unknown codes
    return ListingLine(number, code, step["text"].strip(), line)


def notes_of(parts: list[Part]) -> tuple[Note, ...]:
    return tuple(_notes(items_of(parts)))


def _notes(items: list[Item]) -> Iterator[Note]:
    for count, item in enumerate(items, start=1):
        found = _NOTE.fullmatch(item.text)
        if found is None:
            yield Note(f"N{count}", item.text, item.line)
        else:
            yield Note(f"N{int(found['id'])}", found["text"].strip(), item.line)


# --- triggers -----------------------------------------------------------------------------------------------


def triggers_of(items: list[tuple[str, int]]) -> tuple[Trigger, ...]:
    """Parse triggers from strings with their lines. A trigger without an id is numbered by its position."""
    return tuple(_trigger(text, line, count) for count, (text, line) in enumerate(items, start=1))


def _trigger(text: str, line: int, count: int) -> Trigger:
    found = _TRIGGER.fullmatch(text.strip())
    if found is None:
        return Trigger(f"T{count}", _kind(text), text.strip(), line)
    kind: TriggerKind = found["kind"].upper()  # type: ignore[assignment]
    return Trigger(f"T{int(found['id'] or found['number'])}", kind, found["text"].strip(), line)


def trigger_code(text: str) -> str:
    """The unknown code of a trigger that was read as plain words; empty if there is none."""
    found = _CODED.fullmatch(text)
    return found["code"] if found else ""


def _kind(text: str) -> TriggerKind:
    """The kind of a trigger in plain words: the start, an event, or a condition."""
    if _BEGINS.search(text):
        return "BGN"
    return "EVT" if "$" not in text and _HAPPENS.search(text) else "CND"

"""What playbooks of several dialects ask of people: who answers or decides, how many of them, and requests for changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.formats.forms import DRAFT, filled_in
from cuebook.formats.schema import flaws
from cuebook.formats.shape import Shape
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Value
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import REQUESTED, Failed
from cuebook.kernel.votes import ROLE, Rule

ROLES = ("viewer", "runner", "approver", "admin")
"""The roles that a list of people can name; see `cuebook users`."""
LONGEST_EXPIRY = 366 * 24 * 3_600_000
"""In milliseconds."""
MOST_VOTES = 50
MOST_CHANGES = 20
MOST_CHANGES_BY_DEFAULT = 3
"""How often changes can be requested at one approval."""
RULE = ("by", "votes", "denials", "different_person", "changes")
"""The fields of an approval that say who decides, and where a request for changes leads."""
_NAME = re.compile(r"[^\s:,]{1,200}")
_LINE = 150
"""Characters of the author's text that fit into the question of an approval."""


# --- who ------------------------------------------------------------------------------------------------------


def flaw_of(name: str) -> tuple[str, str] | None:
    """Why a text names neither a user nor a role, and the fix; None if it does."""
    if name.startswith(ROLE):
        role = name.removeprefix(ROLE)
        return None if role in ROLES else (f"there is no role '{role[:60]}'.", meant(role, ROLES))
    if name and not _NAME.fullmatch(name):
        return f"'{name[:60]}' is not the name of a user.", "Write a name, or role:ROLE."
    return None


def people(shape: Shape, value: Value, at: str) -> tuple[str, ...]:
    """Parses a list of names and of roles, as `role:NAME`; a single one needs no list."""
    given = (shape.text(value, at),) if value.kind == "str" else shape.texts(value, at, at_least=1)
    lines = [value.line] if value.kind == "str" else [one.line for one in value.items]
    found: dict[str, None] = {}
    for text, line in zip(given, lines, strict=False):
        name = text.strip()
        flaw = flaw_of(name)
        if flaw is not None:
            shape.wrong(line, f"{at}: {flaw[0]}", flaw[1])
        if name in found:
            shape.wrong(line, f"{at} lists '{name[:60]}' twice.", "Remove one of them.")
        found[name] = None
    return tuple(found)


def too_few(by: tuple[str, ...], votes: int) -> tuple[str, str] | None:
    """Why the listed people cannot give that many votes, and the fix; None if they can."""
    named = len(by) if by and not any(one.startswith(ROLE) for one in by) else MOST_VOTES
    if votes <= named:
        return None
    return f"{votes} votes are needed, and {named} people are listed.", "List more people, or ask for fewer votes."


def rule(shape: Shape, fields: Mapping[str, Value], at: str, check: Callable[[str, int, str], Any]) -> tuple[Rule, int]:
    """Parses who decides, and how often changes can be requested. `check` reports a name, its line and its place in the text
    if no request for changes can lead there.
    """
    by = people(shape, fields["by"], f"{at}.by") if "by" in fields else ()
    votes = _votes(shape, fields["votes"], f"{at}.votes") if "votes" in fields else 1
    denials = _votes(shape, fields["denials"], f"{at}.denials") if "denials" in fields else 1
    other = shape.flag(fields["different_person"], f"{at}.different_person") if "different_person" in fields else False
    flaw = too_few(by, votes)
    if flaw is not None:
        shape.wrong(fields["votes"].line, f"{at}: {flaw[0]}", flaw[1])
    to, most = _changes(shape, fields["changes"], f"{at}.changes", check) if "changes" in fields else ((), 0)
    return Rule(by, votes, denials, other, to), most


def _votes(shape: Shape, value: Value, at: str) -> int:
    number = shape.whole(value, at, 1)
    if number is not None and number > MOST_VOTES:
        shape.wrong(value.line, f"{at} is above {MOST_VOTES}.", "Lower it.")
    return number or 1


def _changes(shape: Shape, value: Value, at: str, check: Callable[[str, int, str], Any]) -> tuple[tuple[str, ...], int]:
    """The steps to which a request for changes may go back, and how often."""
    most = MOST_CHANGES_BY_DEFAULT
    if value.kind == "map":
        fields = shape.closed(value, at, ("to", "at_most"), ("to",))
        if "at_most" in fields:
            most = shape.whole(fields["at_most"], f"{at}.at_most", 1) or 1
            if most > MOST_CHANGES:
                shape.wrong(fields["at_most"].line, f"{at}.at_most is above {MOST_CHANGES}.", "Lower it.")
        if "to" not in fields:
            return (), most
        value, at = fields["to"], f"{at}.to"
    names = (shape.text(value, at),) if value.kind == "str" else shape.texts(value, at, at_least=1)
    lines = [value.line] if value.kind == "str" else [one.line for one in value.items]
    for name, line in zip(names, lines, strict=False):
        if name:
            check(name, line, at)
    return tuple(dict.fromkeys(name for name in names if name)), most


# --- questions ------------------------------------------------------------------------------------------------


def expiry(shape: Shape, value: Value, at: str) -> float | None:
    """Parses a time in milliseconds; returns seconds."""
    given = shape.whole(value, at, 1)
    if given is not None and given > LONGEST_EXPIRY:
        shape.wrong(value.line, f"{at} is above {LONGEST_EXPIRY:,}, which is a year.", "Lower it.")
    return None if given is None else given / 1000


def default(shape: Shape, value: Value, at: str, schema: Any, code: str) -> str | None:
    """Parses the default answer to a question, which must follow its schema, if it has one."""
    plain = shape.plain(value, at)
    if schema is None:
        return shape.text(value, at, empty=True)
    if flaws(schema, DRAFT):
        return None
    try:
        return filled_in(schema, plain)
    except BadInput as error:
        shape.wrong(value.line, f"{at}: {error.message}", error.fix, code)
        return None


def first_line(text: str) -> str:
    """The part of an approval's text that is its question; a longer text is also shown in full with the evidence."""
    first, *rest = text.splitlines() or [""]
    short = first if len(first) <= _LINE else f"{first[: _LINE - 1]}…"
    return f"{short}{' (continued below)' if rest or short != first else ''}"


def approval_words(rule: Rule) -> list[str]:
    """Who decides on an approval, and where it can send the run back, as clauses."""
    found = [f"its approval needs {rule.words()}"] if rule.words() else []
    return found + ([f"its approver can send the run back to {' or '.join(rule.changes)}"] if rule.changes else [])


# --- requests for changes ---------------------------------------------------------------------------------------


class Feedback(msgspec.Struct, frozen=True):
    """A request for changes."""

    text: str
    by: str
    to: str
    """The step that is done again."""


def feedback_of(failed: Failed) -> Feedback | None:
    """The request for changes that this failure is; None if it is another failure."""
    if failed.code != REQUESTED:
        return None
    asked = failed.details.get("changes", {})
    return Feedback(str(asked.get("feedback", "")), str(asked.get("by", "")), str(asked.get("to", "")))


def offered(rule: Rule, requested: int, most: int) -> Rule:
    """The rule of an approval at which changes were requested this often: they can be requested only so often."""
    return msgspec.structs.replace(rule, changes=()) if rule.changes and requested >= most else rule


def feedback_section(text: str) -> str:
    """The part of a model's prompt that has the feedback."""
    return f"## Requested changes\n\n{text}"

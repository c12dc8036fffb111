"""Parses what a pipeline asks of people: the questions of `input` steps, and who may answer or decide."""

from __future__ import annotations

import re
from typing import Any

from cuebook.dialects.pipeline.model import Approval, Question, Words
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.forms import DRAFT, filled_in
from cuebook.formats.schema import flaws
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value
from cuebook.kernel.errors import BadInput
from cuebook.kernel.votes import Rule

CODE = "BAD_INPUT_STEP"
ROLE = "role:"
ROLES = ("viewer", "runner", "approver", "admin")
"""The roles that a list of people can name; see `cuebook users`."""
LONGEST_EXPIRY = 366 * 24 * 3_600_000
"""In milliseconds."""
_NAME = re.compile(r"[^\s:,]{1,200}")


def question(scope: Scope, value: Value, at: str) -> Question | None:
    """Parses `input`: a text, or a table with text, schema, default, by and expires_ms."""
    shape = scope.shape
    if value.kind == "str":
        return Question(scope.words(shape.text(value, at), value.line, at), line=value.line)
    fields = shape.closed(value, at, ("text", "schema", "default", "by", "expires_ms"), ("text",))
    if "text" not in fields:
        return None
    text = scope.words(shape.text(fields["text"], f"{at}.text").strip(), fields["text"].line, f"{at}.text")
    schema = _schema(scope, fields["schema"], f"{at}.schema") if "schema" in fields else None
    default = _default(shape, fields["default"], f"{at}.default", schema) if "default" in fields else None
    if "default" in fields:
        scope.literal(fields["default"], f"{at}.default")
    by = people(shape, fields["by"], f"{at}.by") if "by" in fields else ()
    expires = expiry(shape, fields["expires_ms"], f"{at}.expires_ms") if "expires_ms" in fields else None
    return Question(text, schema, default, by, expires, value.line)


def _schema(scope: Scope, value: Value, at: str) -> dict[str, Any] | None:
    shape = scope.shape
    if value.kind != "map":
        shape.wrong(value.line, f"{at} must be a JSON Schema, as a table.", "Write type and properties.", CODE)
        return None
    scope.literal(value, at, but=("title", "description", "$comment"))
    schema: dict[str, Any] = shape.plain(value, at) or {}
    for code, why in flaws(schema, DRAFT):
        shape.wrong(value.line, f"{at} cannot be used: {why}.", "Correct the schema.", code)
    return schema


def _default(shape: Shape, value: Value, at: str, schema: dict[str, Any] | None) -> str | None:
    plain = shape.plain(value, at)
    if schema is None:
        return shape.text(value, at, empty=True)
    if flaws(schema, DRAFT):
        return None
    try:
        return filled_in(schema, plain)
    except BadInput as error:
        shape.wrong(value.line, f"{at}: {error.message}", error.fix, CODE)
        return None


def people(shape: Shape, value: Value, at: str) -> tuple[str, ...]:
    """Parses a list of names and of roles, as `role:NAME`; a single one needs no list."""
    given = (shape.text(value, at),) if value.kind == "str" else shape.texts(value, at, at_least=1)
    lines = [value.line] if value.kind == "str" else [one.line for one in value.items]
    found: dict[str, None] = {}
    for text, line in zip(given, lines, strict=False):
        name = text.strip()
        if name.startswith(ROLE):
            role = name.removeprefix(ROLE)
            if role not in ROLES:
                shape.wrong(line, f"{at}: there is no role '{role[:60]}'.", shape.meant(role, ROLES))
        elif name and not _NAME.fullmatch(name):
            shape.wrong(line, f"{at}: '{name[:60]}' is not the name of a user.", "Write a name, or role:ROLE.")
        if name in found:
            shape.wrong(line, f"{at} lists '{name[:60]}' twice.", "Remove one of them.")
        found[name] = None
    return tuple(found)


def expiry(shape: Shape, value: Value, at: str) -> float | None:
    """Parses a time in milliseconds; returns seconds."""
    given = shape.whole(value, at, 1)
    if given is not None and given > LONGEST_EXPIRY:
        shape.wrong(value.line, f"{at} is above {LONGEST_EXPIRY:,}, which is a year.", "Lower it.")
    return None if given is None else given / 1000


# --- approvals ----------------------------------------------------------------------------------------------

APPROVAL = ("text", "show", "by", "votes", "denials", "different_person", "changes")
MOST_VOTES = 50
MOST_CHANGES = 20
MOST_CHANGES_BY_DEFAULT = 3
"""How often changes can be requested at one approval."""
_STEP = re.compile(r"\$([A-Za-z0-9_-]+)", re.ASCII)


def approval(scope: Scope, value: Value, at: str) -> Approval:
    """Parses `approval` as a table: what the approver reads and sees, who decides, and where changes lead."""
    shape = scope.shape
    fields = shape.closed(value, at, APPROVAL)
    if not value.fields:
        shape.wrong(value.line, f"{at} is empty.", "Write `approval: required`.")
    text = None
    if "text" in fields:
        written = shape.text(fields["text"], f"{at}.text").strip()
        text = scope.words(written, fields["text"].line, f"{at}.text")
    show = _shown(scope, fields["show"], f"{at}.show") if "show" in fields else None
    by = people(shape, fields["by"], f"{at}.by") if "by" in fields else ()
    votes = _votes(shape, fields["votes"], f"{at}.votes") if "votes" in fields else 1
    denials = _votes(shape, fields["denials"], f"{at}.denials") if "denials" in fields else 1
    other = shape.flag(fields["different_person"], f"{at}.different_person") if "different_person" in fields else False
    named = len(by) if by and not any(one.startswith(ROLE) for one in by) else MOST_VOTES
    if votes > named:
        fix = "List more people, or ask for fewer votes."
        shape.wrong(fields["votes"].line, f"{at}: {votes} votes are needed, and {named} people are listed.", fix)
    to, most = _changes(scope, fields["changes"], f"{at}.changes") if "changes" in fields else ((), 0)
    return Approval(text, show, Rule(by, votes, denials, other, to), most, value.line)


def _votes(shape: Shape, value: Value, at: str) -> int:
    number = shape.whole(value, at, 1)
    if number is not None and number > MOST_VOTES:
        shape.wrong(value.line, f"{at} is above {MOST_VOTES}.", "Lower it.")
    return number or 1


def _shown(scope: Scope, value: Value, at: str) -> tuple[tuple[str, Words], ...]:
    """The evidence: a list of references, or a table of names and references."""
    shape = scope.shape
    if value.kind == "map":
        return tuple((name, _evidence(scope, one, f"{at}.{name}")) for name, one in value.fields.items())
    found = []
    for number, one in enumerate(shape.items(value, at, at_least=1)):
        words = _evidence(scope, one, f"{at}[{number}]")
        found.append(("", words))
    return tuple(found)


def _evidence(scope: Scope, value: Value, at: str) -> Words:
    text = scope.shape.text(value, at).strip()
    step = _STEP.fullmatch(text)
    return scope.words(f"{text}.stdout" if step is not None else text, value.line, at)


def _changes(scope: Scope, value: Value, at: str) -> tuple[tuple[str, ...], int]:
    """The steps to which a request for changes may go back, and how often."""
    shape, most = scope.shape, MOST_CHANGES_BY_DEFAULT
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
            scope.check_earlier(name, line, at)
    return tuple(dict.fromkeys(name for name in names if name)), most

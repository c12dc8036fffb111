"""Parses what a pipeline asks of people: the questions of `input` steps, and who may answer or decide."""

from __future__ import annotations

import re
from typing import Any

from cuebook.dialects.pipeline.model import Question
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.forms import DRAFT, filled_in
from cuebook.formats.schema import flaws
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value
from cuebook.kernel.errors import BadInput

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

"""Parses what a pipeline asks of people: the questions of `input` steps, and who may answer or decide."""

from __future__ import annotations

import re
from typing import Any

from cuebook.dialects.people import RULE, default, expiry, people, rule
from cuebook.dialects.pipeline.model import Approval, Question, Words
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.forms import DRAFT
from cuebook.formats.schema import flaws
from cuebook.formats.values import Value

CODE = "BAD_INPUT_STEP"


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
    answer = None
    if "default" in fields:
        answer = default(shape, fields["default"], f"{at}.default", schema, CODE)
        scope.literal(fields["default"], f"{at}.default")
    by = people(shape, fields["by"], f"{at}.by") if "by" in fields else ()
    expires = expiry(shape, fields["expires_ms"], f"{at}.expires_ms") if "expires_ms" in fields else None
    return Question(text, schema, answer, by, expires, value.line)


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


# --- approvals ----------------------------------------------------------------------------------------------

APPROVAL = ("text", "show", *RULE)
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
    who, most = rule(shape, fields, at, scope.check_earlier)
    return Approval(text, show, who, most, value.line)


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

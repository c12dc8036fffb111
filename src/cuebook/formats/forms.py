"""Forms: a JSON Schema as fields that a person fills in, and the one check of what was filled in.

Every way to answer (terminal, page, assistant, API) uses the same check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from cuebook.formats.schema import Draft, Schema, mismatches
from cuebook.kernel.errors import BadInput

DRAFT: Draft = "2019-09"
"""Default draft of the schemas of forms."""
MOST_FIELDS = 50

Kind = Literal["text", "number", "integer", "boolean", "choice"]
_KINDS: dict[Any, Kind] = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}
_LIMITS = ("minLength", "maxLength", "minimum", "maximum", "format")
"""The keywords of a field that a form can show; the check applies all of them."""


class Field(NamedTuple):
    """One field of a form."""

    name: str
    """The name of the property; empty if the schema describes a single value."""
    title: str
    kind: Kind
    options: tuple[str, ...] = ()
    default: Any = None
    required: bool = False
    about: str = ""
    limits: Mapping[str, Any] = {}

    @property
    def range_words(self) -> str:
        """The limits of a number, as in `from 1 to 3`; empty if it has none."""
        least, most = self.limits.get("minimum"), self.limits.get("maximum")
        if least is not None and most is not None:
            return f"from {least} to {most}"
        return f"at least {least}" if least is not None else f"at most {most}" if most is not None else ""


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The fields for a schema of single values, or of an object of single values; empty if only JSON can describe it."""
    if not isinstance(schema, Mapping):
        return ()
    if schema.get("type") != "object":
        one = _field("", schema, required=True)
        return () if one is None else (one,)
    named = schema.get("properties")
    if not isinstance(named, Mapping) or not 0 < len(named) <= MOST_FIELDS:
        return ()
    needed = schema.get("required", ())
    found = [_field(name, one, required=name in needed) for name, one in named.items()]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _field(name: str, schema: Any, *, required: bool) -> Field | None:
    if not isinstance(schema, Mapping):
        return None
    options = schema.get("enum")
    title, about = str(schema.get("title") or name), str(schema.get("description") or "")
    default = schema.get("default")
    if options is not None:
        if not options or not all(isinstance(one, str) for one in options):
            return None
        return Field(name, title, "choice", tuple(options), default, required, about)
    kind = _KINDS.get(schema.get("type")) if isinstance(schema.get("type"), str) else None
    if kind is None:
        return None
    return Field(name, title, kind, (), default, required, about, {k: schema[k] for k in _LIMITS if k in schema})


def filled_in(schema: Schema, given: Any) -> str:
    """The answer to a form as JSON, from JSON text, a plain text or a value. Raises `BadInput` with all mismatches."""
    candidates = [given]
    if isinstance(given, str):
        try:
            candidates = [msgspec.json.decode(given.strip().encode()), given]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    problems: list[str] = []
    for one in candidates:
        found = mismatches(schema, one, DRAFT)
        if not found:
            return msgspec.json.encode(one).decode()
        problems = problems or found
    if isinstance(given, str) and len(candidates) == 1 and _wants_json(schema):
        raise BadInput("The answer must be JSON.", fix=f"Answer like {example(schema)}.")
    raise BadInput(f"The answer does not fit: {'; '.join(problems)}.", fix=f"Answer like {example(schema)}.")


def _wants_json(schema: Schema) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("object", "array")


def example(schema: Schema) -> str:
    """A template for an answer, as JSON."""
    fields = fields_of(schema)
    if not fields:
        return "the JSON that its schema describes"
    values = {one.name: _likely(one) for one in fields}
    return msgspec.json.encode(values if fields[0].name else values[""]).decode()


def likely(schema: Schema) -> str:
    """An answer that stands for the real one, as JSON."""
    return example(schema) if fields_of(schema) else "null"


def _likely(field: Field) -> Any:
    if field.default is not None:
        return field.default
    if field.options:
        return field.options[0]
    least, most = field.limits.get("minimum"), field.limits.get("maximum")
    number = least if least is not None else min(0, most) if most is not None else 0
    return {"text": "...", "number": number, "integer": number, "boolean": True, "choice": ""}[field.kind]

"""Converts a JSON Schema to the form that a provider's strict mode accepts.

The rules are those that OpenAI and Anthropic publish for structured outputs. An unsupported keyword that only narrows a
value moves to the description, because the reply is checked against the whole schema afterwards. If the strict form
would forbid more than the schema does, there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

_ANNOTATIONS = ("description", "title")
"""Keywords that describe but do not constrain. Any other unknown keyword is left out."""

_COMBINED = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")

_NARROWS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
    "object": ("minProperties", "maxProperties", "propertyNames", "dependentRequired", "unevaluatedProperties"),
}
_NARROWS["integer"] = _NARROWS["number"]

_NARROWING = frozenset((*_COMBINED, *(name for names in _NARROWS.values() for name in names)))
"""Keywords that only forbid: a schema without them still allows everything that it allowed with them."""

_STRUCTURE = ("patternProperties", "prefixItems", "additionalItems", "$dynamicRef", "$recursiveRef")
"""Keywords that no strict form can express."""

_OF_STRING = frozenset(("pattern", "format"))
_OF_NUMBER = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_OF_ARRAY = frozenset(("minItems", "maxItems"))

_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))


class Rules(msgspec.Struct, frozen=True):
    """The keywords that a provider's strict mode supports, and its limits."""

    kept: frozenset[str]
    """Narrowing keywords that are supported."""
    formats: frozenset[str]
    optional: int
    """The maximum number of optional properties, in total."""
    recursive: bool
    object_root: bool
    unions: int | None = None
    """The maximum number of unions, in total."""
    fewest_items: tuple[int, ...] | None = None
    """The values that `minItems` may have; None for any."""
    depth: int | None = None
    """The maximum nesting depth of objects and arrays."""
    properties: int | None = None
    values: int | None = None
    """The maximum number of enumerated values, in total."""
    long_enum: tuple[int, int] | None = None
    """If a string enumeration has more values than the first number, the second limits its characters in total."""
    characters: int | None = None
    """The maximum number of characters in names of properties and definitions, and in enumerated values."""


OPENAI = Rules(
    kept=_OF_STRING | _OF_NUMBER | _OF_ARRAY,
    formats=_FORMATS,
    optional=0,
    recursive=True,
    object_root=True,
    depth=10,
    properties=5_000,
    values=1_000,
    long_enum=(250, 15_000),
    characters=120_000,
)

ANTHROPIC = Rules(
    kept=frozenset(("format", "minItems")),
    formats=_FORMATS | {"uri"},
    optional=24,
    recursive=False,
    object_root=False,
    unions=16,
    fewest_items=(0, 1),
)


class _Inexpressible(Exception):
    pass


def strict_form(schema: dict[str, Any], rules: Rules) -> dict[str, Any] | None:
    """The schema in strict form, or None if it has no such form."""
    try:
        return _Writing(schema, rules).written()
    except (_Inexpressible, RecursionError):
        return None


class _Writing:
    """Converts one schema into its strict form, and counts towards the limits."""

    def __init__(self, schema: dict[str, Any], rules: Rules) -> None:
        self._schema = schema
        self._rules = rules
        self._definitions = {**_table(schema, "definitions"), **_table(schema, "$defs")}
        self._optional = self._unions = self._properties = self._values = self._characters = 0

    def written(self) -> dict[str, Any]:
        strict = self._value(self._schema, 0)
        if self._definitions:
            self._characters += sum(map(len, self._definitions))
            strict["$defs"] = {name: self._value(part, 0) for name, part in self._definitions.items()}
        if self._rules.object_root and strict.get("type") != "object":
            raise _Inexpressible
        if not self._rules.recursive and _is_recursive(strict):
            raise _Inexpressible
        self._check_limits()
        return strict

    def _check_limits(self) -> None:
        rules = self._rules
        used = (
            (self._optional, rules.optional),
            (self._unions, rules.unions),
            (self._properties, rules.properties),
            (self._values, rules.values),
            (self._characters, rules.characters),
        )
        if any(limit is not None and count > limit for count, limit in used):
            raise _Inexpressible

    def _value(self, schema: Any, depth: int) -> dict[str, Any]:
        too_deep = self._rules.depth is not None and depth > self._rules.depth
        if not isinstance(schema, dict) or too_deep or any(name in schema for name in _STRUCTURE):
            raise _Inexpressible
        if "$ref" in schema:
            return self._reference(schema)
        shape = _shape(schema)
        if shape == "alternatives":
            return self._alternatives(schema, depth)
        if shape == "literals":
            return self._noted(self._literals(schema), schema)
        kinds = schema.get("type", shape)
        if isinstance(kinds, list):
            return self._union([{**schema, "type": kind} for kind in kinds], schema, depth)
        return self._typed(kinds, schema, depth)

    def _typed(self, kind: str, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        strict: dict[str, Any] = {"type": kind}
        if kind == "object":
            strict |= self._object(schema, depth)
        elif kind == "array":
            strict["items"] = self._value(schema.get("items"), depth + 1)
            strict |= self._kept(schema, _OF_ARRAY)
        elif kind == "string":
            strict |= self._kept(schema, _OF_STRING)
        elif kind in ("integer", "number"):
            strict |= self._kept(schema, _OF_NUMBER)
        elif kind not in ("boolean", "null"):
            raise _Inexpressible
        return self._noted(strict, schema)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = _table(schema, "properties"), schema.get("required", [])
        extra = schema.get("additionalProperties")
        # An object without named properties is a free-form table, unless it is closed, in which case it is always {}.
        if extra not in (None, False) or (not properties and extra is None) or not set(required) <= set(properties):
            raise _Inexpressible
        if any(_names_properties(schema[name]) for name in _COMBINED if name in schema):
            raise _Inexpressible
        self._properties += len(properties)
        self._optional += len(properties) - len(set(required))
        self._characters += sum(map(len, properties))
        return {
            "properties": {name: self._value(part, depth + 1) for name, part in properties.items()},
            "required": [name for name in properties if name in required],
            "additionalProperties": False,
        }

    def _reference(self, schema: dict[str, Any]) -> dict[str, Any]:
        target = schema["$ref"]
        others = set(schema) - {"$ref", "$defs", "definitions", "$schema", "$id", *_ANNOTATIONS}
        if others & _NARROWING or others & {"type", "properties", "items", "enum", "const"}:
            raise _Inexpressible
        if target == "#":
            return {"$ref": "#"}
        base, _, name = target.rpartition("/") if isinstance(target, str) else ("", "", "")
        if base not in ("#/$defs", "#/definitions") or name not in self._definitions:
            raise _Inexpressible
        return {"$ref": f"#/$defs/{name}"}

    def _alternatives(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        name = next(name for name in ("anyOf", "oneOf", "allOf") if name in schema)
        others = set(schema) & _NARROWING - {name}
        if others or not isinstance(schema[name], list) or not schema[name]:
            raise _Inexpressible
        if name == "allOf":
            if len(schema[name]) > 1:
                raise _Inexpressible
            return self._value({**schema[name][0], **_annotated(schema)}, depth)
        return self._union(schema[name], schema, depth)

    def _union(self, parts: list[Any], schema: dict[str, Any], depth: int) -> dict[str, Any]:
        if len(parts) == 1:
            return self._value({**parts[0], **_annotated(schema)}, depth)
        self._unions += 1
        bare = [
            {n: v for n, v in part.items() if n not in _ANNOTATIONS} if _is_own(part, schema) else part
            for part in parts
        ]
        return {"anyOf": [self._value(part, depth) for part in bare], **_annotated(schema)}

    def _literals(self, schema: dict[str, Any]) -> dict[str, Any]:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        allowed = schema.get("type")
        allowed = [allowed] if isinstance(allowed, str) else allowed
        by_kind: dict[str, list[Any]] = {}
        for value in values if isinstance(values, list) else ():
            kind = _literal_kind(value, allowed)
            if kind:
                by_kind.setdefault(kind, []).append(value)
        if not by_kind:
            raise _Inexpressible
        parts = [self._enumeration(kind, found) for kind, found in by_kind.items()]
        self._unions += len(parts) > 1
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def _enumeration(self, kind: str, values: list[Any]) -> dict[str, Any]:
        if kind == "null":
            return {"type": "null"}
        size = sum(len(str(value)) for value in values)
        self._values += len(values)
        self._characters += size
        limit = self._rules.long_enum
        if limit is not None and kind == "string" and len(values) > limit[0] and size > limit[1]:
            raise _Inexpressible
        return {"type": kind, "enum": values}

    def _kept(self, schema: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
        return {name: schema[name] for name in sorted(names) if name in schema and self._takes(name, schema[name])}

    def _takes(self, name: str, value: Any) -> bool:
        if name not in self._rules.kept:
            return False
        if name == "format":
            return value in self._rules.formats
        return name != "minItems" or self._rules.fewest_items is None or value in self._rules.fewest_items

    def _noted(self, strict: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        """Adds the author's annotations, and the constraints that could not be expressed otherwise."""
        mattering = (*_COMBINED, *_NARROWS.get(str(strict.get("type")), ()))
        left = {name: schema[name] for name in schema if name in mattering and name not in strict}
        words = _annotated(schema)
        if left:
            rest = json.dumps(left, ensure_ascii=False, sort_keys=True)
            words["description"] = "\n\n".join(
                filter(None, (str(words.get("description", "")), f"It must follow: {rest}"))
            )
        return {**strict, **words}


def _shape(schema: dict[str, Any]) -> str:
    """The keywords that determine the values: literals, an explicit or implied type, or alternatives."""
    if "enum" in schema or "const" in schema:
        return "literals"
    if "type" in schema:
        return "typed"
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    if any(name in schema for name in ("anyOf", "oneOf", "allOf")):
        return "alternatives"
    raise _Inexpressible


def _literal_kind(value: Any, allowed: Any) -> str:
    """The type under which a literal is listed; empty if the schema's own type rules it out."""
    if value is None:
        kind = "null"
    elif isinstance(value, bool):
        kind = "boolean"
    elif isinstance(value, str):
        kind = "string"
    elif isinstance(value, int | float):
        kind = "integer" if isinstance(value, int) or value.is_integer() else "number"
    else:
        raise _Inexpressible
    if allowed is None or kind in allowed:
        return kind
    return "number" if kind == "integer" and "number" in allowed else ""


def _table(schema: dict[str, Any], name: str) -> dict[str, Any]:
    table = schema.get(name, {})
    if not isinstance(table, dict):
        raise _Inexpressible
    return table


def _annotated(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in _ANNOTATIONS if isinstance(schema.get(name), str)}


def _is_own(part: Any, schema: dict[str, Any]) -> bool:
    """Whether a part repeats the annotations of the schema that it was made from."""
    return isinstance(part, dict) and bool(_annotated(part)) and _annotated(part) == _annotated(schema)


def _names_properties(part: Any) -> bool:
    if isinstance(part, list):
        return any(map(_names_properties, part))
    if not isinstance(part, dict):
        return False
    return bool({"properties", "patternProperties", "$ref"} & set(part)) or any(map(_names_properties, part.values()))


def _is_recursive(strict: dict[str, Any]) -> bool:
    """Whether a reference leads back to itself."""
    definitions = {"#": {n: v for n, v in strict.items() if n != "$defs"}}
    definitions |= {f"#/$defs/{name}": part for name, part in strict.get("$defs", {}).items()}
    leads = {name: set(_references(part)) for name, part in definitions.items()}
    while free := [name for name, targets in leads.items() if not targets & set(leads)]:
        for name in free:
            del leads[name]
    return bool(leads)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def tool_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool's parameters in a form that every provider accepts: an object at the top, and arrays with `items`.

    Alternatives at the top are left out; the arguments of a call are checked against the tool's own schema.
    """
    whole = {name: part for name, part in schema.items() if name not in (*_COMBINED, "enum", "const")}
    filled = _with_items({**whole, "type": "object"})
    return {**filled, "properties": filled.get("properties", {})}


def _with_items(part: Any, *, names: bool = False) -> Any:
    """`names` means that the keys are names, not keywords."""
    if isinstance(part, list):
        return [_with_items(one) for one in part]
    if not isinstance(part, dict):
        return part
    tables = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
    kept = ("enum", "const", "default", "examples", "required")
    filled = {
        name: one if not names and name in kept else _with_items(one, names=not names and name in tables)
        for name, one in part.items()
    }
    kind = filled.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    if not names and is_array and "items" not in filled and "prefixItems" not in filled:
        filled["items"] = {}
    return filled

"""The rules that OpenAI and Anthropic publish for schemas in strict mode, as a checker of what was sent.

Written from their guides to structured outputs, and knowing nothing of the code that makes the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
WORDS = {"type", "description", "title", "enum", "const", "anyOf", "$ref", "$defs"}
WORDS |= {"properties", "required", "additionalProperties", "items"}
NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


def openai_flaws(schema: dict[str, Any]) -> list[str]:
    """The parts that OpenAI would refuse in strict mode."""
    flaws = [*_shape(schema, WORDS | NUMBERS | {"pattern", "format", "minItems", "maxItems"}, FORMATS)]
    parts = [*_parts(schema)]
    if schema.get("type") != "object" or "anyOf" in schema:
        flaws.append("the root is not an object")
    for part in parts:
        if "type" not in part and "anyOf" not in part and "$ref" not in part:
            flaws.append(f"schema must have a 'type' key: {part}")
        if set(part.get("properties", ())) != set(part.get("required", ())):
            flaws.append("not every property is required")
    enums = [part["enum"] for part in parts if "enum" in part]
    names = [name for part in parts for name in (*part.get("properties", ()), *part.get("$defs", ()))]
    values = [str(value) for enum in enums for value in enum]
    if sum(map(len, (*names, *values))) > 120_000:
        flaws.append("too many characters")
    if len(values) > 1_000:
        flaws.append("too many enumerated values")
    if any(len(enum) > 250 and sum(len(str(one)) for one in enum) > 15_000 for enum in enums):
        flaws.append("a long enumeration has too many characters")
    if sum(len(part.get("properties", ())) for part in parts) > 5_000:
        flaws.append("too many properties")
    if _depth(schema) > 10:
        flaws.append("too deep")
    return flaws


def anthropic_flaws(schema: dict[str, Any]) -> list[str]:
    """The parts that Anthropic would refuse in an output format."""
    flaws = [*_shape(schema, WORDS | {"format", "minItems"}, FORMATS | {"uri"})]
    parts = [*_parts(schema)]
    for part in parts:
        if part.get("minItems", 0) not in (0, 1):
            flaws.append("minItems beyond 1")
        if not {"type", "anyOf", "$ref", "enum", "const"} & set(part):
            flaws.append(f"neither a type nor alternatives: {part}")
    if sum(len(set(part.get("properties", ())) - set(part.get("required", ()))) for part in parts) > 24:
        flaws.append("too many optional properties")
    if sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts) > 16:
        flaws.append("too many unions")
    if _recursive(schema):
        flaws.append("recursive")
    return flaws


def _shape(schema: dict[str, Any], words: set[str], formats: set[str]) -> Iterator[str]:
    for part in _parts(schema):
        yield from (f"unsupported keyword {name}" for name in sorted(set(part) - words))
        kinds = part.get("type", [])
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not set(kinds) <= TYPES:
            yield f"unknown type {kinds}"
        if "object" in kinds and part.get("additionalProperties") is not False:
            yield "an object that is not closed"
        if "object" in kinds and not set(part.get("required", ())) <= set(part.get("properties", ())):
            yield "a required property that is not declared"
        if "array" in kinds and not isinstance(part.get("items"), dict):
            yield "an array without items"
        if "enum" in part and (not part["enum"] or any(isinstance(one, dict | list) for one in part["enum"])):
            yield "an enumeration of something else than plain values"
        if part.get("format", "date") not in formats:
            yield f"unsupported format {part['format']}"
        reference = part.get("$ref", "#")
        if reference != "#" and reference.removeprefix("#/$defs/") not in schema.get("$defs", {}):
            yield f"a reference that leads nowhere: {reference}"
        if "$ref" in part and len(part) > 1 and part is not schema:
            yield "a reference with something beside it"


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    yield schema
    below = [*schema.get("anyOf", ()), *schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for part in [*below, *([schema["items"]] if "items" in schema else [])]:
        assert isinstance(part, dict), part
        yield from _parts(part)


def _depth(schema: dict[str, Any]) -> int:
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    below += [schema["items"]] if "items" in schema else []
    return (schema.get("type") == "object") + max((_depth(part) for part in below), default=0)


def _recursive(schema: dict[str, Any]) -> bool:
    def leads(part: dict[str, Any], seen: frozenset[str]) -> bool:
        for one in _parts({name: value for name, value in part.items() if name != "$defs"}):
            target = one.get("$ref")
            if target is None:
                continue
            if target in seen:
                return True
            found = schema if target == "#" else schema["$defs"][target.removeprefix("#/$defs/")]
            if leads(found, seen | {target}):
                return True
        return False

    return leads(schema, frozenset({"#"}))

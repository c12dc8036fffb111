"""Checks paths into an output against the schema that its step declares. Pure.

A path that the schema rules out is an error. A path that it only does not mention is a warning, because a schema that
does not set `additionalProperties: false` allows more than it lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cuebook.formats.shape import Shape

_DEEPEST = 20
"""How many references within a schema are followed."""
_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})


def check(shape: Shape, schema: Any, step: str, path: Sequence[str], line: int, at: str) -> None:
    """Reports the first part of a path that the schema rules out, or does not mention."""
    options = list(_options(schema, schema, _DEEPEST))
    for number, part in enumerate(path):
        below = [one for option in options for one in _below(option, part, schema)]
        if any(found is not None for found, _ in below):
            options = [one for found, _ in below if found is not None for one in _options(found, schema, _DEEPEST)]
            continue
        place = f"${step}.json{''.join(f'.{one}' for one in path[:number])}"
        known = sorted({name for option in options for name in option.get("properties", {})})
        fix = shape.meant(part, known) if known else "Correct the path, or the schema of that step."
        if all(closed for _, closed in below):
            kind = _kind(options)
            message = f"{at}: '{place}.{part}' cannot exist: {place} is {kind} by the schema of step '{step}'"
            shape.wrong(
                line, f"{message}{'' if kind != 'an object' else f' that has no {part!r}'}.", fix, "UNKNOWN_REFERENCE"
            )
        elif known:
            message = f"{at}: the schema of step '{step}' does not mention '{place}.{part}'."
            shape.odd(line, message, fix, "NOT_IN_SCHEMA")
        return


def _options(schema: Any, root: Any, left: int) -> Iterator[dict[str, Any]]:
    """The schemas that a value may match. One that cannot be followed allows everything."""
    if not isinstance(schema, dict) or left <= 0:
        yield {}
        return
    target = schema.get("$ref")
    if isinstance(target, str):
        yield from _options(_resolved(target, root), root, left - 1)
        return
    branches = [one for name in ("anyOf", "oneOf", "allOf") for one in schema.get(name) or ()]
    for branch in branches:
        yield from _options(branch, root, left - 1)
    if not branches or "properties" in schema or "items" in schema:
        yield schema


def _resolved(target: str, root: Any) -> Any:
    if not target.startswith("#"):
        return {}
    found = root
    for part in target[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return {}
        found = found[name]
    return found


def _below(schema: dict[str, Any], part: str, root: Any) -> Iterator[tuple[Any, bool]]:
    """The schema of a part, or None if there is none, and whether the part is ruled out."""
    kinds = schema.get("type")
    types = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    properties = schema.get("properties")
    if isinstance(properties, dict) and part in properties:
        yield properties[part], False
    elif "patternProperties" in schema or ("$ref" in schema and not properties):
        yield {}, False
    elif types and types <= _SCALARS:
        yield None, True
    elif types == {"array"} or ("items" in schema and "object" not in types):
        yield (schema.get("items", {}), False) if part.isdigit() else (None, True)
    elif isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"], False
    elif schema.get("additionalProperties") is False and isinstance(properties, dict):
        yield None, True
    elif isinstance(properties, dict):
        yield None, False
    else:
        yield {}, False


def _kind(options: Sequence[dict[str, Any]]) -> str:
    kinds = {str(option.get("type", "object")) for option in options}
    if kinds == {"array"}:
        return "a list"
    if "object" in kinds or len(kinds) > 1:
        return "an object"
    kind = kinds.pop()
    return f"{'an' if kind == 'integer' else 'a'} {kind}"

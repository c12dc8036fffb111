"""The JSON Schema (2020-12) of a node's output: whether it can be used, and what is wrong with data under it.

Nothing is fetched: a reference leads within the schema or is refused. Patterns are searched in linear time.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from cuebook.dialects.graph.regex import UnsupportedRegex, compiled, searches

_ONE = (
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""The keywords below which schemas stand: one, a list of them, or a table of them."""

_MOST = 5
"""Mismatches that are told of one value."""


def flaws(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Why a schema cannot be used, each with its code; empty where it can."""
    return list(_flaws(json.dumps(schema, sort_keys=True)))


def mismatches(schema: dict[str, Any], data: Any) -> list[str]:
    """What is wrong with data under a schema without flaws, each as `path: message`; empty where nothing is."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        errors = sorted(_validator(json.dumps(schema, sort_keys=True)).iter_errors(data), key=lambda one: one.json_path)
    except RecursionError:
        return ["$: the schema refers to itself without end"]
    except Unresolvable as why:
        return [f"$: a reference of the schema leads nowhere: {why}"]
    told = []
    for error in errors[:_MOST]:
        cause = best_match([error]) or error
        message = cause.message if len(cause.message) <= 300 else cause.message[:300] + "…"
        told.append(f"{cause.json_path}: {message}")
    return told


@lru_cache(maxsize=256)
def _flaws(text: str) -> tuple[tuple[str, str], ...]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = json.loads(text)
    error = best_match(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
    if error is not None:
        where = f" at {error.json_path}" if error.absolute_path else ""
        return (("INVALID_OUTPUT_SCHEMA", f"{error.message[:300]}{where}"),)
    return tuple(_unusable(schema))


def _unusable(schema: Any) -> Iterator[tuple[str, str]]:
    every = list(_schemas(schema))
    if any("patternProperties" in one for one in every) and any("unevaluatedProperties" in one for one in every):
        # The library would search those patterns with an engine that backtracks.
        yield "INVALID_OUTPUT_SCHEMA", "patternProperties and unevaluatedProperties cannot stand in one schema here"
    for one in every:
        for reference in (one.get("$ref"), one.get("$dynamicRef")):
            if reference is not None and not _leads_inside(schema, reference):
                yield "INVALID_OUTPUT_SCHEMA", f"the reference '{reference[:100]}' does not lead to a part of it"
        patterns = [*one.get("patternProperties", ()), *([one["pattern"]] if "pattern" in one else ())]
        for pattern in patterns:
            try:
                compiled(pattern)
            except UnsupportedRegex as why:
                yield "UNSUPPORTED_REGEX", f"'{pattern[:60]}': {why.message}"


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all below it."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        yield one
        waiting += [one[name] for name in _ONE if name in one]
        for name in _LIST:
            waiting += one.get(name, ())
        for name in _MAP:
            waiting += one.get(name, {}).values()


def _leads_inside(schema: Any, reference: str) -> bool:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if not reference.startswith("#"):
        return False
    try:
        Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver().lookup(reference)
    except Unresolvable:
        return False
    return True


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    from referencing import Registry

    return _checker()(json.loads(text), registry=Registry())


@lru_cache(maxsize=1)
def _checker() -> Any:
    """The validator of the library, except for patterns: it would search them with an engine that backtracks."""
    from jsonschema import Draft202012Validator, ValidationError

    validators: Any = importlib.import_module("jsonschema.validators")  # not all of it is typed

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not searches(wanted, instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        for name, value in instance.items() if isinstance(instance, dict) else ():
            for wanted, below in patterns.items():
                if searches(wanted, name):
                    yield from validator.descend(value, below, path=name, schema_path=wanted)

    def additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        known = schema.get("properties", {})
        patterns = schema.get("patternProperties", ())
        for name, value in instance.items() if isinstance(instance, dict) else ():
            if name in known or any(searches(wanted, name) for wanted in patterns):
                continue
            if allowed is False:
                yield ValidationError(f"{name!r} is not expected")
            else:
                yield from validator.descend(value, allowed, path=name)

    own = {"pattern": pattern, "patternProperties": pattern_properties, "additionalProperties": additional}
    return validators.extend(Draft202012Validator, own)

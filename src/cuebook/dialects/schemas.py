"""JSON Schemas of what a step gives: whether one can be used, and what is wrong with data under it.

A schema is read as the dialect's draft has it, unless it names one itself. Nothing is fetched: a reference leads within
the schema or is refused. Patterns are searched in linear time.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from cuebook.dialects.regex import UnsupportedRegex, compiled, searches

Schema = dict[str, Any] | bool

Draft = Literal["2020-12", "2019-09"]

_ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""The keywords below which schemas stand: one, a list of them, or a table of them."""

_MOST = 5
"""Mismatches that are told of one value."""

_LOOKS, _MOST_LOOKS = 20_000, 5_000_000
"""How often keywords of a schema may be looked at: so often, and as often as each part of the schema is looked at for each part
of the data; but no oftener than the second. A small schema can ask for more than any machine can do, as by alternatives of
alternatives, and everything else here would stand still meanwhile.
"""


class _TooLong(Exception):
    pass


_purse = threading.local()


def _size(data: Any) -> int:
    """The number of its parts."""
    size, waiting = 0, [data]
    while waiting:
        one = waiting.pop()
        size += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return size


def _counted(keyword: Any) -> Any:
    def looked(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _purse.left -= 1
        if _purse.left < 0:
            raise _TooLong
        yield from keyword(validator, wanted, instance, schema) or ()

    return looked


def flaws(schema: Schema, draft: Draft = "2020-12") -> list[tuple[str, str]]:
    """Why a schema cannot be used, each with its code; empty where it can."""
    return list(_flaws(json.dumps(schema, sort_keys=True), _draft(schema, draft)))


def mismatches(schema: Schema, data: Any, draft: Draft = "2020-12", most: int | None = _MOST) -> list[str]:
    """What is wrong with data under a schema without flaws, each as `path: message`; empty where nothing is.

    At most so many are told; with None, all of them.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator(json.dumps(schema, sort_keys=True), _draft(schema, draft))
        _purse.left = min(_LOOKS + _size(schema) * _size(data), _MOST_LOOKS)
        errors = sorted(validator.iter_errors(data), key=lambda one: one.json_path)
    except _TooLong:
        return ["$: the schema takes too long to be checked: it tries the same again and again"]
    except RecursionError:
        return ["$: the schema refers to itself without end"]
    except Unresolvable as why:
        return [f"$: a reference of the schema leads nowhere: {why}"]
    told = []
    for error in errors[:most]:
        cause = best_match([error]) or error
        message = cause.message if len(cause.message) <= 300 else cause.message[:300] + "…"
        told.append(f"{cause.json_path}: {message}")
    return told


def _draft(schema: Schema, otherwise: Draft) -> Draft:
    """The draft that a schema names itself, if it is one that is known here."""
    named = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    found: dict[str, Draft] = {f"https://json-schema.org/draft/{one}/schema": one for one in _DRAFTS}
    return found.get(named.rstrip("#"), otherwise)


_DRAFTS: tuple[Draft, ...] = ("2020-12", "2019-09")


@lru_cache(maxsize=256)
def _flaws(text: str, draft: Draft) -> tuple[tuple[str, str], ...]:
    from jsonschema.exceptions import best_match

    schema = json.loads(text)
    plain = _plain(draft)
    error = best_match(plain(plain.META_SCHEMA).iter_errors(schema))
    if error is not None:
        where = f" at {error.json_path}" if error.absolute_path else ""
        return (("INVALID_OUTPUT_SCHEMA", f"{error.message[:300]}{where}"),)
    return tuple(_unusable(schema, draft))


def _plain(draft: Draft) -> Any:
    """The library's own validator."""
    from jsonschema import Draft201909Validator, Draft202012Validator

    return Draft202012Validator if draft == "2020-12" else Draft201909Validator


def _unusable(schema: Any, draft: Draft) -> Iterator[tuple[str, str]]:
    every = list(_schemas(schema))
    if any("patternProperties" in one for one in every) and any("unevaluatedProperties" in one for one in every):
        # The library would search those patterns with an engine that backtracks.
        yield "INVALID_OUTPUT_SCHEMA", "patternProperties and unevaluatedProperties cannot stand in one schema here"
    for one in every:
        for reference in (one.get("$ref"), one.get("$dynamicRef"), one.get("$recursiveRef")):
            if reference is not None and not _leads_inside(schema, reference, draft):
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
        for name in _ONE:  # `items` was a list of schemas until 2019-09
            found = one.get(name)
            waiting += found if isinstance(found, list) else [found]
        for name in _LIST:
            waiting += one.get(name, ())
        for name in _MAP:
            waiting += one.get(name, {}).values()


def _leads_inside(schema: Any, reference: str, draft: Draft) -> bool:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT201909, DRAFT202012

    if not reference.startswith("#"):
        return False
    try:
        known = DRAFT202012 if draft == "2020-12" else DRAFT201909
        Registry().with_resource("", known.create_resource(schema)).resolver().lookup(reference)
    except Unresolvable:
        return False
    return True


@lru_cache(maxsize=256)
def _validator(text: str, draft: Draft) -> Any:
    from referencing import Registry

    return _checker(draft)(json.loads(text), registry=Registry())


@lru_cache(maxsize=2)
def _checker(draft: Draft) -> Any:
    """The validator of the library, except for what takes it too long: patterns, which it would search with an engine
    that backtracks, and unique items, each of which it would compare with all others.
    """
    from jsonschema import ValidationError

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

    def unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
        seen: dict[str, int] = {}
        for number, value in enumerate(instance if wanted and isinstance(instance, list) else ()):
            first = seen.setdefault(_canonical(value), number)
            if first != number:
                yield ValidationError(f"the items {first} and {number} are the same")
                return

    own = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional,
        "uniqueItems": unique,
    }
    every = {**_plain(draft).VALIDATORS, **own}
    return validators.extend(_plain(draft), {name: _counted(keyword) for name, keyword in every.items()})


def _canonical(value: Any) -> str:
    """A text that is the same for values that are equal in JSON, and for no others."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """With numbers that have no fraction as such: 1.0 is 1 in JSON."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value

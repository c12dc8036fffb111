"""JSON Schema: checks schemas, and data against schemas. The only such checker in the project.

A schema may be untrusted, so a check takes a bounded number of steps, matches patterns in linear time, and fetches
nothing: a reference must point into the schema itself.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from cuebook.formats.regex import UnsupportedRegex, compiled, searches

Schema = dict[str, Any] | bool

Draft = Literal["2020-12", "2019-09"]
"""The draft for schemas that do not specify one."""

_ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""The keywords that contain schemas: a single schema, a list, or a table."""

_MOST_SHOWN = 5
"""The maximum number of mismatches listed for one value."""

_FEWEST_STEPS, _MOST_STEPS = 20_000, 5_000_000
"""How many keywords may be evaluated in one check: the first number plus one for each pair of a schema part and a data
part, but never more than the second. A small schema of nested alternatives can require more than any machine can do.
"""


class BadSchema(Exception):
    """The schema cannot be used for checks; the message says why."""


class Mismatch(NamedTuple):
    """One way in which data does not match a schema."""

    path: tuple[str | int, ...]
    message: str
    keyword: str
    expected: Any


def flaws(schema: Schema, draft: Draft = "2020-12") -> list[tuple[str, str]]:
    """The reasons why a schema cannot be used, each with its code; empty if it can."""
    return list(_flaws(json.dumps(schema, sort_keys=True), draft))


def mismatches(schema: Schema, data: Any, draft: Draft = "2020-12", most: int | None = _MOST_SHOWN) -> list[str]:
    """The mismatches between data and a schema without flaws, each as `path: message`, at most `most`; empty if it matches."""
    from jsonschema.exceptions import best_match

    try:
        errors = sorted(_errors(json.dumps(schema, sort_keys=True), data, draft), key=lambda one: one.json_path)
    except BadSchema as why:
        return [f"$: the schema cannot be checked: {why}"]
    found = []
    for error in errors[:most]:
        cause = best_match([error]) or error
        message = cause.message if len(cause.message) <= 300 else cause.message[:300] + "…"
        found.append(f"{cause.json_path}: {message}")
    return found


def worst_mismatch(schema: str, data: Any, ignored: set[tuple[str, ...]]) -> Mismatch | None:
    """The most relevant mismatch with an untrusted schema, given as JSON text, or None. Raises `BadSchema`.

    A pattern that cannot be used is not checked, because the schema's author checks the data too. Nothing at or below the
    paths in `ignored` is a mismatch.
    """
    from jsonschema.exceptions import best_match

    _check_schema(schema)
    errors = [
        error
        for error in _errors(schema, data, "2020-12", lenient=True)
        if not any(tuple(map(str, error.absolute_path))[: len(path)] == path for path in ignored)
    ]
    worst: Any = best_match(errors)
    if worst is None:
        return None
    return Mismatch(tuple(worst.absolute_path), worst.message, str(worst.validator), worst.validator_value)


# --- whether a schema can be used ---------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _check_schema(text: str) -> None:
    from jsonschema import FormatChecker, SchemaError

    schema = json.loads(text)
    try:
        # Without formats, because the library would reject patterns that Python does not support.
        _library(schema, "2020-12").check_schema(schema, format_checker=FormatChecker(()))
    except (SchemaError, RecursionError) as error:
        raise BadSchema(getattr(error, "message", "") or type(error).__name__) from None


@lru_cache(maxsize=256)
def _flaws(text: str, draft: Draft) -> tuple[tuple[str, str], ...]:
    from jsonschema.exceptions import best_match

    schema = json.loads(text)
    library = _library(schema, draft)
    error = best_match(library(library.META_SCHEMA).iter_errors(schema))
    if error is not None:
        where = f" at {error.json_path}" if error.absolute_path else ""
        return (("INVALID_OUTPUT_SCHEMA", f"{error.message[:300]}{where}"),)
    return tuple(_unusable(schema, draft))


def _library(schema: Any, draft: Draft) -> Any:
    """The library's validator for the draft that a schema specifies, or else for the given draft."""
    from jsonschema import Draft201909Validator, Draft202012Validator

    validators: Any = importlib.import_module("jsonschema.validators")  # not all of it is typed
    default = Draft202012Validator if draft == "2020-12" else Draft201909Validator
    return validators.validator_for(schema, default=default)


def _unusable(schema: Any, draft: Draft) -> Iterator[tuple[str, str]]:
    every = list(_schemas(schema))
    if any("patternProperties" in one for one in every) and any("unevaluatedProperties" in one for one in every):
        # The library would match those patterns with an engine that backtracks.
        yield "INVALID_OUTPUT_SCHEMA", "patternProperties and unevaluatedProperties cannot be used together"
    for one in every:
        for reference in (one.get("$ref"), one.get("$dynamicRef"), one.get("$recursiveRef")):
            if reference is not None and not _leads_inside(schema, reference, draft):
                yield (
                    "INVALID_OUTPUT_SCHEMA",
                    f"the reference '{reference[:100]}' does not point into the schema",
                )
        patterns = [*one.get("patternProperties", ()), *([one["pattern"]] if "pattern" in one else ())]
        for pattern in patterns:
            try:
                compiled(pattern)
            except UnsupportedRegex as why:
                yield "UNSUPPORTED_REGEX", f"'{pattern[:60]}': {why.message}"


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields a schema and all schemas in it."""
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
    from referencing.jsonschema import specification_with

    if not reference.startswith("#"):
        return False
    try:
        specification = specification_with(_library(schema, draft).META_SCHEMA["$schema"])
        Registry().with_resource("", specification.create_resource(schema)).resolver().lookup(reference)
    except Unresolvable:
        return False
    return True


# --- checking data ------------------------------------------------------------------------------------------


class _Steps(threading.local):
    """The remaining steps of the check in this thread."""

    left = 0


_steps = _Steps()


class _TooManySteps(Exception):
    pass


def _errors(schema: str, data: Any, draft: Draft, *, lenient: bool = False) -> list[Any]:
    from referencing.exceptions import Unresolvable

    validator, size = _validator(schema, draft, lenient)
    try:
        _steps.left = min(_FEWEST_STEPS + size * _size(data), _MOST_STEPS)
        return list(validator.iter_errors(data))
    except _TooManySteps:
        raise BadSchema("it takes too many steps because it checks the same parts repeatedly") from None
    except RecursionError:
        raise BadSchema("it has a circular reference") from None
    except Unresolvable as why:
        raise BadSchema(f"it has an unresolvable reference: {why}") from None


def _size(data: Any) -> int:
    """The number of parts in the data."""
    size, waiting = 0, [data]
    while waiting:
        one = waiting.pop()
        size += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return size


@lru_cache(maxsize=512)
def _validator(text: str, draft: Draft, lenient: bool) -> tuple[Any, int]:
    """A schema's validator and the schema's size."""
    from referencing import Registry

    schema = json.loads(text)
    # With an empty registry, a reference resolves within the schema or not at all: nothing is fetched.
    bounded = _bounded(_library(schema, draft), lenient, '"patternProperties"' in text)
    return bounded(schema, registry=Registry()), _size(schema)


@lru_cache(maxsize=16)
def _bounded(library: Any, lenient: bool, patterned: bool) -> Any:
    """The library's validator with every keyword counted, and with replacements for the keywords that can take too long:
    patterns, for which its engine backtracks, and unique items, which it compares pairwise.
    """
    from jsonschema import ValidationError

    validators: Any = importlib.import_module("jsonschema.validators")

    def matches(pattern: str, text: str) -> bool | None:
        """Returns None if the pattern cannot be used."""
        try:
            return searches(pattern, text, unicode=lenient)
        except UnsupportedRegex:
            if lenient:
                return None
            raise

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and matches(wanted, instance) is False:
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        for name, value in instance.items() if isinstance(instance, dict) else ():
            for wanted, below in patterns.items():
                if matches(wanted, name):
                    yield from validator.descend(value, below, path=name, schema_path=wanted)

    def additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        known = schema.get("properties", {})
        patterns = schema.get("patternProperties", ())
        for name, value in instance.items() if isinstance(instance, dict) else ():
            if name in known or any(matches(wanted, name) is not False for wanted in patterns):
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
                yield ValidationError(f"items {first} and {number} are the same")
                return

    def unchecked(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        return iter(())

    own = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional,
        "uniqueItems": unique,
        # With patterns in the schema, the library would match them with an engine that backtracks.
        **({"unevaluatedProperties": unchecked} if patterned else {}),
    }
    every = {**library.VALIDATORS, **{name: keyword for name, keyword in own.items() if name in library.VALIDATORS}}
    return validators.extend(library, {name: _counted(keyword) for name, keyword in every.items()})


def _counted(keyword: Any) -> Any:
    def evaluated(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _steps.left -= 1
        if _steps.left < 0:
            raise _TooManySteps
        yield from keyword(validator, wanted, instance, schema) or ()

    return evaluated


def _canonical(value: Any) -> str:
    """Text that is identical for exactly those values that are equal in JSON."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """The value with whole floats as integers: 1.0 equals 1 in JSON."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value

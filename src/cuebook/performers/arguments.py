"""The arguments of a tool: checked against its JSON Schema, and with secrets put in their places.

A schema may come from a stranger, so checking against one ends in bounded time and fetches nothing. It knows no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from cuebook.kernel.effects import SecretUse
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.tool_names import likely_server

Place = tuple[str, ...]

SCHEMA_LIMIT = 256_000
"""Bytes of a schema that is still looked at."""

_MOST_REFERENCES = 10_000
_SHOWN = 300


# --- secrets ------------------------------------------------------------------------------------------


def place_of(use: SecretUse) -> Place | None:
    """The names on the way to the argument that a secret belongs in; None where it names no argument."""
    first, *rest = use.at.split(".")
    return tuple(rest) if first == "arguments" and rest and all(rest) else None


def places(uses: Iterable[SecretUse], tool: str) -> dict[Place, SecretUse] | Failed:
    found: dict[Place, SecretUse] = {}
    for use in uses:
        place = place_of(use)
        if place is None:
            return Failed(
                "secret_misplaced",
                f"The secret '{use.handle}' is meant for '{use.at}', which is no argument of the tool '{tool}'.",
                fix="Name the argument it belongs in, as in `arguments.token`.",
            )
        found[place] = use
    return found


def with_values(arguments: Mapping[str, Any], values: Mapping[Place, str]) -> dict[str, Any] | Failed:
    """A copy with each value at its place. What is on the way there must be an object, or missing."""
    made = dict(arguments)
    for place, value in values.items():
        within = made
        for name in place[:-1]:
            inner = within.get(name, {})
            if not isinstance(inner, dict):
                at = ".".join(("arguments", *place))
                return Failed("secret_misplaced", f"A secret is meant for '{at}', but '{name}' is not an object.")
            within[name] = dict(inner)
            within = within[name]
        within[place[-1]] = value
    return made


def with_handles(arguments: Mapping[str, Any], uses: Mapping[Place, SecretUse]) -> dict[str, Any] | Failed:
    """A copy in which each secret is shown by its handle, within the words around it: what a person sees and what a schema is checked against."""
    shown = {place: use.form.replace("{}", f"<secret {use.handle}>") for place, use in uses.items()}
    return with_values(arguments, shown)


# --- schemas ------------------------------------------------------------------------------------------


class BadSchema(Exception):
    """What was given is no JSON Schema that arguments can be checked against."""


def check(
    tool: str, schema: dict[str, Any], arguments: Mapping[str, Any], secret: Iterable[Place] = ()
) -> Failed | None:
    """Why the arguments do not fit the schema, or None. What lies at a secret's place counts as right."""
    if not schema:
        return None
    try:
        errors = _compiled(_encoded(schema))(arguments)
    except BadSchema as error:
        return bad_schema(tool, str(error))
    hidden = set(secret)
    errors = [error for error in errors if not any(_place(error)[: len(place)] == place for place in hidden)]
    if not errors:
        return None
    from jsonschema.exceptions import best_match

    worst = best_match(errors)
    where = _path(worst)
    return Failed(
        "bad_arguments",
        f"The arguments of the tool '{tool}' do not fit: at {where}: {_short(worst.message)}.",
        fix=f"Give arguments as the tool wants them. {_taken(schema)}".strip(),
        details={"path": where, "wanted": _short(f"{worst.validator}: {worst.validator_value}")},
    )


def bad_schema(tool: str, why: str) -> Failed:
    server = likely_server(tool)
    owner = f"the author of the tool server '{server}'" if server else "its author"
    return Failed(
        "bad_schema",
        f"The tool '{tool}' cannot be used: the schema of its arguments is not valid ({_short(why)}).",
        fix=f"Tell {owner}, or use another tool.",
        details={"server": server} if server else {},
    )


def _encoded(schema: dict[str, Any]) -> bytes:
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(str(error)) from None
    if len(encoded) > SCHEMA_LIMIT:
        raise BadSchema(f"it has more than {SCHEMA_LIMIT} bytes")
    return encoded


@lru_cache(maxsize=512)
def _compiled(encoded: bytes) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A check that is compiled once for each schema."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    schema = msgspec.json.decode(encoded)
    found = validator_for(schema, default=Draft202012Validator)
    try:
        found.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise BadSchema(getattr(error, "message", "") or type(error).__name__) from None
    count = _Count()
    # With an empty registry a reference resolves within the schema or not at all: nothing is fetched.
    validator = _bounded(found, count, encoded)(schema, registry=Registry())

    def errors(arguments: Mapping[str, Any]) -> list[Any]:
        count.seen = 0
        try:
            return list(validator.iter_errors(dict(arguments)))
        except Unresolvable as error:
            raise BadSchema(f"it refers to something that it does not hold: {error}") from None
        except RecursionError:
            raise BadSchema("it refers to itself without an end") from None

    return errors


class _Count:
    seen = 0


def _bounded(validator: Any, count: _Count, encoded: bytes) -> Any:
    """The validator without what a hostile schema could keep it busy with: patterns that never come to an end, and
    references that double at every step.
    """
    from jsonschema import validators

    extend: Any = validators.extend
    known = validator.VALIDATORS

    def counted(original: Any) -> Any:
        def reference(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            count.seen += 1
            if count.seen > _MOST_REFERENCES:
                raise BadSchema("it refers to its parts too often")
            yield from original(validator, value, instance, schema) or ()

        return reference

    replaced = {name: counted(known[name]) for name in ("$ref", "$dynamicRef", "$recursiveRef") if name in known}
    replaced["pattern"] = _pattern
    if b'"patternProperties"' in encoded:
        replaced["patternProperties"] = _pattern_properties
        replaced["additionalProperties"] = _additional(known["additionalProperties"])
        replaced["unevaluatedProperties"] = _unchecked
    return extend(validator, replaced)


@lru_cache(maxsize=512)
def _expression(pattern: str) -> Any:
    """The pattern in linear time; None for one that cannot be had so. Its tool still checks that by itself."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _unchecked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    return iter(())


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str):
        expression = _expression(value)
        if expression is not None and not expression.search(instance):
            yield ValidationError(f"{instance!r} does not match {value!r}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in value.items():
        expression = _expression(pattern)
        for name in instance if expression is not None else ():
            if expression.search(name):
                yield from validator.descend(instance[name], inner, path=name, schema_path=pattern)


def _additional(original: Any) -> Any:
    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        patterns = [_expression(pattern) for pattern in schema.get("patternProperties", {})]
        if not isinstance(instance, dict) or None in patterns:
            return
        left = {name: v for name, v in instance.items() if not any(p.search(name) for p in patterns)}
        alone = {name: part for name, part in schema.items() if name != "patternProperties"}
        yield from original(validator, value, left, alone) or ()

    return additional


# --- words --------------------------------------------------------------------------------------------


def _place(error: Any) -> Place:
    return tuple(str(part) for part in error.absolute_path)


def _path(error: Any) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return _short("arguments" + "".join(parts))


def _taken(schema: dict[str, Any]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties:
        return ""
    must = set(required) if isinstance(required, list) else set()
    names = [f"{name} (needed)" if name in must else str(name) for name in list(properties)[:20]]
    return _short(f"It takes {', '.join(names)}.")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

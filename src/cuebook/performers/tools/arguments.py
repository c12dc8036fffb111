"""The arguments of a tool: checked against its JSON Schema, and with secrets inserted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cuebook.formats.schema import BadSchema, worst_mismatch
from cuebook.kernel.effects import SecretUse
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.tool_names import likely_server

Place = tuple[str, ...]

SCHEMA_LIMIT = 256_000
"""The maximum size of a schema, in bytes."""

_SHOWN = 300


# --- secrets ------------------------------------------------------------------------------------------


def place_of(use: SecretUse) -> Place | None:
    """The path of the argument that a secret belongs in; None if it does not belong in an argument."""
    first, *rest = use.at.split(".")
    return tuple(rest) if first == "arguments" and rest and all(rest) else None


def places(uses: Iterable[SecretUse], tool: str) -> dict[Place, SecretUse] | Failed:
    found: dict[Place, SecretUse] = {}
    for use in uses:
        place = place_of(use)
        if place is None:
            return Failed(
                "secret_misplaced",
                f"The secret '{use.handle}' is assigned to '{use.at}', which is not an argument of the tool '{tool}'.",
                fix="Specify the argument that it belongs in, as in `arguments.token`.",
            )
        found[place] = use
    return found


def with_values(arguments: Mapping[str, Any], values: Mapping[Place, str]) -> dict[str, Any] | Failed:
    """A copy with each value at its place. Every parent on the path must be an object or missing."""
    made = dict(arguments)
    for place, value in values.items():
        within = made
        for name in place[:-1]:
            inner = within.get(name, {})
            if not isinstance(inner, dict):
                at = ".".join(("arguments", *place))
                return Failed("secret_misplaced", f"A secret is assigned to '{at}', but '{name}' is not an object.")
            within[name] = dict(inner)
            within = within[name]
        within[place[-1]] = value
    return made


def with_handles(arguments: Mapping[str, Any], uses: Mapping[Place, SecretUse]) -> dict[str, Any] | Failed:
    """A copy with a handle in place of each secret, which is shown to the user and checked against the schema."""
    shown = {place: use.form.replace("{}", f"<secret {use.handle}>") for place, use in uses.items()}
    return with_values(arguments, shown)


# --- schemas ------------------------------------------------------------------------------------------


def check(
    tool: str, schema: dict[str, Any], arguments: Mapping[str, Any], secret: Iterable[Place] = ()
) -> Failed | None:
    """Why the arguments do not match the schema, or None. The places of secrets are not checked."""
    if not schema:
        return None
    try:
        worst = worst_mismatch(_encoded(schema), dict(arguments), set(secret))
    except BadSchema as error:
        return bad_schema(tool, str(error))
    if worst is None:
        return None
    where = _path(worst.path)
    return Failed(
        "bad_arguments",
        f"The arguments of the tool '{tool}' do not match its schema: at {where}: {_short(worst.message)}.",
        fix=f"Correct the arguments. {_parameters(schema)}".strip(),
        details={"path": where, "wanted": _short(f"{worst.keyword}: {worst.expected}")},
    )


def bad_schema(tool: str, why: str) -> Failed:
    server = likely_server(tool)
    owner = f"the author of the tool server '{server}'" if server else "its author"
    return Failed(
        "bad_schema",
        f"The tool '{tool}' cannot be used: the schema of its arguments is not valid ({_short(why)}).",
        fix=f"Report it to {owner}, or use another tool.",
        details={"server": server} if server else {},
    )


def _encoded(schema: dict[str, Any]) -> str:
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(str(error)) from None
    if len(encoded) > SCHEMA_LIMIT:
        raise BadSchema(f"it has more than {SCHEMA_LIMIT} bytes")
    return encoded.decode()


# --- words --------------------------------------------------------------------------------------------


def _path(parts: Iterable[str | int]) -> str:
    return _short("arguments" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts))


def _parameters(schema: dict[str, Any]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties:
        return ""
    must = set(required) if isinstance(required, list) else set()
    names = [f"{name} (required)" if name in must else str(name) for name in list(properties)[:20]]
    return _short(f"It accepts {', '.join(names)}.")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

"""One tool for each playbook: its inputs as a JSON Schema, and hints that claim only what is proved."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cuebook.dialects.dialect import Input
from cuebook.kernel.errors import BadInput
from cuebook.service.playbooks.library import Listed
from cuebook.surfaces.mcp import elicitation
from cuebook.surfaces.mcp.tools import runs
from cuebook.surfaces.mcp.tools.tool import Answer, Call, Hints, Offered
from cuebook.surfaces.mcp.untrusted_text import one_line
from cuebook.wiring.run_request import RunRequest

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64
_PREFIX = "run_"
_KEY, _LONGEST_KEY = "client_key", 200
_TYPES: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "string[]": {"type": "array", "items": {"type": "string"}},
    "array": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}
"""All other types are strings."""


def offered(books: Iterable[Listed], *, confined: bool) -> list[Offered]:
    """A tool for each playbook; of several with the same name, the first wins. `confined`: commands run in a sandbox."""
    made: dict[str, Offered] = {}
    for book in books:
        name = f"{_PREFIX}{_NOT_IN_A_NAME.sub('_', book.id)}"[:_LONGEST_NAME]
        made.setdefault(name, _tool(name, book, confined=confined))
    return list(made.values())


def _tool(name: str, book: Listed, *, confined: bool) -> Offered:
    async def act(call: Call, given: dict[str, Any]) -> Answer:
        again = await elicitation.continue_call(call, None)
        if again is not None:
            return again
        declared = {one.name for one in book.inputs}
        key = given.get(_KEY, "") if _KEY not in declared else ""
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            raise BadInput(
                f"{_KEY} must be a string of at most {_LONGEST_KEY} characters.", fix="Shorten it, or leave it out."
            )
        properties = schema_of(book)["properties"]
        for one, value in given.items():
            if properties.get(one, {}).get("type") == "string" and not isinstance(value, str):
                raise BadInput(f"The input {one} of {book.name} must be a string.", fix="Pass a string.")
        inputs = {one: value for one, value in given.items() if one in declared or one != _KEY}
        return await runs.start_and_attend(call, book.playbook, RunRequest(inputs=inputs), key, None)

    title = one_line(book.title, 100)
    about = one_line(f"Runs the playbook '{title}' ({len(book.steps)} steps). {book.description}", 1000)
    return Offered(name, title, about, schema_of(book), act, "runner", hints_of(book, confined=confined))


def schema_of(book: Listed) -> dict[str, Any]:
    properties = {one.name: _property(one) for one in book.inputs}
    if _KEY not in properties:
        properties[_KEY] = {
            "type": "string",
            "maxLength": _LONGEST_KEY,
            "description": "Two calls with the same key start one execution.",
        }
    required = [one.name for one in book.inputs if one.required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": not book.inputs}
    return {**schema, **({"required": required} if required else {})}


def _property(one: Input) -> dict[str, Any]:
    made = dict(_TYPES.get(one.type, {"type": "string"}))
    read = _READ_AS.get(made.get("type", ""), _unread)
    if one.options:
        made["enum"] = [option if (value := read(option)) is None else value for option in one.options]
    if one.description:
        made["description"] = one_line(one.description, 500)
    default = None if one.default is None else read(one.default)
    if default is not None:
        made["default"] = default
    return made


def _unread(text: str) -> None:
    """No value, because for an input that accepts any type, the text does not show the type."""
    return None


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _truth(text: str) -> bool | None:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words.get(text.strip().lower())


def _collection(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return None
        return value if isinstance(value, kind) else None

    return read


_READ_AS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "number": _number,
    "integer": _number,
    "boolean": _truth,
    "array": _collection(list),
    "object": _collection(dict),
}
"""Functions that parse a value of a type from a playbook's text, or return None if the text does not match the type."""


def hints_of(book: Listed, *, confined: bool) -> Hints:
    """The hints for a playbook: read-only if all its steps are proved to only read, destructive otherwise."""
    reads = book.playbook.dialect.only_reads(book.playbook.document, confined=confined)
    return Hints(reads=reads, destroys=not reads, outside=True)

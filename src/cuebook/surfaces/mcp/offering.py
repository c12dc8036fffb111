"""Each playbook as a tool of its own: its inputs as a JSON Schema, and hints that promise nothing that is not proved."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cuebook.dialects.registry import Input
from cuebook.surfaces.library import Listed
from cuebook.surfaces.mcp import executing
from cuebook.surfaces.mcp.calling import Answer, Call, Hints, Offered
from cuebook.surfaces.starting import Wanted, playbook_of

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64
_PREFIX = "run_"
_KEY = "client_key"
_TYPES: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "string[]": {"type": "array", "items": {"type": "string"}},
    "array": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}
"""Every other type is a text."""


def offered(books: Iterable[Listed]) -> list[Offered]:
    """A tool for each; of two that would have one name, the first."""
    made: dict[str, Offered] = {}
    for book in books:
        name = f"{_PREFIX}{_NOT_IN_A_NAME.sub('_', book.id)}"[:_LONGEST_NAME]
        made.setdefault(name, _tool(name, book))
    return list(made.values())


def _tool(name: str, book: Listed) -> Offered:
    async def act(call: Call, given: dict[str, Any]) -> Answer:
        again = await executing.gone_on(call, None)
        if again is not None:
            return again
        declared = {one.name for one in book.inputs}
        key = str(given.get(_KEY, "")) if _KEY not in declared else ""
        inputs = {one: value for one, value in given.items() if one in declared or one != _KEY}
        return await executing.begun(call, playbook_of(book), Wanted(inputs=inputs), key, None)

    about = f"Runs the playbook '{book.title}' ({len(book.steps)} steps). {book.description}".strip()
    return Offered(name, book.title[:100], about[:1000], schema_of(book), act, "runner", hints_of(book))


def schema_of(book: Listed) -> dict[str, Any]:
    properties = {one.name: _property(one) for one in book.inputs}
    if _KEY not in properties:
        properties[_KEY] = {"type": "string", "description": "Whoever comes twice with one key starts one execution."}
    required = [one.name for one in book.inputs if one.required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": not book.inputs}
    return {**schema, **({"required": required} if required else {})}


def _property(one: Input) -> dict[str, Any]:
    made = dict(_TYPES.get(one.type, {"type": "string"}))
    if one.options:
        made["enum"] = list(one.options)
    if one.description:
        made["description"] = one.description
    if one.default is not None and made.get("type") == "string":
        made["default"] = one.default
    return made


def hints_of(book: Listed) -> Hints:
    """A playbook only reads where every step of it is proved to do no more; whatever may call a tool may destroy."""
    reads = _READS.get(book.dialect, lambda document: False)(book.document)
    return Hints(reads=reads, destroys=not reads, outside=True)


_READS: dict[str, Any] = {
    "markdown": lambda book: not any(step.tool is not None for step in book.walk()),
    "pipeline": lambda pipeline: all(step.reads_only for step in pipeline.steps),
}
"""What proves it, by dialect. A node of a graph has tools of its own, so that nothing is proved there."""

"""Tools for a model that was never taught them: the reply is held to a choice between the tools and an answer.

It knows schemas and messages, not the engine.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.performers.models.port import Request, Turn, system_and_turns

_INTRODUCTION = (
    "You can use tools. Reply with one JSON object: "
    '{"tool": name, "arguments": {...}} to use a tool, or {"answer": ...} to answer the user. Tools:'
)


class Choice(msgspec.Struct, frozen=True):
    """Between calling one of the tools and answering."""

    schema: dict[str, Any]
    explanation: str
    plain: bool
    """Whether the answer is text; otherwise it is a value that follows the request's schema."""

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The answer or the call. What was cut off in the middle is given back as it is."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text, ()
        if not isinstance(value, dict):
            return text, ()
        if "tool" in value:
            call_id = f"call_{uuid.uuid4().hex[:12]}"
            return "", (ToolCall(call_id, value["tool"], value.get("arguments") or {}),)
        answer = value.get("answer", "")
        return (str(answer) if self.plain else msgspec.json.encode(answer).decode()), ()


def choice_of(request: Request) -> Choice | None:
    if not request.tools:
        return None
    definitions: dict[str, Any] = {}
    alternatives: list[dict[str, Any]] = []
    lines = [_INTRODUCTION]
    for tool in request.tools:
        parameters = _hoisted(tool.parameters, definitions)
        alternatives.append(_closed({"tool": {"const": tool.name}, "arguments": parameters}))
        shown = msgspec.json.encode(tool.parameters.get("properties", {})).decode()
        lines.append(f"- {tool.name}: {tool.description} Arguments: {shown}")
    answer = {"type": "string"} if request.schema is None else _hoisted(request.schema, definitions)
    alternatives.append(_closed({"answer": answer}))
    schema: dict[str, Any] = {"anyOf": alternatives, **definitions}
    return Choice(schema, "\n".join(lines), request.schema is None)


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoisted(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its definitions, which must stand at the top for its references to find them."""
    for name in ("$defs", "definitions"):
        if name in schema:
            definitions.setdefault(name, {}).update(schema[name])
    return {name: part for name, part in schema.items() if name not in ("$defs", "definitions", "$schema", "$id")}


def with_choice(messages: tuple[Turn, ...], choice: Choice) -> tuple[Turn, ...]:
    system, turns = system_and_turns(messages)
    return (Turn("system", f"{system}\n\n{choice.explanation}".strip()), *turns)

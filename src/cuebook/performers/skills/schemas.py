"""Helpers to declare the parameters of skills' tools, in addition to the helpers of the agent tools."""

from __future__ import annotations

from typing import Any

from cuebook.performers.agent_tools.tool import number, parameters, text

__all__ = ["count", "number", "objects", "parameters", "table", "text", "texts", "usual"]


def usual(text: dict[str, Any], value: str) -> dict[str, Any]:
    """A parameter with a default value."""
    return {**text, "default": value}


def texts(description: str, *, least: int = 0) -> dict[str, Any]:
    items = {"type": "string", "minLength": 1}
    return {"type": "array", "items": items, "description": description, **({"minItems": least} if least else {})}


def table(description: str) -> dict[str, Any]:
    return {"type": "object", "description": description}


def objects(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}, "description": description}


def count(usual: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": usual, "description": "The maximum number."}

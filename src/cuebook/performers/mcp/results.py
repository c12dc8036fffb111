"""Converts the tools and answers of a tool server to our own values. It deals with messages, not with connections."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.outcomes import ToolResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult
    from mcp_types import Tool as Listed

_SHOWN = 4_096


def listed_as(tool: Listed) -> dict[str, Any]:
    """Everything about a tool that a model or the user relies on."""
    annotations = tool.annotations
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "schema": tool.input_schema,
        "annotations": annotations.model_dump(by_alias=True, exclude_none=True) if annotations is not None else None,
    }


def digest_of_tool(tool: Listed) -> str:
    return sha256(msgspec.json.encode(listed_as(tool), order="sorted")).hexdigest()


def result_of(answer: CallToolResult) -> ToolResult:
    """Structured content if there is any, otherwise the text. Images and other blobs are described, not kept."""
    if answer.structured_content is not None and not answer.is_error:
        return ToolResult(answer.structured_content)
    parts = [_part(block.model_dump(by_alias=True, mode="json", exclude_none=True)) for block in answer.content]
    if all(isinstance(part, str) for part in parts):
        return ToolResult("\n".join(parts), answer.is_error)
    return ToolResult(parts, answer.is_error)


def prompt_text(answer: GetPromptResult) -> tuple[str, list[str]]:
    """The text of a prompt's messages, separated by blank lines, and the kinds of parts that are not text. If there are
    several roles, each message begins with its role.
    """
    said: list[tuple[str, str]] = []
    left_out: list[str] = []
    for message in answer.messages:
        block = message.content.model_dump(by_alias=True, mode="json", exclude_none=True)
        text = block.get("resource", block).get("text")
        if text is None:
            left_out.append(block["type"])
        elif text.strip():
            said.append((message.role, text.strip()))
    if len({role for role, _ in said}) > 1:
        return "\n\n".join(f"[{role}]\n{text}" for role, text in said), left_out
    return "\n\n".join(text for _, text in said), left_out


def _part(block: dict[str, Any]) -> Any:
    match block.get("type"):
        case "text":
            return block.get("text", "")
        case "resource":
            return {"type": "resource", **_described(block.get("resource", {}))}
        case _:
            return _described(block)


_KEPT = ("type", "uri", "name", "title", "description", "mimeType", "text", "size")


def _described(block: dict[str, Any]) -> dict[str, Any]:
    made = {name: block[name] for name in _KEPT if name in block}
    blob = block.get("data", block.get("blob"))
    if isinstance(blob, str):
        made["size"] = len(blob) * 3 // 4 - blob[-2:].count("=")
    return made


def readable(text: str, limit: int = _SHOWN) -> str:
    """Untrusted text for a message: its last lines, without control characters.

    No line is cut: messages are masked later, and half a secret would not be recognised.
    """
    lines = "".join(map(_visible, text.strip())).split("\n")
    kept: list[str] = []
    for line in reversed(lines):
        limit -= len(line) + 1
        if limit < -1:
            break
        kept.append(line)
    if not kept:
        return too_long(len(lines[-1]))
    return "\n".join((*(("...",) if len(kept) < len(lines) else ()), *reversed(kept)))


def too_long(length: int) -> str:
    return f"[a line of {length} characters, too long to be shown]"


def _visible(letter: str) -> str:
    """The letter, or its JSON escape: secrets are recognised in that form too."""
    return letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]

"""Models behind Anthropic's Messages protocol.

It converts a request to that protocol and its stream to chunks. Retries, prices and choices are handled elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from cuebook.kernel.effects import Effort
from cuebook.performers.models.model import (
    REPLY_LIMIT,
    Chunk,
    Final,
    Finish,
    ModelError,
    Request,
    Room,
    TextDelta,
    Tokens,
    Turn,
    TurnFile,
    call_of,
    finish_of,
    system_and_turns,
    unconstrained,
)
from cuebook.performers.models.protocols.strict_schemas import ANTHROPIC, strict_form, tool_parameters
from cuebook.performers.models.protocols.transport import (
    Endpoint,
    count_in,
    endpoint_url,
    error_of,
    json_object,
    object_in,
    request_headers,
    stream_events,
    text_in,
)
from cuebook.performers.models.retries import DEFAULT_TIMEOUTS, Timeouts

BASE_URL = "https://api.anthropic.com"

_VERSION = "2026-10-21"
"""The version of the protocol that requests use."""

REPLY_TOOL = "final_reply"

# These models predate structured output, so they return it through a tool that they must call.
_BEFORE_OUTPUT_FORMAT = (
    "claude-2",
    "claude-3",
    "claude-opus-4-0",
    "claude-opus-4-2025",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2025",
)

# Models that reason with a budget of tokens; later models decide for themselves, given an effort.
_BUDGETED = (
    "claude-3-7",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2025",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
)
_WITHOUT_REASONING = ("claude-2", "claude-3-opus", "claude-3-sonnet", "claude-3-haiku", "claude-3-5")
_BUDGETS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
_LEAST_BUDGET = 1_024

_CACHED = {"cache_control": {"type": "ephemeral"}}


class AnthropicMessages:
    """Anthropic, or a server that speaks its protocol."""

    protocol = "anthropic"

    def __init__(
        self,
        provider: str,
        key: str,
        *,
        base_url: str = BASE_URL,
        headers: dict[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        reply_limit: int = REPLY_LIMIT,
    ) -> None:
        self.provider = provider
        headers = headers or {}
        ours = {"anthropic-version": _VERSION} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._endpoint = Endpoint(
            provider,
            endpoint_url(base_url, "/v1/messages"),
            request_headers(ours, headers),
            secrets=(key, *headers.values()),
            timeouts=timeouts,
            reply_limit=reply_limit,
        )

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        native = not request.model.startswith(_BEFORE_OUTPUT_FORMAT)
        body = request_body(request, native_schema=native)
        room = Room(self._endpoint.reply_limit, self.provider)
        reading = _Reading(room, through_tool=request.schema is not None and not native)
        async with aclosing(stream_events(self._endpoint, body)) as events:
            async for event in events:
                if event.name == "ping":
                    continue
                data = json_object(self._endpoint, event.data)
                if data.get("type") == "error":
                    raise error_of(self._endpoint, data)
                yield TextDelta(reading.take(data))
                if data.get("type") == "message_stop":
                    break
        final = reading.final(self.provider)
        if reading.through_tool:
            text, final = reply_through_tool(final, wrapped=_is_wrapped(request.schema or {}))
            yield TextDelta(text)
        yield final


def request_body(request: Request, *, native_schema: bool) -> dict[str, Any]:
    """The body that the provider receives. The stable beginning is marked for the provider's cache."""
    strict = strict_form(request.schema, ANTHROPIC) if request.schema is not None and native_schema else None
    if native_schema and request.schema is not None and strict is None:
        request = unconstrained(request)
    system, turns = system_and_turns(request.messages)
    messages = _turns(turns)
    if not messages:
        raise ModelError(
            "bad_request",
            "There is nothing to answer: the step has neither a prompt nor a conversation.",
            fix="Write the step's instruction below its heading.",
        )
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages,
        "stream": True,
    }
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool_parameters(tool.parameters)}
        for tool in request.tools
    ]
    if strict is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": strict}}
    elif request.schema is not None:
        description = "Gives the final reply."
        tools.append({"name": REPLY_TOOL, "description": description, "input_schema": _object(request.schema)})
        may_choose = request.tools and request.may_call
        body["tool_choice"] = {"type": "any"} if may_choose else {"type": "tool", "name": REPLY_TOOL}
    if tools and not request.may_call and "tool_choice" not in body:
        body["tool_choice"] = {"type": "none"}
    if system:
        body["system"] = [{"type": "text", "text": system, **_CACHED}]
    if tools:
        # Nodes with the same tools but different system texts share this much.
        tools[-1] = {**tools[-1], **_CACHED}
        body["tools"] = tools
    # With tools, another request that begins with this one is likely. Without tools, the last turn may be replaced.
    last = -1 if request.tools else -2
    # The provider looks back only some blocks from a mark, so a turn with many results also marks where the last request ended.
    for marked in (last, last - 2) if request.tools else (last,):
        if len(messages) >= -marked:
            messages[marked]["content"][-1] = {**messages[marked]["content"][-1], **_CACHED}
    body |= _reasoning(request, body)
    if request.temperature is not None and "thinking" not in body:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    return body


def _reasoning(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The settings for the requested effort, if the model can reason and the request allows it to."""
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    if request.effort is None or forced or request.model.startswith(_WITHOUT_REASONING):
        return {}
    if not request.model.startswith(_BUDGETED):
        output = {**body.get("output_config", {}), "effort": request.effort}
        return {"thinking": {"type": "adaptive"}, "output_config": output}
    budget = min(_BUDGETS[request.effort], request.max_tokens // 2)
    # These models want the reasoning back with every call; turns of another model, or from before the setting, lack it.
    unreasoned = any(turn.calls and not turn.thinking for turn in request.messages)
    if budget < _LEAST_BUDGET or unreasoned:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool's input is an object; any other reply is wrapped in one."""
    if not _is_wrapped(schema):
        return tool_parameters(schema)
    definitions: dict[str, Any] = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    value = {name: part for name, part in schema.items() if name not in definitions}
    return {"type": "object", "properties": {"value": value}, "required": ["value"], **definitions}


def _is_wrapped(schema: dict[str, Any]) -> bool:
    return schema.get("type") != "object" or any(name in schema for name in ("anyOf", "oneOf", "allOf"))


def reply_through_tool(final: Final, *, wrapped: bool) -> tuple[str, Final]:
    """The structured reply from the call that carried it, and the end of the stream without that call."""
    replies = [call for call in final.calls if call.name == REPLY_TOOL]
    if not replies:
        return "", final
    reply = replies[-1]
    value = reply.arguments.get("value") if wrapped else reply.arguments
    text = reply.malformed or msgspec.json.encode(value).decode()
    others = tuple(call for call in final.calls if call.name != REPLY_TOOL)
    finish: Finish = "stop" if final.finish == "tool_calls" and not others else final.finish
    return text, msgspec.structs.replace(final, calls=others, finish=finish)


def _turns(messages: Sequence[Turn]) -> list[dict[str, Any]]:
    """Alternating turns: adjacent turns of the same role are joined, because a call's results must be in one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        content = _content(message)
        if not content:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(content)
        else:
            turns.append({"role": role, "content": content})
    return turns


def _content(message: Turn) -> list[dict[str, Any]]:
    if message.role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}
        if message.files:
            result["content"] = [{"type": "text", "text": message.text}, *map(_file, message.files)]
        return [{**result, "is_error": True} if message.is_error else result]
    # The protocol rejects empty text, and assistant text that ends in whitespace.
    text = message.text.rstrip() if message.role == "assistant" else message.text
    content: list[dict[str, Any]] = [dict(block) for block in message.thinking]
    content += [{"type": "text", "text": text}] if text.strip() else []
    for call in message.calls:
        arguments = {"malformed": call.malformed} if call.malformed else call.arguments
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return content


def _file(file: TurnFile) -> dict[str, Any]:
    kind = "image" if file.media_type.startswith("image/") else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": file.media_type, "data": file.data}}


class _Reading:
    """The parts of a stream that have been read so far."""

    def __init__(self, room: Room, *, through_tool: bool) -> None:
        self._room = room
        self.through_tool = through_tool
        self._model = ""
        self._finish = ""
        self._tools: dict[int, tuple[str, str, list[str]]] = {}
        """Id, name and pieces of the arguments of each tool call, by its block's index."""
        self._counts: dict[str, int] = {}
        self._thinking: dict[int, dict[str, Any]] = {}
        """The blocks of reasoning, by their index."""

    def take(self, data: dict[str, Any]) -> str:
        kind = data.get("type")
        if kind == "message_start":
            message = object_in(data, "message")
            self._model = text_in(message, "model")
            self._count(object_in(message, "usage"))
        elif kind == "message_delta":
            self._finish = text_in(object_in(data, "delta"), "stop_reason") or self._finish
            self._count(object_in(data, "usage"))
        elif kind == "content_block_start":
            block = object_in(data, "content_block")
            if block.get("type") in ("thinking", "redacted_thinking"):
                self._room.use(len(str(block)))
                self._thinking[count_in(data, "index") or 0] = dict(block)
            elif block.get("type") == "tool_use":
                self._room.begin_call()
                call_id, name = text_in(block, "id"), text_in(block, "name")
                self._tools[count_in(data, "index") or 0] = (self._room.take(call_id), self._room.take(name), [])
        elif kind == "content_block_delta":
            return self._delta(count_in(data, "index") or 0, object_in(data, "delta"))
        return ""

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        if delta.get("type") == "text_delta":
            # Some models chat before a forced call; that is not part of the structured reply.
            text = self._room.take(text_in(delta, "text"))
            return "" if self.through_tool else text
        thought = self._thinking.get(index)
        if thought is not None and delta.get("type") in ("thinking_delta", "signature_delta"):
            part = "thinking" if delta.get("type") == "thinking_delta" else "signature"
            thought[part] = str(thought.get(part) or "") + self._room.take(text_in(delta, part))
        if delta.get("type") == "input_json_delta" and index in self._tools:
            self._tools[index][2].append(self._room.take(text_in(delta, "partial_json")))
        return ""

    def _count(self, usage: dict[str, Any]) -> None:
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            value = count_in(usage, name)
            if value is not None:
                self._counts[name] = value
        thinking = count_in(object_in(usage, "output_tokens_details"), "thinking_tokens")
        if thinking is not None:
            self._counts["thinking"] = thinking

    def final(self, provider: str) -> Final:
        if not self._finish:
            raise ModelError("dropped", f"{provider} ended the stream before the reply was complete.")
        calls = tuple(call_of(call_id, name, "".join(raw)) for _, (call_id, name, raw) in sorted(self._tools.items()))
        finish, unknown = finish_of(self._finish, provider)
        thinking = tuple(block for _, block in sorted(self._thinking.items()))
        return Final(finish, self._tokens(), calls, self._model, unknown=unknown, thinking=thinking)

    def _tokens(self) -> Tokens | None:
        counts = self._counts
        if "input_tokens" not in counts:
            return None
        read = counts.get("cache_read_input_tokens", 0)
        written = counts.get("cache_creation_input_tokens", 0)
        return Tokens(
            input=counts["input_tokens"] + read + written,
            output=counts.get("output_tokens", 0),
            cached=read,
            written=written,
            reasoning=counts.get("thinking", 0),
        )

"""Models behind the OpenAI chat-completions protocol: OpenAI itself, OpenRouter, Ollama, and custom servers.

It converts a request to that protocol and its stream to chunks. Retries, prices and choices are handled elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import ToolSpec
from cuebook.performers.models.model import (
    REPLY_LIMIT,
    Chunk,
    Final,
    ModelError,
    Request,
    Room,
    TextDelta,
    Tokens,
    Turn,
    call_of,
    finish_of,
)
from cuebook.performers.models.protocols.transport import (
    Endpoint,
    count_in,
    endpoint_url,
    error_of,
    json_object,
    object_in,
    objects_in,
    request_headers,
    stream_events,
    text_in,
)
from cuebook.performers.models.retries import DEFAULT_TIMEOUTS, Timeouts


class OpenAICompatible:
    """One provider that speaks chat completions."""

    protocol = "openai"

    def __init__(
        self,
        provider: str,
        base_url: str,
        key: str,
        *,
        headers: dict[str, str] | None = None,
        newer_limit: bool = False,
        ask_cost: bool = False,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        reply_limit: int = REPLY_LIMIT,
    ) -> None:
        self.provider = provider
        self._newer_limit = newer_limit
        """OpenAI's newer models reject `max_tokens`; most other servers accept nothing else."""
        self._ask_cost = ask_cost
        headers = headers or {}
        self._endpoint = Endpoint(
            provider,
            endpoint_url(base_url, "/chat/completions"),
            request_headers({"Authorization": f"Bearer {key}"} if key else {}, headers),
            secrets=(key, *headers.values()),
            timeouts=timeouts,
            reply_limit=reply_limit,
        )

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        reading = _Reading(Room(self._endpoint.reply_limit, self.provider))
        async with aclosing(stream_events(self._endpoint, self._body(request))) as events:
            async for event in events:
                if event.data.startswith("[DONE]"):
                    break
                data = json_object(self._endpoint, event.data)
                if data.get("error"):
                    raise error_of(self._endpoint, data["error"])
                yield TextDelta(reading.take(data))
        yield reading.final(self.provider)

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": _messages(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens" if self._newer_limit else "max_tokens": request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.stop:
            body["stop"] = list(request.stop)
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if not request.may_call:
                body["tool_choice"] = "none"
        if request.effort is not None:
            body["reasoning_effort"] = request.effort
        if request.schema is not None:
            from cuebook.performers.models.protocols.strict_schemas import OPENAI, strict_form

            strict = strict_form(request.schema, OPENAI)
            schema = request.schema if strict is None else strict
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": schema, "strict": strict is not None},
            }
        if self._ask_cost:
            body["usage"] = {"include": True}
        return body


class _Reading:
    """The parts of a stream that have been read so far."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._finish = ""
        self._refused = False
        self._model = ""
        self._usage: dict[str, Any] = {}
        self._parts: dict[int, tuple[list[str], list[str], list[str]]] = {}
        """Id, name and pieces of the arguments of each tool call, by its index."""

    def take(self, data: dict[str, Any]) -> str:
        self._model = text_in(data, "model") or self._model
        self._usage = object_in(data, "usage") or self._usage
        choice = next(iter(objects_in(data, "choices")), {})
        self._finish = text_in(choice, "finish_reason") or self._finish
        delta = object_in(choice, "delta")
        for call in objects_in(delta, "tool_calls"):
            self._add(call)
        refusal = text_in(delta, "refusal")
        self._refused = self._refused or bool(refusal)
        return self._room.take(text_in(delta, "content") or refusal)

    def _add(self, call: dict[str, Any]) -> None:
        # Some servers omit the index and send each call in one piece.
        given = count_in(call, "index")
        index = len(self._parts) if given is None else given
        if index not in self._parts:
            self._room.begin_call()
        call_id, name, arguments = self._parts.setdefault(index, ([], [], []))
        if text_in(call, "id"):
            call_id[:] = [text_in(call, "id")]
        function = object_in(call, "function")
        name.append(self._room.take(text_in(function, "name")))
        arguments.append(self._room.take(text_in(function, "arguments")))

    def final(self, provider: str) -> Final:
        if not self._finish:
            raise ModelError("dropped", f"{provider} ended the stream before the reply was complete.")
        calls = self._calls()
        finish, unknown = finish_of(self._finish, provider)
        if calls and finish == "stop":
            finish = "tool_calls"
        if self._refused:
            finish = "filter"
        return Final(finish, self._tokens(), calls, self._model, self._cost(), unknown)

    def _calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            call_of("".join(call_id) or f"call_{uuid.uuid4().hex}", "".join(name), "".join(raw))
            for _, (call_id, name, raw) in sorted(self._parts.items())
        )

    def _tokens(self) -> Tokens | None:
        read = count_in(self._usage, "prompt_tokens")
        if read is None:
            return None
        prompt = object_in(self._usage, "prompt_tokens_details")
        completion = object_in(self._usage, "completion_tokens_details")
        return Tokens(
            input=read,
            output=count_in(self._usage, "completion_tokens") or 0,
            cached=count_in(prompt, "cached_tokens") or 0,
            written=count_in(prompt, "cache_write_tokens") or 0,
            reasoning=count_in(completion, "reasoning_tokens") or 0,
        )

    def _cost(self) -> float | None:
        """OpenRouter's own field. With the user's own provider key, the upstream charge is added."""
        cost = self._usage.get("cost")
        if not isinstance(cost, int | float):
            return None
        upstream = object_in(self._usage, "cost_details").get("upstream_inference_cost")
        own_key = bool(self._usage.get("is_byok"))
        return float(cost) + (float(upstream) if own_key and isinstance(upstream, int | float) else 0.0)


def _messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The turns as messages. A tool's message is only text, so its images follow the results in a message of their own."""
    made: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for turn in turns:
        if turn.role != "tool" and images:
            made.append({"role": "user", "content": images})
            images = []
        made.append(_message(turn))
        for file in turn.files:
            images.append({"type": "text", "text": f"The image {file.name}, as the tool returned it:"})
            url = f"data:{file.media_type};base64,{file.data}"
            images.append({"type": "image_url", "image_url": {"url": url}})
    return [*made, {"role": "user", "content": images}] if images else made


def _message(message: Turn) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    said: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        said["content"] = message.text or None
        said["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": arguments_text(c)}}
            for c in message.calls
        ]
    return said


def arguments_text(call: ToolCall) -> str:
    return call.malformed or msgspec.json.encode(call.arguments).decode()


def _tool(tool: ToolSpec) -> dict[str, Any]:
    from cuebook.performers.models.protocols.strict_schemas import tool_parameters

    function = {"name": tool.name, "description": tool.description, "parameters": tool_parameters(tool.parameters)}
    return {"type": "function", "function": function}

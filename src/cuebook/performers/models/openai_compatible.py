"""Models behind the OpenAI chat-completions protocol: OpenAI itself, OpenRouter, Ollama, and servers a user names.

It turns a request into that protocol and its stream into chunks. It does not retry, price or choose.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import ToolSpec
from cuebook.performers.models.connections import http_client, key_arguments, load_sdk, translate
from cuebook.performers.models.port import (
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
from cuebook.performers.models.strict_schemas import OPENAI, strict_form, tool_parameters
from cuebook.performers.models.timing import DEFAULT_TIMEOUTS, Timeouts


class OpenAICompatible:
    """One provider that speaks chat completions."""

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
        self._base_url = base_url
        self._key = key
        self._headers = headers or {}
        self._newer_limit = newer_limit
        """OpenAI's newer models refuse `max_tokens`; most other servers know nothing else."""
        self._ask_cost = ask_cost
        self._timeouts = timeouts
        self._reply_limit = reply_limit

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        sdk = await load_sdk("openai", self.provider)
        secrets = (self._key, *self._headers.values())
        timeout = sdk.Timeout(self._timeouts.total, connect=self._timeouts.connect, read=self._timeouts.idle)
        client = sdk.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self._base_url,
            default_headers=self._headers,
            max_retries=0,
            timeout=timeout,
            http_client=http_client(sdk, self._base_url, self.provider, self._reply_limit),
        )
        # The SDK takes these from the environment; what is sent is what was configured and nothing else.
        client.organization = client.project = None
        arguments = self._arguments(request) | key_arguments(sdk, self._key, self._headers)
        reading = _Reading(Room(self._reply_limit, self.provider))
        try:
            async with client, await client.chat.completions.create(**arguments) as stream:
                async for event in stream:
                    text = reading.take(event)
                    yield TextDelta(text)
        except ModelError:
            raise
        except Exception as error:
            told = translate(error, self.provider, secrets, started=reading.started)
            if told is None:
                raise
            raise told from None
        yield reading.final(self.provider)

    def _arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens" if self._newer_limit else "max_tokens": request.max_tokens,
        }
        if request.temperature is not None:
            arguments["temperature"] = request.temperature
        if request.stop:
            arguments["stop"] = list(request.stop)
        if request.tools:
            arguments["tools"] = [_tool(tool) for tool in request.tools]
        if request.schema is not None:
            strict = strict_form(request.schema, OPENAI)
            schema = request.schema if strict is None else strict
            arguments["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": schema, "strict": strict is not None},
            }
        if self._ask_cost:
            arguments["extra_body"] = {"usage": {"include": True}}
        return arguments


class _Reading:
    """What has been read of a stream so far."""

    def __init__(self, room: Room) -> None:
        self.started = False
        self._room = room
        self._finish: str | None = None
        self._refused = False
        self._model = ""
        self._usage: Any = None
        self._parts: dict[int, tuple[list[str], list[str], list[str]]] = {}
        """Id, name and pieces of the arguments of each tool call, by its index."""

    def take(self, event: Any) -> str:
        self.started = True
        self._model = event.model or self._model
        self._usage = event.usage or self._usage
        if not event.choices:
            return ""
        choice = event.choices[0]
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta
        if delta is None:
            return ""
        for call in delta.tool_calls or ():
            self._add(call)
        self._refused = self._refused or bool(delta.refusal)
        return self._room.take(delta.content or delta.refusal or "")

    def _add(self, call: Any) -> None:
        # Some servers leave the index out and send each call whole.
        index = call.index if call.index is not None else len(self._parts)
        if index not in self._parts:
            self._room.begin_call()
        call_id, name, arguments = self._parts.setdefault(index, ([], [], []))
        if call.id:
            call_id[:] = [call.id]
        if call.function is not None:
            name.append(self._room.take(call.function.name or ""))
            arguments.append(self._room.take(call.function.arguments or ""))

    def final(self, provider: str) -> Final:
        if self._finish is None:
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
        usage = self._usage
        if usage is None or usage.prompt_tokens is None:
            return None
        read = usage.prompt_tokens_details
        wrote = usage.completion_tokens_details
        return Tokens(
            input=usage.prompt_tokens,
            output=usage.completion_tokens or 0,
            cached=getattr(read, "cached_tokens", None) or 0,
            written=getattr(read, "cache_write_tokens", None) or 0,
            reasoning=getattr(wrote, "reasoning_tokens", None) or 0,
        )

    def _cost(self) -> float | None:
        """OpenRouter's own field; with a provider key of the user's, the upstream's charge comes on top."""
        cost = getattr(self._usage, "cost", None)
        if not isinstance(cost, int | float):
            return None
        details = getattr(self._usage, "cost_details", None)
        upstream = details.get("upstream_inference_cost") if isinstance(details, dict) else None
        own_key = bool(getattr(self._usage, "is_byok", False))
        return float(cost) + (float(upstream) if own_key and isinstance(upstream, int | float) else 0.0)


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
    function = {"name": tool.name, "description": tool.description, "parameters": tool_parameters(tool.parameters)}
    return {"type": "function", "function": function}

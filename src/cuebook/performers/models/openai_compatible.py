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
from cuebook.performers.models.connections import http_client, load_sdk, translate
from cuebook.performers.models.port import (
    Chunk,
    Final,
    Finish,
    ModelError,
    Request,
    TextDelta,
    Tokens,
    Turn,
    call_of,
)
from cuebook.performers.models.timing import DEFAULT_TIMEOUTS, Timeouts

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "filter",
}


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
    ) -> None:
        self.provider = provider
        self._base_url = base_url
        self._key = key
        self._headers = headers or {}
        self._newer_limit = newer_limit
        """OpenAI's newer models refuse `max_tokens`; most other servers know nothing else."""
        self._ask_cost = ask_cost
        self._timeouts = timeouts

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
            http_client=http_client(sdk, self._base_url),
        )
        # The SDK takes these from the environment; what is sent is what was configured and nothing else.
        client.organization = client.project = None
        reading = _Reading()
        try:
            async with client, await client.chat.completions.create(**self._arguments(request)) as stream:
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
            arguments["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.schema, "strict": is_strict(request.schema)},
            }
        if self._ask_cost:
            arguments["extra_body"] = {"usage": {"include": True}}
        return arguments


class _Reading:
    """What has been read of a stream so far."""

    def __init__(self) -> None:
        self.started = False
        self._finish: str | None = None
        self._refused = False
        self._model = ""
        self._usage: Any = None
        self._parts: dict[int, list[str]] = {}
        """Id, name and arguments of each tool call, by its index."""

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
        return delta.content or delta.refusal or ""

    def _add(self, call: Any) -> None:
        # Some servers leave the index out and send each call whole.
        index = call.index if call.index is not None else len(self._parts)
        parts = self._parts.setdefault(index, ["", "", ""])
        parts[0] = call.id or parts[0]
        if call.function is not None:
            parts[1] += call.function.name or ""
            parts[2] += call.function.arguments or ""

    def final(self, provider: str) -> Final:
        if self._finish is None:
            raise ModelError("dropped", f"{provider} ended the stream before the reply was complete.")
        calls = self._calls()
        finish = _FINISH.get(self._finish, "stop")
        if calls and finish == "stop":
            finish = "tool_calls"
        if self._refused:
            finish = "filter"
        return Final(finish, self._tokens(), calls, self._model, self._cost())

    def _calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            call_of(call_id or f"call_{uuid.uuid4().hex}", name, raw)
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
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def is_strict(schema: Any) -> bool:
    """Whether a schema obeys the rules of OpenAI's strict mode: closed objects with every property required."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(properties):
            return False
        rest = {name: part for name, part in schema.items() if name != "properties"}
        return all(is_strict(part) for part in properties.values()) and all(is_strict(p) for p in rest.values())
    return all(is_strict(part) for part in schema.values())

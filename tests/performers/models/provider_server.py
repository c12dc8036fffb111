"""A real HTTP server on this machine that answers as a test tells it to, in the protocols of the providers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """One HTTP response."""

    events: Iterable[tuple[str, Any] | Any] = ()
    """Server-sent events: data, or name and data."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    """Sent as JSON instead of events."""
    unbroken: bool = False
    """Events are texts that are sent as they are, all on one line."""
    drop: bool = False
    """The connection breaks after the events, in the middle of the response."""
    hang: bool = False
    """Nothing more comes after the events, and the connection stays open."""


class ProviderServer:
    """Returns the scripted answers in order and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.sent = 0
        """Characters of events."""
        self.closed_early = asyncio.Event()
        """Set when the client went away while an answer was hanging."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> ProviderServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.paths.append(first.split(" ")[1])
        self.headers.append(headers)
        self.requests.append(json.loads(body or b"null"))
        answer = self.answers.pop(0)
        kind = "application/json" if answer.body is not None else "text/event-stream"
        sent = {"content-type": kind, "transfer-encoding": "chunked", "connection": "close", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Status", *(f"{name}: {value}" for name, value in sent.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if answer.body is not None:
            _chunk(writer, json.dumps(answer.body))
        for event in answer.events:
            text = str(event) if answer.unbroken else _sse(event)
            self.sent += len(text)
            _chunk(writer, text)
            await writer.drain()
        await writer.drain()
        if answer.hang:
            await reader.read()
            self.closed_early.set()
        if answer.drop:
            # The bytes must be out before the connection is reset, or the client sees none of them.
            writer.write_eof()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.write_eof()
        await reader.read()


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _sse(event: Any) -> str:
    if isinstance(event, tuple):
        name, data = event
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"


# --- OpenAI's protocol ------------------------------------------------------------------------------


def delta(model: str = "gpt-test", finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return {**delta(), "choices": [], "usage": counts}


def openai_reply(*texts: str, finish: str = "stop", tokens: tuple[int, int] = (7, 3)) -> Answer:
    events = [*(delta(content=text) for text in texts), delta(finish=finish), usage(*tokens), "[DONE]"]
    return Answer(events)


# --- Anthropic's protocol ---------------------------------------------------------------------------


def started(**counts: int) -> tuple[str, Any]:
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1, **counts},
    }
    return "message_start", {"type": "message_start", "message": message}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[tuple[str, Any]]:
    begin = ("content_block_start", {"type": "content_block_start", "index": index, "content_block": content})
    middle = [
        ("content_block_delta", {"type": "content_block_delta", "index": index, "delta": part}) for part in deltas
    ]
    return [begin, *middle, ("content_block_stop", {"type": "content_block_stop", "index": index})]


def text_block(index: int, *texts: str) -> list[tuple[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def tool_block(index: int, call_id: str, name: str, *parts: str) -> list[tuple[str, Any]]:
    content = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, content, *({"type": "input_json_delta", "partial_json": part} for part in parts))


def ended(reason: str = "end_turn", **counts: int) -> list[tuple[str, Any]]:
    stop = {"stop_reason": reason, "stop_sequence": None}
    closing = {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 4, **counts}}
    return [("message_delta", closing), ("message_stop", {"type": "message_stop"})]


def anthropic_reply(*texts: str, reason: str = "end_turn") -> Answer:
    return Answer([started(), *text_block(0, *texts), *ended(reason)])

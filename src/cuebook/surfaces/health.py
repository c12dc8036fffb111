"""A small HTTP server for machines that watch a process: the probes of an orchestrator, `/healthz` and `/readyz`, in a process
without a web app, and `/metrics`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from cuebook.kernel.errors import BadInput

Ready = Callable[[], Awaitable[str]]
"""Returns why the process is not ready; empty if it is ready."""


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    type: str = "application/json"


Answers = Mapping[str, Callable[[], Awaitable[Answer]]]
"""What is answered, by path."""

_MOST = 32
"""Connections at a time. Probes are few; anyone else who reaches the port must not use up the descriptors that runs need."""
_PATIENCE = 5.0
"""Seconds for a whole request."""
_LONGEST_HEAD = 8192


def address_of(text: str, option: str = "--health") -> tuple[str, int]:
    """The host and port of `HOST:PORT`, as in `0.0.0.0:8766` or `[::1]:8766`. Raises `BadInput` if it is neither."""
    host, port = None, None
    with suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.netloc == text and parts.username is None:
            host, port = parts.hostname, parts.port
    if not host or port is None:
        raise BadInput(f"{option}: expected HOST:PORT, got '{text}'.", fix=f"For example: {option} 0.0.0.0:8766.")
    return host, port


def serve_health(host: str, port: int, ready: Ready) -> AbstractAsyncContextManager[int]:
    """Answers probes while the context is open, and yields the port. Raises `BadInput` if the address is not available."""

    async def healthz() -> Answer:
        return _json(HTTPStatus.OK, status="ok")

    async def readyz() -> Answer:
        reason = await ready()
        if reason:
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, status="unavailable", reason=reason)
        return _json(HTTPStatus.OK, status="ok")

    return _serve(host, port, {"/healthz": healthz, "/readyz": readyz}, "--health")


def serve_metrics(
    host: str, port: int, text: Callable[[], Awaitable[bytes]], kind: str
) -> AbstractAsyncContextManager[int]:
    """Answers `/metrics`, to anyone who reaches this address."""

    async def metrics() -> Answer:
        return Answer(HTTPStatus.OK, await text(), kind)

    return _serve(host, port, {"/metrics": metrics}, "--metrics")


@asynccontextmanager
async def _serve(host: str, port: int, answers: Answers, option: str) -> AsyncIterator[int]:
    connections = _Connections(answers)
    try:
        server = await asyncio.start_server(connections.answer, host, port, limit=_LONGEST_HEAD)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(f"Cannot listen on {host}:{port}: {why}.", fix=f"Choose another address for {option}.") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await connections.close()


class _Connections:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._tasks) >= _MOST:
                return
            self._tasks.add(task)
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = _request_of(head)
                writer.write(_response(method, await self._answer_to(method, path)))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nothing was asked, or no one is listening
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_to(self, method: str, path: str) -> Answer:
        if path not in self._answers:
            only = " and ".join(self._answers)
            return _json(HTTPStatus.NOT_FOUND, status="unknown", reason=f"There is only {only}.")
        if method not in ("GET", "HEAD"):
            return _json(HTTPStatus.METHOD_NOT_ALLOWED, status="unknown", reason="Use GET.")
        return await self._answers[path]()

    async def close(self) -> None:
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request_of(head: bytes) -> tuple[str, str]:
    """The method and path of a request; empty if it is not HTTP."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")


def _json(code: HTTPStatus, **message: str) -> Answer:
    return Answer(code, json.dumps(message, separators=(",", ":")).encode())


def _response(method: str, answer: Answer) -> bytes:
    status, body = answer.status, answer.body
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {answer.type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode() + (b"" if method == "HEAD" else body)

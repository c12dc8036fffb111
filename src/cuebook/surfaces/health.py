"""A small HTTP server for the probes of an orchestrator, in a process without a web app: `/healthz` and `/readyz`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from urllib.parse import urlsplit

from cuebook.kernel.errors import BadInput

Ready = Callable[[], Awaitable[str]]
"""Returns why the process is not ready; empty if it is ready."""

_MOST = 32
"""Connections at a time. Probes are few; anyone else who reaches the port must not use up the descriptors that runs need."""
_PATIENCE = 5.0
"""Seconds for a whole request."""
_LONGEST_HEAD = 8192
_BODY = tuple[HTTPStatus, dict[str, str]]


def address_of(text: str) -> tuple[str, int]:
    """The host and port of `HOST:PORT`, as in `0.0.0.0:8766` or `[::1]:8766`. Raises `BadInput` if it is neither."""
    host, port = None, None
    with suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.netloc == text and parts.username is None:
            host, port = parts.hostname, parts.port
    if not host or port is None:
        raise BadInput(f"--health: expected HOST:PORT, got '{text}'.", fix="For example: --health 0.0.0.0:8766.")
    return host, port


@asynccontextmanager
async def serve_health(host: str, port: int, ready: Ready) -> AsyncIterator[int]:
    """Answers probes while the context is open, and yields the port. Raises `BadInput` if the address is not available."""
    connections = _Connections(ready)
    try:
        server = await asyncio.start_server(connections.answer, host, port, limit=_LONGEST_HEAD)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(f"Cannot listen on {host}:{port}: {why}.", fix="Choose another address for --health.") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await connections.close()


class _Connections:
    def __init__(self, ready: Ready) -> None:
        self._ready = ready
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
                writer.write(_response(method, *await self._answer_to(method, path)))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nothing was asked, or no one is listening
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_to(self, method: str, path: str) -> _BODY:
        if path not in ("/healthz", "/readyz"):
            return HTTPStatus.NOT_FOUND, {"status": "unknown", "reason": "There are only /healthz and /readyz."}
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, {"status": "unknown", "reason": "Use GET."}
        reason = await self._ready() if path == "/readyz" else ""
        if reason:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "reason": reason}
        return HTTPStatus.OK, {"status": "ok"}

    async def close(self) -> None:
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request_of(head: bytes) -> tuple[str, str]:
    """The method and path of a request; empty if it is not HTTP."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")


def _response(method: str, status: HTTPStatus, message: dict[str, str]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode() + (b"" if method == "HEAD" else body)

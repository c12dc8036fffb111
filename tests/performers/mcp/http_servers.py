"""MCP servers on this machine's network for tests: a well-behaved one, and one of raw HTTP with scripted answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tests.performers.mcp.harness import GOOD


@contextmanager
def on_the_network(*how: str) -> Iterator[str]:
    """The address of the well-behaved server while it listens."""
    process = subprocess.Popen([sys.executable, GOOD, "http", *how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.kill()  # it would wait for requests that it still has to answer
        process.wait(20)
        process.stdout.close()


Answer = Callable[[dict[str, Any]], tuple[int, dict[str, str], bytes]]


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A raw HTTP server with scripted answers; one request per connection."""
    requests: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
            body = await reader.readexactly(length)
            request = json.loads(body) if body else {}
            requests.append(request)
            status, headers, sent = answer(request)
            if status == 0:
                await reader.read()
                return
            told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {status} X\r\nconnection: close\r\n{told}\r\n".encode() + sent)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", requests
    finally:
        server.close()
        await server.wait_closed()

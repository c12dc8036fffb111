"""A transport for the protocol's client over streamable HTTP, with a cap on what a server may answer.

The connections are made by a client that comes from outside: which addresses it may reach is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from cuebook.performers.mcp.results import readable
from cuebook.performers.mcp.traffic import FLOODS, Measure, Sieve

ANSWER_LIMIT = 16 << 20
"""Bytes of the answer to one request."""
EVENT_LIMIT = 4 << 20
"""Bytes of one event in a stream."""

HttpClientFactory = Callable[[Mapping[str, str]], Any]
"""Gives an `httpx2.AsyncClient` that sends these headers with every request."""


class Web:
    """One session with a server. An asynchronous context that gives the two streams."""

    def __init__(self, url: str, headers: Callable[[], Mapping[str, str]], factory: HttpClientFactory) -> None:
        self._url = url
        self._headers = headers
        self._factory = factory
        self._measure = Measure()
        self._stack = AsyncExitStack()
        self._status = 0
        self.closed = asyncio.Event()
        self.violation = ""

    @property
    def exit_code(self) -> int | None:
        return None

    def account(self) -> str:
        if self.violation:
            return self.violation
        return f"It last answered with the status {self._status}." if self._status >= 300 else ""

    def details(self) -> dict[str, Any]:
        return {"status": self._status} if self._status >= 300 else {}

    async def __aenter__(self) -> tuple[Any, Any]:
        from mcp.client.streamable_http import streamable_http_client

        client = self._factory({"Accept-Encoding": "identity", **self._headers()})
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), self._look_at]}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            streams = streamable_http_client(self._url, http_client=client, max_sse_event_size=EVENT_LIMIT)
            incoming, outgoing = await stack.enter_async_context(streams)
            self._stack = stack.pop_all()
        return Sieve(incoming, self._measure, lambda: self._break(FLOODS)), _Counted(outgoing, self._measure)

    async def __aexit__(self, *error: Any) -> None:
        self.closed.set()
        await self._stack.__aexit__(*error)

    def _break(self, why: str) -> Exception:
        """The session is of no more use."""
        import httpx2

        self.violation = self.violation or why
        self.closed.set()
        return httpx2.StreamError(why)

    async def _look_at(self, response: Any) -> None:
        """Sees every response before its body is read."""
        self._status = response.status_code
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("", "identity"):
            # A few packed bytes can become any number, and nobody asked for packing.
            raise self._break(f"It sent a packed answer ({readable(encoding, 40)}), which was not asked for.")
        if response.request.method == "POST":
            too_large = f"It sent an answer of more than {ANSWER_LIMIT} bytes."
            response.stream = _capped(response.stream, lambda: self._break(too_large))


def _capped(stream: Any, too_large: Callable[[], Exception]) -> Any:
    import httpx2

    class Capped(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            left = ANSWER_LIMIT
            async for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise too_large()
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Capped()


class _Counted:
    """The stream of outgoing messages, each of which may be answered."""

    def __init__(self, inner: Any, measure: Measure) -> None:
        self._inner = inner
        self._measure = measure

    async def send(self, item: Any) -> None:
        self._measure.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Counted:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

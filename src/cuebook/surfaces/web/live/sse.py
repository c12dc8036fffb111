"""Server-sent events: a response of type `text/event-stream` to a browser or a program that keeps the connection open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cuebook.service.admin import revoked
from cuebook.surfaces.web.live.stream import SentEvent
from cuebook.surfaces.web.pages.render import Html

RETRY = 1000
"""Milliseconds after which a disconnected reader reconnects."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_ALIVE = b":\n\n"
_PIECE = 64 * 1024
"""Bytes per write."""


_encoded: WeakKeyDictionary[Html, bytes] = WeakKeyDictionary()


def written(sent: SentEvent) -> Iterator[bytes]:
    """An event as sent, in pieces, so that the server buffers only one of them for a slow reader.

    JSON has no line breaks, so one line of data is enough.
    """
    head, data = b"id: %b\nevent: %b\ndata: " % (sent.id.encode(), sent.event.name.encode()), _data(sent)
    yield head + data[:_PIECE] + (b"" if len(data) > _PIECE else b"\n\n")
    for begin in range(_PIECE, len(data), _PIECE):
        yield data[begin : begin + _PIECE] + (b"" if begin + _PIECE < len(data) else b"\n\n")


def _data(sent: SentEvent) -> bytes:
    """The data of an event; if readers share its HTML, they share this too."""
    html = sent.event.data.get("html")
    if not isinstance(html, Html):
        return msgspec.json.encode(sent.event.data, enc_hook=str)
    if html not in _encoded:
        _encoded[html] = msgspec.json.encode({**sent.event.data, "html": str(html)}, enc_hook=str)
    return _encoded[html]


class EventStream(Response):
    """A response that ends when there are no more events, the reader leaves or may no longer read, or the server stops."""

    def __init__(self, events: AsyncIterator[SentEvent | None], closing: asyncio.Event) -> None:
        self._events = events
        self._closing = closing
        self.permitted: Callable[[], Awaitable[bool]] = _always
        """Whether the reader may still read; checked periodically."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
            return
        work = [asyncio.create_task(one) for one in self._work(receive, send)]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        if not work[1].done() or work[1].cancelled():
            await send({"type": "http.response.body"})

    def _work(self, receive: Receive, send: Send) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._send(send), _gone(receive), self._closed(), revoked(self.permitted)

    async def _send(self, send: Send) -> None:
        await send(_body(b"retry: %d\n\n" % RETRY))
        async for sent in self._events:
            for piece in (_ALIVE,) if sent is None else written(sent):
                await send(_body(piece))

    async def _closed(self) -> None:
        await self._closing.wait()


async def _always() -> bool:
    return True


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""Sends events to a browser or a program that keeps the connection open: `text/event-stream`, written by ourselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cuebook.surfaces.revocation import revoked
from cuebook.surfaces.web.rendering import Html
from cuebook.surfaces.web.telling import Told

RETRY = 1000
"""Milliseconds after which a reader whose connection was cut comes back."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_STILL_HERE = b":\n\n"
_PIECE = 64 * 1024
"""Bytes that are sent at once."""


_encoded: WeakKeyDictionary[Html, bytes] = WeakKeyDictionary()


def written(told: Told) -> Iterator[bytes]:
    """An event as it stands in the stream, little by little: a slow reader has only a piece in the server's buffers.

    JSON has no line breaks, so one line of data is enough.
    """
    head, data = b"id: %b\nevent: %b\ndata: " % (told.id.encode(), told.event.name.encode()), _data(told)
    yield head + data[:_PIECE] + (b"" if len(data) > _PIECE else b"\n\n")
    for begin in range(_PIECE, len(data), _PIECE):
        yield data[begin : begin + _PIECE] + (b"" if begin + _PIECE < len(data) else b"\n\n")


def _data(told: Told) -> bytes:
    """What an event holds; of HTML that readers share, this is shared too."""
    html = told.event.data.get("html")
    if not isinstance(html, Html):
        return msgspec.json.encode(told.event.data, enc_hook=str)
    if html not in _encoded:
        _encoded[html] = msgspec.json.encode({**told.event.data, "html": str(html)}, enc_hook=str)
    return _encoded[html]


class EventStream(Response):
    """An answer that ends when there is nothing more to tell, the reader is gone or may read no longer, or the server ends."""

    def __init__(self, told: AsyncIterator[Told | None], closing: asyncio.Event) -> None:
        self._told = told
        self._closing = closing
        self.permitted: Callable[[], Awaitable[bool]] = _always
        """Whether the reader may still read, looked at now and then."""

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
        return self._tell(send), _gone(receive), self._closed(), revoked(self.permitted)

    async def _tell(self, send: Send) -> None:
        await send(_body(b"retry: %d\n\n" % RETRY))
        async for told in self._told:
            for piece in (_STILL_HERE,) if told is None else written(told):
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

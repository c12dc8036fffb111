"""Connections of the server: how many there may be, and how long each may take to send a request.

Anyone who reaches the port can open connections, before any token is checked. They must not use up the descriptors that
runs need, so half-sent requests time out, and the oldest waiting connection makes room for a new one: first a connection
without a request, then one whose request is incomplete.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
from collections.abc import Iterable
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

_DESCRIPTORS = 65_536
"""The descriptor limit this process asks for, if the system allows it."""
_MOST = 2_000
ACCEPTED_AT_ONCE = 64
"""Connections that the event loop accepts before it handles any of them."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 22\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\nToo many connections.\n"
)


class Bounds(msgspec.Struct, frozen=True):
    """Limits for connections."""

    most: int = _MOST
    head: float = 10.0
    """Seconds for all headers of a request."""
    pause: float = 20.0
    """Seconds between two pieces of a request's body."""
    body: float = 300.0
    """Seconds for the whole body."""
    unread: float = 60.0
    """Seconds after which a client that reads nothing of its response is disconnected."""


USUAL = Bounds()


def raise_descriptor_limit() -> int:
    """Raise the limit on open files as far as the system allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if sys.platform == "darwin":
        most = min(most, 10_240)  # the actual limit on macOS
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return soft
        return most
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def bounds_for(descriptors: int) -> Bounds:
    """The limits for this many descriptors: half of them are reserved for runs."""
    return Bounds(most=max(8, min(_MOST, descriptors // 2)))


class Connection(H11Protocol):
    """A connection that is closed if its request takes too long, or its response is not read."""

    bounds = USUAL
    _numbers = itertools.count()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.number = next(self._numbers)
        self._deadline: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._waits_for = ""

    @property
    def is_idle(self) -> bool:
        """Whether it has no complete request in progress."""
        return self.conn.their_state is h11.IDLE and getattr(self.cycle, "response_complete", True)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.bounds.most and not _make_room(self.connections):
            transport.write(_BUSY)
            transport.close()
            self.transport = transport
            return
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self not in self.connections:  # it was rejected
            return
        super().data_received(data)
        if self in self.connections:
            self._watch()
        else:  # it became a WebSocket
            self._set("")
            self._end("_unread")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set("")
        self._end("_unread")
        if self in self.connections:
            super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(self.bounds.unread, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end("_unread")

    def _watch(self) -> None:
        """Set the deadline for the next part of a request."""
        if self.transport.is_closing():
            self._set("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._set("body")
            self._end("_pause")
            if not self.flow.read_paused:
                self._pause = self.loop.call_later(self.bounds.pause, self.transport.abort)
        elif self.is_idle and self.timeout_keep_alive_task is None:
            self._set("head")
        else:
            self._set("")

    def _set(self, what: str) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        self._end("_deadline")
        self._end("_pause")
        if what:
            self._deadline = self.loop.call_later(getattr(self.bounds, what), self.transport.abort)

    def _end(self, timer: str) -> None:
        handle = getattr(self, timer)
        if handle is not None:
            handle.cancel()
            setattr(self, timer, None)


def _make_room(connections: Iterable[Any]) -> bool:
    """Close the oldest connection without a complete request, if there is one."""
    held = [one for one in connections if isinstance(one, Connection) and not one.transport.is_closing()]
    waiting = [one for one in held if one.is_idle or one.conn.their_state is h11.SEND_BODY]
    if not waiting:
        return False
    min(waiting, key=lambda one: (not one.is_idle, one.number)).transport.abort()
    return True


def web_socket(*args: Any, **named: Any) -> asyncio.Protocol:
    """A connection that became a WebSocket. Its library is imported when the first one does."""
    from cuebook.surfaces.web.web_sockets import WebSocketConnection

    return WebSocketConnection(*args, **named)


def connections_within(bounds: Bounds) -> type[Connection]:
    """A connection class with these limits."""
    return type("Connection", (Connection,), {"bounds": bounds})

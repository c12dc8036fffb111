"""Limits on the messages of a tool server: only necessary messages pass.

They apply between a transport and the protocol's client, and are the same for every transport.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_WANTED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/cancelled",
        "notifications/subscriptions/acknowledged",
    }
)
BURST = 10_000
"""The number of unsolicited messages that a server may send at once."""
_A_SECOND = 1_000
_REQUEST_COSTS = 10
"""A request from the server must be answered, so it costs more."""

FLOODS = "It floods us with unsolicited messages."


class Flood(Exception):
    """The server sends too many messages."""


class Measure:
    """How much a server may still send. Messages use up the allowance; our requests and the passage of time add to it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()

    def sent(self, message: Any) -> None:
        if hasattr(message, "method") and hasattr(message, "id"):
            self._left += 1

    def passes(self, message: Any) -> bool:
        """Whether the client needs to see an incoming message. Raises `Flood` if it is one too many."""
        method = getattr(message, "method", None)
        asks = method is not None and hasattr(message, "id")
        self._take(_REQUEST_COSTS if asks else 1)
        # Every request passes, because the server must learn that it is declined.
        return method is None or asks or method in _WANTED

    def _take(self, cost: int) -> None:
        if self._left < cost:
            now = self._clock()
            self._left = min(BURST, self._left + (now - self._at) * _A_SECOND)
            self._at = now
            if self._left < cost:
                raise Flood(FLOODS)
        self._left -= cost


class Sieve:
    """A stream of incoming messages that drops unnecessary messages. A flood closes it."""

    def __init__(self, inner: Any, measure: Measure, flooded: Callable[[], object]) -> None:
        self._inner = inner
        self._measure = measure
        self._flooded = flooded

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        import anyio

        while True:
            item = await self._inner.receive()
            try:
                if self._measure.passes(getattr(item, "message", None)):
                    return item
            except Flood:
                self._flooded()
                raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Sieve:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Sieve:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

"""Waits for a provider's turn: limits on the calls to a provider hold across all processes on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from cuebook.kernel.ports import Call
from cuebook.performers.models.providers import Resolved

_MINUTE = 60.0


class Queued:
    """The turns of one model call, one for each attempt. The time that it waits does not count as the provider's."""

    def __init__(self, resolved: Resolved, call: Call, clock: Callable[[], float], limit: asyncio.Timeout) -> None:
        """`limit` is the time that the provider has to answer; it is extended by the time that the call waits."""
        self._resolved = resolved
        self._call = call
        self._clock = clock
        self._limit = limit
        self._said = False
        self.seconds = 0.0
        """How long it has waited so far."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until the provider's limits permit another call. The call counts until the turn ends."""
        resolved = self._resolved
        if resolved.at_once is None and resolved.requests_per_minute is None:
            yield
            return
        async with AsyncExitStack() as held:
            await self._wait(held)
            yield

    async def _wait(self, held: AsyncExitStack) -> None:
        resolved, slots = self._resolved, self._call.slots
        began, deadline = self._clock(), self._limit.when()
        began_at = asyncio.get_running_loop().time()
        self._said = False
        self._limit.reschedule(None)
        name = f"provider:{resolved.provider}"
        if resolved.at_once is not None:
            most = resolved.at_once
            await held.enter_async_context(slots.hold(name, most, lambda: self._say("at_once", most)))
        # The minute begins with the call, so this comes last.
        if resolved.requests_per_minute is not None:
            most = resolved.requests_per_minute
            waits = slots.hold(f"{name}/minute", most, lambda: self._say("requests_per_minute", most), lasts=_MINUTE)
            await held.enter_async_context(waits)
        if deadline is not None:
            self._limit.reschedule(deadline + asyncio.get_running_loop().time() - began_at)
        waited = self._clock() - began
        self.seconds += waited
        if self._said:
            self._call.note("model_waited", {"provider": resolved.provider, "seconds": round(waited, 3)})

    def _say(self, limit: str, most: int) -> None:
        self._said = True
        self._call.note("model_waiting", {"provider": self._resolved.provider, limit: most})

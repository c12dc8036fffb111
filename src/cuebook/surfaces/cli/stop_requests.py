"""Requests to stop a command that runs until then: SIGTERM, SIGHUP and Ctrl-C, counted."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

_STOPPING = ("SIGTERM", "SIGINT", "SIGHUP")


class StopRequests:
    """Counts the requests to stop."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        for name in _STOPPING:
            number = getattr(signal, name, None)
            if number is not None:
                with suppress(ValueError, RuntimeError, NotImplementedError):  # not in every thread and on every system
                    loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        self._count += 1
        self._changed.set()

    async def requested(self, times: int) -> None:
        """Returns when a stop was requested this many times."""
        while self._count < times:
            self._changed.clear()
            await self._changed.wait()

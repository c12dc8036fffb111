"""Whether a process can take work: its store responds, and it is not shutting down. For the probes of an orchestrator."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from cuebook.kernel.errors import CuebookError

if TYPE_CHECKING:
    from cuebook.service.service import Service

log = logging.getLogger("cuebook")

STARTING = "This process is starting."
DRAINING = "This process is shutting down."
NO_STORE = "The store does not respond."
"""The reasons are shown to anyone who asks, so they name neither the database nor its error; the log does."""
_NOTHING = "probe"
"""A kind of stored decision that does not exist: looking for it is the cheapest read."""


class Readiness:
    """Reads the store at most once at a time and once a second, however often it is asked."""

    def __init__(self, service: Service, *, started: bool = True, within: float = 2.0, every: float = 1.0) -> None:
        """A store that does not respond `within` this many seconds is considered unavailable."""
        self._service = service
        self._within = within
        self._every = every
        self._busy = "" if started else STARTING
        self._reading: asyncio.Task[str] | None = None
        self._read_at = 0.0
        self._failed = False

    def start(self) -> None:
        """From now on, the process is ready if its store responds."""
        self._busy = ""

    def drain(self) -> None:
        """From now on, the process is not ready."""
        self._busy = DRAINING

    async def reason(self) -> str:
        """Why the process is not ready; empty if it is ready."""
        if self._busy:
            return self._busy
        reading = self._reading
        if reading is None or (reading.done() and time.monotonic() - self._read_at >= self._every):
            reading = self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(reading)

    async def _read(self) -> str:
        error: object = ""
        try:
            async with asyncio.timeout(self._within):
                await self._service.kept("", _NOTHING)
        except TimeoutError:
            error = f"The store did not respond within {self._within:g} seconds."
        except CuebookError as failure:
            error = failure
        if error and not self._failed:  # once, not with every probe
            log.warning("Not ready: %s", error)
        self._failed = bool(error)
        self._read_at = time.monotonic()
        return NO_STORE if error else ""

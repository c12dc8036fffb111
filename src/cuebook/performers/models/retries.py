"""Timeouts and retries of model calls: plain values and one small function."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts in seconds."""

    connect: float = 15.0
    idle: float = 120.0
    """The longest wait for a sign of life from the model, including the first chunk."""
    total: float = 1_800.0
    """The longest time for one attempt."""


DEFAULT_TIMEOUTS = Timeouts()


class Retries(msgspec.Struct, frozen=True):
    """When a call that failed for a temporary reason is retried."""

    attempts: int = 5
    """The total number of attempts."""
    total: float = 300.0
    """The total number of seconds to wait between attempts before giving up."""
    first: float = 1.0
    ceiling: float = 60.0

    def wait(self, retry: int, asked: float | None, draw: Callable[[], float]) -> float:
        """Seconds to wait before the given retry (0 is the first), at least as long as the provider asked for."""
        backoff = min(self.ceiling, self.first * 2.0**retry)
        jittered = backoff * (0.5 + draw() / 2)
        return max(jittered, asked or 0.0)


DEFAULT_RETRIES = Retries()

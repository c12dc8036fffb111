"""How long a model may take and how often a call is tried again: plain values and one small function."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds."""

    connect: float = 15.0
    idle: float = 120.0
    """Without any sign of life from the model, the wait for the first chunk included."""
    total: float = 1_800.0
    """For one attempt."""


DEFAULT_TIMEOUTS = Timeouts()


class Retries(msgspec.Struct, frozen=True):
    """When a call that failed for a passing reason is tried again."""

    attempts: int = 5
    """How often it is tried in all."""
    total: float = 300.0
    """Seconds of waiting between attempts, added up, after which it is given up."""
    first: float = 1.0
    ceiling: float = 60.0

    def wait(self, retry: int, asked: float | None, draw: Callable[[], float]) -> float:
        """Seconds before the given retry (0 is the first). What the provider asked for is the least."""
        backoff = min(self.ceiling, self.first * 2.0**retry)
        jittered = backoff * (0.5 + draw() / 2)
        return max(jittered, asked or 0.0)


DEFAULT_RETRIES = Retries()

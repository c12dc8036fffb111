"""Limits for performing an effect: the configured limits, or the limits that the effect requests, up to a maximum."""

from __future__ import annotations

import math

import msgspec

from cuebook.kernel.effects import Effect
from cuebook.kernel.ports import Limits

MAX_SECONDS = 300.0
MAX_OUTPUT = 512_000
_PROCESSORS = 16
"""Processors that a process may keep busy if no CPU time limit is set."""


class Ceilings(msgspec.Struct, frozen=True):
    """The limits of an effect that requests none, and the maximum that an effect can request."""

    limits: Limits = Limits()
    max_seconds: float = MAX_SECONDS
    max_output: int = MAX_OUTPUT
    cpu_follows: bool = False
    """Whether the CPU time limit is derived from the time limit, because none is set."""

    def for_effect(self, effect: Effect, asked: float | None = None) -> Limits:
        """`asked` is the time in seconds from the effect's arguments; the effect's own `timeout` is the maximum."""
        wishes = [wish for wish in (getattr(effect, "timeout", None), asked) if wish is not None]
        seconds = _within(min(wishes, default=None), self.limits.seconds, self.max_seconds)
        output = int(_within(getattr(effect, "max_output", None), self.limits.output, self.max_output))
        cpu = self.limits.cpu_seconds
        if self.cpu_follows:
            cpu = max(cpu, math.ceil(seconds) * _PROCESSORS)
        if (seconds, output, cpu) == (self.limits.seconds, self.limits.output, self.limits.cpu_seconds):
            return self.limits
        return msgspec.structs.replace(self.limits, seconds=seconds, output=output, cpu_seconds=cpu)


def _within(wished: float | None, otherwise: float, most: float) -> float:
    if wished is None or wished != wished:
        return otherwise
    return max(0.0, min(wished, max(most, otherwise)))

"""What performing an effect may take: what was configured, what the effect wishes, never more than the ceiling."""

from __future__ import annotations

import math

import msgspec

from cuebook.kernel.confinement import Limits
from cuebook.kernel.effects import Effect

MAX_SECONDS = 300.0
MAX_OUTPUT = 512_000
_PROCESSORS = 16
"""So many a process may use all the time, where nobody has set a limit of its processor time."""


class Ceilings(msgspec.Struct, frozen=True):
    """What an effect gets when it asks for nothing, and the most it can ask for."""

    limits: Limits = Limits()
    max_seconds: float = MAX_SECONDS
    max_output: int = MAX_OUTPUT
    cpu_follows: bool = False
    """Whether the processor time of a process follows the time that it may take, because nobody has set a limit."""

    def for_effect(self, effect: Effect, asked: float | None = None) -> Limits:
        """`asked` are the seconds that an effect asks for by its arguments; its own `timeout` is the most it gets."""
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

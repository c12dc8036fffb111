"""What performing an effect may take: what was configured, what the effect wishes, never more than the ceiling."""

from __future__ import annotations

import msgspec

from cuebook.kernel.confinement import Limits
from cuebook.kernel.effects import Effect

MAX_SECONDS = 300.0
MAX_OUTPUT = 512_000


class Ceilings(msgspec.Struct, frozen=True):
    """What an effect gets when it asks for nothing, and the most it can ask for."""

    limits: Limits = Limits()
    max_seconds: float = MAX_SECONDS
    max_output: int = MAX_OUTPUT

    def for_effect(self, effect: Effect) -> Limits:
        seconds = getattr(effect, "timeout", None)
        output = getattr(effect, "max_output", None)
        if seconds is None and output is None:
            return self.limits
        return msgspec.structs.replace(
            self.limits,
            seconds=_within(seconds, self.limits.seconds, self.max_seconds),
            output=int(_within(output, self.limits.output, self.max_output)),
        )


def _within(wished: float | None, otherwise: float, most: float) -> float:
    if wished is None or wished != wished:
        return otherwise
    return max(0.0, min(wished, max(most, otherwise)))

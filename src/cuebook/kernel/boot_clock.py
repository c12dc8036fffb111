"""A clock that never jumps and that also runs while the machine sleeps."""

from __future__ import annotations

import time

_CLOCK = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # elsewhere than on Linux, the latter runs during sleep too


def seconds_since_boot() -> float:
    return time.clock_gettime(_CLOCK)

"""Durations as written in configuration and policy files: `90`, `"30m"`, `"24h"`, `"never"`."""

from __future__ import annotations

import math
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

EXPECTED = 'must be a number of seconds, a duration such as "24h" or "7d", or "never"'


def seconds_of(value: Any) -> float | None:
    """Returns the seconds in a number or a string; None for `never`. Raises `ValueError` for anything else."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "never":
            return None
        value = float(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else float(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)

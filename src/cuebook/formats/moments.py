"""Moments as people write them: how long ago, or a date in local time: `30d`, `2026-11-01`, `2026-11-01T09:30`."""

from __future__ import annotations

import time
from datetime import datetime

from cuebook.formats.duration import seconds_of

EXPECTED = "a time such as 30d, or a date such as 2026-11-01"
_DATES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")


def moment_of(text: str, now: float) -> float:
    """Seconds since 1970; 0 for `never`. Raises `ValueError` for anything else."""
    try:
        seconds = seconds_of(text)
        return 0.0 if seconds is None else now - seconds
    except ValueError:
        pass
    for form in _DATES:
        try:
            return time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment.timestamp()

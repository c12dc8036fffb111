"""Durations and dates as a pipeline writes them: `90s`, `1h30m`, `2027-03-01T08:00:00Z`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

LONGEST = 366 * 86_400.0
"""The longest wait, in seconds."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def duration(text: str) -> float | None:
    """The seconds of a duration; None if the text is not one, or if it is too long."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return seconds if seconds <= LONGEST else None


def moment(text: str) -> float | None:
    """The seconds since 1970 of a date or time; None if the text is not one. Without an offset it is in UTC."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()


def written(at: float) -> str:
    """A time for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""Quiet hours as written in configuration and preferences, such as `22:00-07:00` in a time zone. Pure.

What counts is the clock on the wall of that zone, also on the days when it is put forward or back.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

EXPECTED = 'must be hours such as "22:00-07:00", or "none"'
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})", re.ASCII)


class QuietHours(msgspec.Struct, frozen=True):
    """A span of each day, in minutes since midnight. It may pass midnight."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> QuietHours | None:
        """Parses hours such as `22:00-07:00`; None for `none`. Raises `ValueError` for anything else."""
        if text.strip().lower() == "none":
            return None
        found = _HOURS.fullmatch(text.strip())
        if found is None:
            raise ValueError(EXPECTED)
        hours = [int(found[number]) for number in (1, 3)]
        minutes = [int(found[number]) for number in (2, 4)]
        if max(hours) > 23 or max(minutes) > 59:
            raise ValueError(EXPECTED)
        begin, end = (hour * 60 + minute for hour, minute in zip(hours, minutes, strict=True))
        if begin == end:
            raise ValueError(EXPECTED)
        return cls(begin, end)

    def __str__(self) -> str:
        return "-".join(f"{one // 60:02}:{one % 60:02}" for one in (self.begin, self.end))

    def until(self, now: float, zone: str) -> float | None:
        """When the quiet hours end, if this moment is in them.

        Where the clock is put back over their end, they are not quiet twice: they end at the first of the two moments.
        """
        local = datetime.fromtimestamp(now, ZoneInfo(zone))
        minute = local.hour * 60 + local.minute
        if not self._covers(minute):
            return None
        day = local.date() + timedelta(days=1 if self.begin > self.end and minute >= self.begin else 0)
        end = _moment(datetime.combine(day, time(self.end // 60, self.end % 60), ZoneInfo(zone)))
        return end if end > now else None

    def _covers(self, minute: int) -> bool:
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def _moment(local: datetime) -> float:
    """The first moment at which the clock shows this time or, if the clock is put forward over it, a later one."""
    shown = local.astimezone(UTC).astimezone(local.tzinfo)
    if shown.replace(tzinfo=None) == local.replace(tzinfo=None):
        return local.timestamp()
    moment = local.replace(fold=1).timestamp()  # before the clock is put forward
    while datetime.fromtimestamp(moment, local.tzinfo).replace(tzinfo=None) < local.replace(tzinfo=None):
        moment += 60
    return moment

"""Days and months in the configured time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal

from cuebook.kernel.errors import BadInput

Period = Literal["day", "month"]
PERIODS: tuple[Period, ...] = ("day", "month")


class Calendar:
    """The calendar of one time zone. A day is written as in 2026-03-31, and a month as in 2026-03."""

    def __init__(self, zone: str = "UTC") -> None:
        self.zone = zone
        self._zone = zone_of(zone)

    def day(self, at: float) -> str:
        return datetime.fromtimestamp(at, self._zone).strftime("%Y-%m-%d")

    def name(self, period: Period, day: str) -> str:
        """The name of the period that a day is in."""
        return day if period == "day" else day[:7]

    def first(self, period: Period, day: str) -> str:
        """The first day of the period that a day is in."""
        return day if period == "day" else f"{day[:7]}-01"

    def end(self, period: Period, day: str) -> float:
        """The moment when the period is over that a day is in."""
        here = date.fromisoformat(day)
        after = (
            here + timedelta(days=1) if period == "day" else (here.replace(day=1) + timedelta(days=32)).replace(day=1)
        )
        return datetime(after.year, after.month, after.day, tzinfo=self._zone).timestamp()

    def moment(self, at: float) -> str:
        """A moment in words, with the time zone."""
        return f"{datetime.fromtimestamp(at, self._zone):%Y-%m-%d %H:%M} {self.zone}"


def before(day: str) -> str:
    """The day before a day."""
    return (date.fromisoformat(day) - timedelta(days=1)).isoformat()


def checked_day(text: str, where: str) -> str:
    """A day that a person wrote. Raises `BadInput`."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadInput(f"{where}: expected a day, got '{text}'.", fix="Write it as in 2026-03-31.") from None


def zone_of(name: str) -> tzinfo:
    """A time zone by its name. Raises `BadInput`."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # some names are folders
        raise BadInput(f"There is no time zone '{name}'.", fix="Use a name such as Europe/Berlin or UTC.") from None

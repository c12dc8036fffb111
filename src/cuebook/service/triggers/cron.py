"""The moments that a cron expression names in a time zone.

A time that the clock skips in spring is the moment at which the clock jumps. A time that occurs twice in autumn counts once, the
first time. An expression whose minutes or hours begin with a `*` follows the clock as it is instead: what is skipped does not
count, and what occurs twice counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from cuebook.kernel.errors import BadInput

_FIELDS = "minute, hour, day of the month, month, day of the week"
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


_LOCAL = ("localtime", "posix", "right/")
"""How names begin that mean something else on each machine, or count leap seconds."""


def check_cron(expression: str, zone: str, now: float) -> None:
    """Raises `BadInput` for an invalid expression or an unknown zone, and for an expression that never fires."""
    zone_of(zone)
    if len(_spelled(expression).split()) != 5:
        raise BadInput(
            f"'{expression}' is not a cron expression: expected 5 fields, got {len(expression.split())}.",
            fix=f"The fields are {_FIELDS}, as in '30 6 * * 1-5'; or use {', '.join(_SHORT)}.",
        )
    try:
        following = next(moments(expression, zone, now), None)
    except CronSimError as error:
        raise BadInput(
            f"'{expression}' is not a cron expression: {str(error).replace('Bad', 'invalid').lower()}.",
            fix=f"The fields are {_FIELDS}, as in '30 6 * * 1-5'.",
        ) from None
    if following is None:
        raise BadInput(
            f"'{expression}' never fires: there is no such date in the next 50 years.",
            fix="Check the day and the month, as in '0 9 31 2 *'.",
        )


def zone_of(name: str) -> tzinfo:
    """The time zone with this name, as in Europe/Berlin."""
    try:
        return _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        from zoneinfo import available_timezones

        close = get_close_matches(name, sorted(available_timezones()), n=1)
        fix = f"Did you mean '{close[0]}'?" if close else "Use a name such as Europe/Berlin or UTC."
        raise BadInput(f"Unknown time zone '{name[:100]}'.", fix=fix) from None


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    if not name or name.startswith(_LOCAL):
        raise ValueError(name)
    return ZoneInfo(name)


def moments(expression: str, zone: str, after: float) -> Iterator[float]:
    """The moments after this one, in order."""
    for found in CronSim(_spelled(expression), datetime.fromtimestamp(after, zone_of(zone))):
        if (moment := found.timestamp()) > after:  # the clock may repeat the hour that `after` is in
            yield moment


def next_moment(expression: str, zone: str, after: float) -> float:
    """The first moment after this one. Raises `BadInput` if there is none."""
    found = next(moments(expression, zone, after), None)
    if found is None:
        raise BadInput(f"'{expression}' never fires again.", fix="Remove it, and add it with another expression.")
    return found


def latest_moments(expression: str, zone: str, since: float, until: float, limit: int) -> list[float]:
    """The moments from `since` to `until`, in order; the latest `limit` of them, however long the time between is."""
    found: list[float] = []
    start = datetime.fromtimestamp(math.floor(until) + 1, zone_of(zone))
    for each in CronSim(_spelled(expression), start, reverse=True):
        moment = each.timestamp()
        if moment < since or len(found) == limit:
            break
        if moment <= until and moment not in found[-1:]:
            found.append(moment)
    return found[::-1]


def first_moments(expression: str, zone: str, after: float, count: int) -> list[float]:
    return list(islice(moments(expression, zone, after), count))


def _spelled(expression: str) -> str:
    return _SHORT.get(expression.strip().lower(), expression)

"""The days of a report, as a person writes them."""

from __future__ import annotations

from datetime import date, timedelta

from cuebook.formats.duration import seconds_of
from cuebook.kernel.errors import BadInput
from cuebook.service.budgets.calendar import checked_day

_DAY = 86_400


def period_of(since: str, until: str, today: str, flag: str = "") -> tuple[str, str]:
    """The first and the last day. `since` is so many days, of which the last is one, or a date; `flag` precedes the names in
    errors.
    """
    last = checked_day(until, f"{flag}until") if until else today
    try:
        seconds = seconds_of(since) or 0.0
    except ValueError:
        try:
            return checked_day(since, f"{flag}since"), last
        except BadInput as error:
            raise BadInput(error.message, fix="Write a time such as 30d, or a date such as 2026-11-01.") from None
    try:
        return (date.fromisoformat(last) - timedelta(days=max(1, round(seconds / _DAY)) - 1)).isoformat(), last
    except OverflowError:
        raise BadInput(f"{flag}since: '{since}' is too long ago.", fix="For example: 30d.") from None

"""When schedules fire where the clock is put forward and back."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.service.triggers.cron import first_moments, latest_moments, zone_of
from tests.service.triggers.scheduled import at

BERLIN = "Europe/Berlin"


def local(moments: list[float], zone: str = BERLIN) -> list[str]:
    return [datetime.fromtimestamp(one, ZoneInfo(zone)).strftime("%d %H:%M%z") for one in moments]


def test_a_time_that_does_not_exist_fires_when_the_clock_jumps() -> None:
    # On 29 March 2026, 02:00 is followed by 03:00.
    assert local(first_moments("30 2 * * *", BERLIN, at("2026-03-28 00:00"), 3)) == [
        "28 02:30+0100",
        "29 03:00+0200",
        "30 02:30+0200",
    ]


def test_a_time_that_occurs_twice_fires_the_first_time() -> None:
    # On 25 October 2026, 03:00 is followed by 02:00.
    assert local(first_moments("30 2 * * *", BERLIN, at("2026-10-24 00:00"), 3)) == [
        "24 02:30+0200",
        "25 02:30+0200",
        "26 02:30+0100",
    ]


def test_between_the_two_times_it_does_not_fire_again() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo(BERLIN)).timestamp()
    for minutes in (0, 30, 45, 60, 90):  # 02:30 until 03:00 for the second time
        assert local(first_moments("30 2 * * *", BERLIN, first + minutes * 60, 1)) == ["26 02:30+0100"]


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_every_hour_fires_in_each_hour_that_passes(day: str, hours: int) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(BERLIN))
    found = first_moments("0 * * * *", BERLIN, midnight.timestamp() - 1, hours + 1)
    assert [b - a for a, b in pairwise(found)] == [3600.0] * hours
    assert datetime.fromtimestamp(found[-1], ZoneInfo(BERLIN)).strftime("%H:%M") == "00:00"


def test_hours_that_begin_with_a_star_follow_the_clock_as_it_is() -> None:
    assert local(first_moments("0 */2 * * *", BERLIN, at("2026-03-28 23:30"), 2)) == ["29 04:00+0200", "29 06:00+0200"]
    assert local(first_moments("0 */2 * * *", BERLIN, at("2026-10-24 22:30"), 3)) == [
        "25 02:00+0200",
        "25 02:00+0100",
        "25 04:00+0100",
    ]


@pytest.mark.parametrize("zone", ["", "localtime", "right/UTC", "posix/UTC", "posixrules", "../UTC", "/etc/localtime"])
def test_a_zone_that_is_not_the_same_everywhere_is_unknown(zone: str) -> None:
    with pytest.raises(BadInput, match="Unknown time zone"):
        zone_of(zone)


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "0 * * * *", "*/20 * * * *", "30 2,3 * * *", "0 3 * * 0", "15 1-3 * * *"]
)
@pytest.mark.parametrize("day", ["2026-03-27", "2026-10-23"])
@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_looking_back_finds_what_looking_forward_found(cron: str, day: str, zone: str) -> None:
    since = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    forward = [one for one in first_moments(cron, zone, since, 1000) if one <= since + 4 * 86400]
    assert latest_moments(cron, zone, forward[0], since + 4 * 86400, 1000) == forward
    assert latest_moments(cron, zone, forward[0], since + 4 * 86400, 3) == forward[-3:]
    assert latest_moments(cron, zone, forward[-1], forward[-1], 9) == forward[-1:]

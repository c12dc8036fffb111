"""Durations in configuration and policies."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.formats.duration import seconds_of


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        (0, 0.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("30s", 30.0),
        (" 2M ", 120.0),
        ("24h", 86400.0),
        ("7d", 604800.0),
    ],
)
def test_a_duration_is_read(written: Any, seconds: float) -> None:
    assert seconds_of(written) == seconds


def test_never_is_none() -> None:
    assert seconds_of("Never") is None


@pytest.mark.parametrize("written", ["", "h", "soon", "-1h", -1, True, None, [1], "nan", "inf", float("inf"), "1w"])
def test_an_invalid_duration_is_refused(written: Any) -> None:
    with pytest.raises(ValueError):
        seconds_of(written)

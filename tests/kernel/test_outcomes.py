"""Outcomes are plain values; a failure says what happened and what to do."""

from __future__ import annotations

from cuebook.kernel.outcomes import Failed


def test_a_failure_says_what_to_do() -> None:
    assert str(Failed("no_key", "There is no key.", fix="Set one.")) == "There is no key. Set one."
    assert str(Failed("broken", "It broke.")) == "It broke."

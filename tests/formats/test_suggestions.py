"""Suggestions for unknown names: helpful and bounded."""

from __future__ import annotations

from cuebook.formats.suggestions import Hints


def test_a_close_name_is_suggested_or_else_all_names() -> None:
    hints = Hints()
    assert hints.meant("frist", ("first", "second")) == "Did you mean 'first'?"
    assert hints.meant("zzz", ("first", "second")) == "Use one of: first, second."
    assert hints.meant("zzz", ()) == "There are none."


def test_the_number_of_comparisons_is_limited() -> None:
    hints = Hints()
    known = {f"longer_step_name_{number}": number for number in range(240)}
    told = [hints.meant(f"longer_stp_name_{number}", known) for number in range(1_000)]
    assert told[0] == "Did you mean 'longer_step_name_0'?"
    assert told[-1] == "Correct it."
    assert 3 <= sum(one != "Correct it." for one in told) <= 100


def test_a_name_that_was_compared_is_not_compared_again() -> None:
    hints = Hints()
    known = {f"longer_step_name_{number}": number for number in range(240)}
    for _ in range(1_000):
        assert hints.meant("longer_stp_name_7", known) == "Did you mean 'longer_step_name_7'?"
    assert hints.meant("longer_stp_name_8", known) == "Did you mean 'longer_step_name_8'?"


def test_too_many_names_are_not_compared_at_all() -> None:
    assert Hints().meant("a1", {f"a{number}": number for number in range(501)}) == "Correct it."

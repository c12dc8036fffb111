"""Short ids of waits: readable, unambiguous, and checked."""

from __future__ import annotations

import pytest

from cuebook.kernel.short_ids import LETTERS, SHORT, is_mistyped, new_wait_id, normal, short_id


def test_the_beginning_of_an_id_is_its_short_id() -> None:
    made = {new_wait_id() for _ in range(200)}
    assert len({short_id(one) for one in made}) == 200
    for one in made:
        short = short_id(one)
        assert len(short) == SHORT
        assert not is_mistyped(short)
        assert not set(short) & set("0o1il")


def test_every_wrong_character_and_every_swap_of_neighbours_is_recognised() -> None:
    short = short_id(new_wait_id())
    for place in range(1, SHORT):
        for letter in LETTERS:
            if letter != short[place]:
                assert is_mistyped(short[:place] + letter + short[place + 1 :])
    for place in range(1, SHORT - 2):
        swapped = short[:place] + short[place + 1] + short[place] + short[place + 2 :]
        assert swapped == short or is_mistyped(swapped)


@pytest.mark.parametrize("written", ["`WABC2345`", " wabc2345. ", "#wabc2345", "(Wabc2345)", '"wabc2345",'])
def test_what_a_chat_puts_around_an_id_does_not_matter(written: str) -> None:
    assert normal(written) == "wabc2345"


def test_other_ids_are_not_called_mistyped() -> None:
    assert not is_mistyped("w01deadbeef01234")
    assert not is_mistyped("w0a1b2c3")

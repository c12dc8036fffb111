"""Drawings: everything has a place, nothing covers another, and circles are led back."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from cuebook.surfaces.web.drawing import MOST, Arrow, Box, Drawing, Layout, laid_out, picture
from tests.surfaces.web.markup import TRICKS, Markup


def drawn(*arrows: tuple[str, str], label: str = "") -> Layout:
    names = dict.fromkeys(name for arrow in arrows for name in arrow)
    return laid_out(Drawing(tuple(Box(n, (n,)) for n in names), tuple(Arrow(a, b, label) for a, b in arrows)))


DIAMOND = (("a", "b"), ("a", "c"), ("a", "d"), ("b", "e"), ("c", "e"), ("d", "e"), ("a", "e"))


def test_arrows_lead_down() -> None:
    spots = drawn(*DIAMOND).spots
    assert spots["a"].y < spots["b"].y == spots["c"].y == spots["d"].y < spots["e"].y


@pytest.mark.parametrize("label", ["", "a label of some length"])
def test_no_box_covers_another(label: str) -> None:
    layout = drawn(*DIAMOND, label=label)
    boxes = [spot for spot in layout.spots.values() if spot.high]
    for one, other in combinations(boxes, 2):
        beside = abs(one.x - other.x) >= (one.wide + other.wide) / 2
        assert beside or abs(one.y - other.y) >= (one.high + other.high) / 2
    assert all(spot.x - spot.wide / 2 >= 0 and spot.x + spot.wide / 2 <= layout.wide for spot in boxes)


def test_labels_of_one_layer_do_not_touch() -> None:
    layout = drawn(("a", "b"), ("a", "c"), ("a", "d"), label="a rather long condition")
    at = sorted(line.at[0] for line in layout.lines)
    assert all(right - left > len("a rather long condition") * 5 for left, right in pairwise(at))


def test_a_circle_is_drawn_and_ends() -> None:
    layout = drawn(("a", "b"), ("b", "c"), ("c", "a"), ("b", "b"))
    assert [line.beside for line in layout.lines] == [False, False, True, True]
    assert layout.spots["a"].y < layout.spots["c"].y


def test_boxes_that_are_alone_stand_below_each_other() -> None:
    spots = drawn(("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e")).spots
    assert spots["a"].x == spots["b"].x == spots["e"].x


def test_a_drawing_has_its_limits() -> None:
    many = Drawing(tuple(Box(str(n), (str(n),)) for n in range(MOST + 50)), (Arrow("0", str(MOST + 1)),))
    layout = laid_out(many)
    assert len(layout.drawing.boxes) == MOST
    assert layout.drawing.arrows == ()
    assert "<svg" in picture(Drawing((), ()), "nothing")


@pytest.mark.parametrize("text", TRICKS)
def test_names_and_labels_are_only_words(text: str) -> None:
    boxes = (Box("a", (text, text), "step"), Box("b", ("b",)))
    made = Markup(str(picture(Drawing(boxes, (Arrow("a", "b", text), Arrow("b", "a", text))), text)))
    assert made.dangers() == []

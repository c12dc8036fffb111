"""Drawings: everything has a position, nothing overlaps, and cycles lead back."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import cast

import pytest

from cuebook.dialects.presentation.drawing import Arrow, ArrowKind, Box, Drawing, Group
from cuebook.surfaces.web.drawing.layout import MOST, Layout, box_svg, laid_out, picture, width
from tests.surfaces.web.markup import TRICKS, Markup


def drawn(*arrows: tuple[str, str], label: str = "") -> Layout:
    names = dict.fromkeys(name for arrow in arrows for name in arrow)
    return laid_out(Drawing("", tuple(Box(n, (n,)) for n in names), tuple(Arrow(a, b, label) for a, b in arrows)))


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


def points(path: str) -> list[tuple[float, float]]:
    """The points of a path, including its control points."""
    found, x, y = list[tuple[float, float]](), 0.0, 0.0
    for kind, numbers in re.findall(r"([MCQLHV])([^MCQLHV]*)", path):
        given = [float(one) for one in numbers.split()]
        pairs = {"H": [(given[0], y)], "V": [(x, given[0])]}.get(kind) or list(
            zip(given[::2], given[1::2], strict=True)
        )
        found += pairs
        x, y = pairs[-1]
    return found


@pytest.mark.parametrize("beside", ["from", "to", "both", "itself"])
def test_a_path_back_crosses_no_box(beside: str) -> None:
    aside = {"from": [("a", "b"), ("b", "c"), ("b", "d")], "to": [("r", "a"), ("r", "z"), ("a", "b"), ("b", "c")]}
    aside["both"] = [("r", "a"), ("r", "z"), ("a", "b"), ("b", "c"), ("b", "d")]
    aside["itself"] = [("r", "c"), ("r", "z")]
    layout = drawn(*aside[beside], ("c", "c" if beside == "itself" else "a"))
    way = points(layout.lines[-1].path)
    for id, spot in layout.spots.items():
        left, top = spot.x - spot.wide / 2 + 1, spot.y - spot.high / 2 + 1
        for (x, y), (to_x, to_y) in pairwise(way if spot.high else []):
            apart = max(x, to_x) < left or min(x, to_x) > left + spot.wide - 2
            assert apart or max(y, to_y) < top or min(y, to_y) > top + spot.high - 2, id
    assert all(0 <= x <= layout.wide and 0 <= y <= layout.high for x, y in way)


def test_text_stays_within_its_box() -> None:
    long = "QUE $total:float = AskNumber(question=MMMM, least=0.01) 質量質量質量"
    layout = laid_out(Drawing("", (Box("a", ("Wwww MMMM", "mmmm")), Box("b", (long, long))), ()))
    made = str(picture(layout, "words"))
    assert "Wwww MMMM<" in made
    for words in re.findall(r'class="(?:name|more)">([^<]+)', made):
        spot = layout.spots["a" if "ww" in words or words == "mmmm" else "b"]
        assert width(words, 11) < spot.wide
    assert made.count("…") == 2


def test_a_picture_does_not_become_too_small_to_read() -> None:
    layout = drawn(*DIAMOND, label="a label of some length")
    [least, more] = re.findall(r'class="spacer" width="(\d+)"', str(picture(layout, "wide")))
    assert 0.6 * layout.wide < int(least) < layout.wide
    assert int(least) + int(more) == pytest.approx(layout.wide, abs=1.5)


def test_single_boxes_are_aligned_vertically() -> None:
    spots = drawn(("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e")).spots
    assert spots["a"].x == spots["b"].x == spots["e"].x


def test_a_drawing_has_its_limits() -> None:
    many = Drawing("", tuple(Box(str(n), (str(n),)) for n in range(MOST + 50)), (Arrow("0", str(MOST + 1)),))
    layout = laid_out(many)
    assert len(layout.drawing.boxes) == MOST
    assert layout.drawing.arrows == ()
    assert "<svg" in picture(laid_out(Drawing("", (), ())), "nothing")


@pytest.mark.parametrize("text", TRICKS)
def test_names_and_labels_are_escaped(text: str) -> None:
    boxes = (Box("a", (text, text), "step"), Box("b", ("b",)))
    made = Markup(str(picture(laid_out(Drawing("", boxes, (Arrow("a", "b", text), Arrow("b", "a", text)))), text)))
    assert made.dangers() == []


def test_a_group_begins_with_its_title() -> None:
    boxes = (Box("p1_0", ("one",), group="p1"), Box("p1_1", ("two",), group="p1"), Box("p2_0", ("x", "y"), group="p2"))
    arrows = (Arrow("p1_0", "p1_1"), Arrow("p1_1", "p2_0", kind="call"), Arrow("p2_0", "p1_0", kind="call"))
    groups = (Group("p1", "First()"), Group("p2", "Second()"))
    made = laid_out(Drawing("", boxes, arrows, groups)).drawing
    assert [(box.id, box.lines) for box in made.boxes] == [
        ("p1", ("First()",)), ("p1_0", ("one",)), ("p1_1", ("two",)), ("p2_0", ("Second()", "y")),
    ]  # fmt: skip
    assert {(one.from_, one.to) for one in made.arrows} == {
        ("p1", "p1_0"), ("p1_0", "p1_1"), ("p1_1", "p2_0"), ("p2_0", "p1"),
    }  # fmt: skip


def test_data_of_other_steps_is_a_line_in_the_box() -> None:
    boxes = (Box("a", ("A",), step="first"), Box("b", ("B",), step="second"))
    made = laid_out(Drawing("", boxes, (Arrow("a", "b"), Arrow("a", "b", kind="data")))).drawing
    assert made.boxes[1].lines == ("B", "uses first")
    assert len(made.arrows) == 1


def forked(*arrows: str) -> Layout:
    """A drawing from arrows such as `a=b` (begins a branch), `b-z` and `b>z` (joins)."""
    kinds = {"=": "fan", ">": "join", "-": "way"}
    names = dict.fromkeys(name for arrow in arrows for name in (arrow[0], arrow[2]))
    made = [Arrow(one[0], one[2], kind=cast("ArrowKind", kinds[one[1]])) for one in arrows]
    return laid_out(Drawing("", tuple(Box(name, (name,)) for name in names), tuple(made)))


def test_parallel_branches_are_side_by_side_between_two_bars() -> None:
    layout = forked("a=b", "a=c", "a=d", "b>z", "c-e", "e>z", "d>z")
    spots = layout.spots
    begins, joins = layout.bars
    assert begins.label == "3 at once"
    assert joins.label == ""
    assert (
        spots["a"].y < begins.y < spots["b"].y == spots["c"].y == spots["d"].y < spots["e"].y < joins.y < spots["z"].y
    )
    for bar, ends in ((begins, "bcd"), (joins, "e")):
        assert all(bar.left <= spots[end].x <= bar.right for end in ends)
    for line in layout.lines[:3]:
        assert begins.y in {y for _, y in points(line.path)}
    drawing = str(picture(layout, "x"))
    assert drawing.count('class="forkbar"') == 2
    assert drawing.count("3 at once") == 1


def test_bars_stay_clear_of_boxes() -> None:
    layout = forked("a=b", "a=c", "b=d", "b=e", "d>f", "e>f", "f>z", "c>z")
    assert len(layout.bars) == 4
    for bar in layout.bars:
        for spot in layout.spots.values():
            beside = bar.right < spot.x - spot.wide / 2 or bar.left > spot.x + spot.wide / 2
            assert beside or not spot.high or abs(bar.y - spot.y) > spot.high / 2


def test_a_branch_without_boxes_leads_from_bar_to_bar() -> None:
    layout = forked("a=b", "a=c", "a=z", "b>z", "c>z")
    begins, joins = layout.bars
    assert begins.label == "2 at once"
    heights = [y for _, y in points(layout.lines[2].path)]
    assert begins.y in heights
    assert joins.y in heights
    assert heights == sorted(heights)


def test_a_long_bar_is_labelled_where_it_begins_as_well() -> None:
    layout = forked(*(f"a={name}" for name in "bcdefghijk"), *(f"{name}>z" for name in "bcdefghijk"))
    begins = layout.bars[0]
    assert [round(x) for x, _ in begins.at] == [round(layout.spots["a"].x) + 8, round(begins.left) + 2]
    assert begins.right <= layout.wide


def test_a_name_in_a_cycle_is_whole_when_its_step_is_visited_again() -> None:
    boxes = (Box("a", ("Quality judgement",), step="a"), Box("b", ("Write it once more",), step="b"))
    layout = laid_out(Drawing("", boxes, (Arrow("a", "b"), Arrow("b", "a"))))
    assert "Quality judgement ×2" in box_svg(layout, 0, mark=" ×2")

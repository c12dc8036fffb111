"""Boxes and arrows, laid out in layers and drawn as SVG. Pure: the same gives the same picture.

An arrow leads from a layer to a later one; one that closes a circle leads back along the right side. What things look like
is up to the style sheet, which must not let words be larger than they are taken for here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from markupsafe import Markup, escape

from cuebook.surfaces.web.arrows import Line, Spot, around, down
from cuebook.surfaces.web.letters import fitted, one_line, width

_NAME = 13
"""Size of the letters in a box's first line, which are bold, in units of the picture."""
_MORE = 11
"""Of all others."""
_LINE = 16
_PADDING = 12
_WIDEST = 250
_NARROWEST = 84
_ACROSS = 26
"""Between two boxes of a layer."""
_DOWN = 34
"""Between two layers."""
_LABELLED = 20
"""More than that where words stand between them."""
_MARGIN = 12
_LONGEST_LABEL = 30
_SWEEPS = 6
_NO_ATTRIBUTES = Markup("")
_SMALLEST = 0.75
"""How small a picture may become, as a part of its size: its words can still be read."""
MOST = 150
"""Boxes that are drawn; a picture of more would tell nothing."""


class Box(msgspec.Struct, frozen=True):
    id: str
    lines: tuple[str, ...]
    """The first one is its name."""
    kind: str = "step"


class Arrow(msgspec.Struct, frozen=True):
    from_: str
    to: str
    label: str = ""
    kind: str = "way"
    id: str = ""
    """Where something is to be told of it later."""


class Drawing(msgspec.Struct, frozen=True):
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


class Layout(msgspec.Struct, frozen=True):
    drawing: Drawing
    spots: dict[str, Spot]
    lines: tuple[Line, ...]
    wide: float
    high: float


def laid_out(drawing: Drawing) -> Layout:
    """Places for everything. Arrows from or to boxes that are not there are left out."""
    boxes = {box.id: box for box in drawing.boxes[:MOST]}
    drawing = Drawing(
        tuple(boxes.values()), tuple(one for one in drawing.arrows if one.from_ in boxes and one.to in boxes)
    )
    back = _closing(boxes, drawing.arrows)
    forward = [one for number, one in enumerate(drawing.arrows) if number not in back]
    layer = _layers(boxes, forward)
    if not boxes:
        return Layout(drawing, {}, (), 0, 0)
    rows, chains = _rows(boxes, drawing.arrows, back, layer)
    spots = {id: _sized(boxes[id]) if id in boxes else Spot(0, 0, 8, 0, 8) for row in rows for id in row}
    links = [(a, b) for chain in chains.values() for a, b in pairwise(chain)]
    labelled: set[str] = set()
    for number, chain in chains.items():
        if drawing.arrows[number].label:
            labelled.add(chain[1])
            spots[chain[1]].room = max(spots[chain[1]].room, _label_width(drawing.arrows[number]) + 4)
    _order(rows, links)
    _place(rows, links, spots, labelled)
    right = max((spot.x + spot.wide / 2 for spot in spots.values()), default=0)
    lines = []
    for number, arrow in enumerate(drawing.arrows):
        if number in back:
            right += 18
            lines.append(around(spots[arrow.from_], spots[arrow.to], right, list(spots.values())))
        else:
            lines.append(down([spots[id] for id in chains[number]]))
    labels = [
        line.at[0] + _label_width(arrow) / (1 if line.beside else 2)
        for line, arrow in zip(lines, drawing.arrows, strict=True)
        if arrow.label
    ]
    wide = max([right, *labels]) + _MARGIN
    high = max([spot.y + spot.high / 2 for spot in spots.values()] + [line.lowest for line in lines]) + _MARGIN
    return Layout(drawing, spots, tuple(lines), wide, high)


# --- layers ---


def _closing(boxes: Iterable[str], arrows: Sequence[Arrow]) -> set[int]:
    """The numbers of the arrows that close a circle."""
    onward: dict[str, list[tuple[int, str]]] = {id: [] for id in boxes}
    for number, arrow in enumerate(arrows):
        onward[arrow.from_].append((number, arrow.to))
    found: set[int] = set()
    done: set[str] = set()
    for start in onward:
        if start in done:
            continue
        way, within = [(start, iter(onward[start]))], {start}
        while way:
            id, rest = way[-1]
            step = next(rest, None)
            if step is None:
                way.pop()
                within.discard(id)
                done.add(id)
            elif step[1] in within:
                found.add(step[0])
            elif step[1] not in done:
                way.append((step[1], iter(onward[step[1]])))
                within.add(step[1])
    return found


def _layers(boxes: Iterable[str], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Each box as far down as its longest way."""
    layer = dict.fromkeys(boxes, 0)
    coming = dict.fromkeys(layer, 0)
    for arrow in arrows:
        coming[arrow.to] += 1
    ready = [id for id, count in coming.items() if not count]
    for id in ready:
        for arrow in arrows:
            if arrow.from_ == id:
                layer[arrow.to] = max(layer[arrow.to], layer[id] + 1)
                coming[arrow.to] -= 1
                if not coming[arrow.to]:
                    ready.append(arrow.to)
    return layer


def _rows(
    boxes: Iterable[str], arrows: Sequence[Arrow], back: set[int], layer: dict[str, int]
) -> tuple[list[list[str]], dict[int, list[str]]]:
    """The boxes of each layer, with places for arrows that pass through it; and what each arrow goes through."""
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for id in boxes:
        rows[layer[id]].append(id)
    chains: dict[int, list[str]] = {}
    for number, arrow in enumerate(arrows):
        if number in back:
            continue
        through = []
        for level in range(layer[arrow.from_] + 1, layer[arrow.to]):
            through.append(f"\0{number}.{level}")
            rows[level].append(through[-1])
        chains[number] = [arrow.from_, *through, arrow.to]
    return rows, chains


def _order(rows: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Within a layer, near to what each hangs on."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for a, b in links:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    for sweep in range(_SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for before, row in pairwise(order):
            place = {id: number for number, id in enumerate(before)}
            was = {id: number for number, id in enumerate(row)}

            def middle(
                id: str,
                near: dict[str, list[str]] = near,
                place: dict[str, int] = place,
                was: dict[str, int] = was,
            ) -> float:
                found = [place[one] for one in near.get(id, ()) if one in place]
                return sum(found) / len(found) if found else was[id]

            row.sort(key=middle)


def _sized(box: Box) -> Spot:
    name, *rest = box.lines or ("",)
    letters = max([width(one_line(name), _NAME, bold=True), *(width(one_line(line), _MORE) for line in rest)])
    wide = min(_WIDEST, max(_NARROWEST, letters + 2 * _PADDING))
    return Spot(0, 0, wide, 2 * 9 + _LINE * max(1, len(box.lines)), wide)


def _place(rows: list[list[str]], links: Sequence[tuple[str, str]], spots: dict[str, Spot], labelled: set[str]) -> None:
    y = float(_MARGIN - _DOWN)
    for row in rows:
        high = max(spots[id].high for id in row)
        y += _DOWN + (_LABELLED if labelled.intersection(row) else 0)
        x = 0.0
        for id in row:
            spots[id].x, spots[id].y = x + spots[id].room / 2, y + high / 2
            x += spots[id].room + _ACROSS
        for id in row:
            spots[id].x -= (x - _ACROSS) / 2
        y += high
    for order in (rows[1:], rows[:-1][::-1], rows[1:], rows[:-1][::-1], rows[1:]):
        for row in order:
            _pull(row, links, spots)
    middle = _middle(rows, spots)
    for row in rows:
        if len(row) == 1:
            spots[row[0]].x = middle
    left = min((spot.x - spot.room / 2 for spot in spots.values()), default=0.0) - _MARGIN
    for spot in spots.values():
        spot.x -= left


def _middle(rows: list[list[str]], spots: dict[str, Spot]) -> float:
    """Where boxes that are alone in their layer stand below each other."""
    widest = max(rows, key=lambda row: sum(spots[id].room for id in row))
    return (spots[widest[0]].x + spots[widest[-1]].x) / 2


def _pull(row: list[str], links: Sequence[tuple[str, str]], spots: dict[str, Spot]) -> None:
    """Moves the boxes of a layer towards what they hang together with; none comes too near to another."""
    wanted = []
    for id in row:
        near = [spots[a if b == id else b].x for a, b in links if id in (a, b)]
        wanted.append(sum(near) / len(near) if near else spots[id].x)
    places: list[float] = []
    for number, id in enumerate(row):
        x = wanted[number]
        if places:
            before = row[number - 1]
            x = max(x, places[-1] + (spots[before].room + spots[id].room) / 2 + _ACROSS)
        places.append(x)
    drift = sum(place - want for place, want in zip(places, wanted, strict=True)) / len(row)
    for id, place in zip(row, places, strict=True):
        spots[id].x = place - drift


# --- as SVG ---


def svg(
    layout: Layout, title: str, boxes: Sequence[Markup], arrows: Sequence[Markup], *, tallest: float = math.inf
) -> Markup:
    """The whole picture, from its boxes and arrows. It is as wide as there is room, up to its size, and where that would
    be too small to read, as wide as that takes: what is around it scrolls.

    The two pieces without height say so: in one line they have the full width, below each other the smallest. Below
    `tallest` its size is one at which it is no taller, if that can be read.
    """
    least = layout.wide * _SMALLEST
    full = max(least, layout.wide * min(1, tallest / max(1, layout.high)))
    return Markup(
        '<div class="sized">{}<svg class="drawing" role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}">{}{}</svg></div>'
    ).format(
        _spacer(least) + Markup(" ") + _spacer(full - least),
        title,
        layout.wide,
        layout.high,
        Markup("").join(arrows),
        Markup("").join(boxes),
    )


def _spacer(wide: float) -> Markup:
    return Markup('<svg class="spacer" width="{:.0f}" height="0" aria-hidden="true"></svg>').format(wide)


def box_svg(layout: Layout, number: int, *, attributes: Markup = _NO_ATTRIBUTES, mark: str = "") -> Markup:
    """A box by its number; `mark` is put after its name."""
    box = layout.drawing.boxes[number]
    spot = layout.spots[box.id]
    left, top = spot.x - spot.wide / 2, spot.y - spot.high / 2
    shape = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}"/>').format(
        left, top, spot.wide, spot.high, spot.high / 2 if box.kind in ("start", "end") else 9
    )
    room = spot.wide - _PADDING
    lines = Markup("")
    for place, words in enumerate(box.lines):
        if place == 0:
            told = fitted(words, room - width(mark, _NAME, bold=True), _NAME, bold=True) + mark
        else:
            told = fitted(words, room, _MORE)
        lines += Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(
            spot.x, top + 9 + _LINE * place + 12, "name" if place == 0 else "more", told
        )
    return Markup('<g class="box {}" {}><title>{}</title>{}{}</g>').format(
        box.kind, attributes, "\n".join(box.lines), shape, lines
    )


def arrow_svg(layout: Layout, number: int, *, attributes: Markup = _NO_ATTRIBUTES, mark: str = "") -> Markup:
    """An arrow by its number, with its label."""
    arrow, line = layout.drawing.arrows[number], layout.lines[number]
    words = _label(arrow.label) + mark
    label = Markup("")
    if words:
        label = Markup('<text x="{:.1f}" y="{:.1f}"{}>{}<title>{}</title></text>').format(
            *line.at, Markup(' class="beside"') if line.beside else "", words, arrow.label or mark
        )
    return Markup('<g class="arrow {}" {}><path class="line" d="{}"/><path class="head" d="{}"/>{}</g>').format(
        arrow.kind, attributes, line.path, line.head, label
    )


def picture(layout: Layout, title: str) -> Markup:
    """A drawing in which nothing changes."""
    return svg(
        layout,
        title,
        [box_svg(layout, number) for number in range(len(layout.drawing.boxes))],
        [arrow_svg(layout, number) for number in range(len(layout.drawing.arrows))],
    )


def attribute(**values: str) -> Markup:
    """Attributes of an element; an underscore stands for a hyphen."""
    return Markup(" ").join(
        Markup('{}="{}"').format(name.strip("_").replace("_", "-"), escape(value)) for name, value in values.items()
    )


def _label(words: str) -> str:
    line = one_line(words)
    return line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"


def _label_width(arrow: Arrow) -> float:
    return width(_label(arrow.label), _MORE)

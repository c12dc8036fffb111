"""Lays out a drawing of a playbook in layers and renders it as SVG. The result is deterministic.

An arrow leads from a layer to a later one; an arrow that closes a cycle leads back along the right side. The style sheet
decides the appearance, but must not make text larger than assumed here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from unicodedata import combining, east_asian_width

import msgspec
from markupsafe import Markup, escape

from cuebook.dialects.presentation.drawing import ENTRY_MARK, Arrow, Box, Drawing
from cuebook.surfaces.web.drawing.arrows import BAR, Bar, Line, Spot, around, bar_over, down, met, parted, passed

_NAME = 13
"""Font size of a box's first line, which is bold, in units of the picture."""
_MORE = 11
"""Font size of all other lines."""
_LINE = 16
_PADDING = 12
_WIDEST = 250
_NARROWEST = 84
_ACROSS = 26
"""Distance between two boxes of a layer."""
_DOWN = 34
"""Distance between two layers."""
_LABELLED = 20
"""Additional distance if an arrow between two layers has a label."""
_MARGIN = 12
_LONGEST_LABEL = 30
_AGAIN = " ×2"
"""The mark of a step that was visited again; where there are cycles, boxes have room for it."""
_ON_BARS = ("at once", "join")
"""Labels that the bars of parallel branches replace."""
_SWEEPS = 6
_NO_ATTRIBUTES = Markup("")
_SMALLEST = 0.75
"""The smallest scale at which a picture's text can still be read."""
_NARROW = frozenset(" .,:;'|!/\\()[]{}`iljftrIJ-")
_WIDE = frozenset("mwMW=+<>~…×▸@%&")
_THIN = 0.9
"""Width of a regular letter relative to a bold one."""
MOST = 150
"""Maximum number of boxes in a drawing; a larger one would be unreadable."""


class Layout(msgspec.Struct, frozen=True):
    drawing: Drawing
    spots: dict[str, Spot]
    lines: tuple[Line, ...]
    wide: float
    high: float
    bars: tuple[Bar, ...] = ()
    """Where parallel branches begin and join."""


def laid_out(drawing: Drawing) -> Layout:
    """Lay out a drawing. Arrows from or to missing boxes are left out."""
    drawing = _simplified(drawing)
    boxes = {box.id: box for box in drawing.boxes[:MOST]}
    arrows = tuple(one for one in drawing.arrows if one.from_ in boxes and one.to in boxes)
    drawing = msgspec.structs.replace(drawing, boxes=tuple(boxes.values()), arrows=arrows)
    back = _closing(boxes, drawing.arrows)
    forward = [one for number, one in enumerate(drawing.arrows) if number not in back]
    layer = _layers(boxes, forward)
    if not boxes:
        return Layout(drawing, {}, (), 0, 0)
    rows, chains = _rows(boxes, drawing.arrows, back, layer)
    again = _AGAIN if back else ""
    spots = {id: _sized(boxes[id], again) if id in boxes else Spot(0, 0, 8, 0, 8) for row in rows for id in row}
    links = [(a, b) for chain in chains.values() for a, b in pairwise(chain)]
    labelled: set[str] = set()
    for number, chain in chains.items():
        arrow = drawing.arrows[number]
        if _words(arrow) or arrow.kind == "fan":
            labelled.add(chain[1])
            spots[chain[1]].room = max(spots[chain[1]].room, _label_width(arrow) + 4)
        if arrow.kind == "join":
            labelled.add(chain[-1])
    _order(rows, links)
    _place(rows, links, spots, labelled)
    right = max((spot.x + spot.wide / 2 for spot in spots.values()), default=0)
    lines = []
    for number, arrow in enumerate(drawing.arrows):
        if number in back:
            right += 18
            lines.append(around(spots[arrow.from_], spots[arrow.to], right, list(spots.values())))
        else:
            lines.append(_forward(arrow, [spots[id] for id in chains[number]], spots, rows, layer))
    labels = [
        line.at[0] + _label_width(arrow) / (1 if line.beside else 2)
        for line, arrow in zip(lines, drawing.arrows, strict=True)
        if _words(arrow)
    ]
    bars = tuple(_bars(drawing.arrows, back, chains, spots, rows, layer))
    labels += [x + width(bar.label, _MORE) for bar in bars for x, _ in bar.at]
    wide = max([right, *labels]) + _MARGIN
    high = max([spot.y + spot.high / 2 for spot in spots.values()] + [line.lowest for line in lines]) + _MARGIN
    return Layout(drawing, spots, tuple(lines), wide, high, bars)


# --- parallel branches ---


def _forward(
    arrow: Arrow, through: list[Spot], spots: Mapping[str, Spot], rows: list[list[str]], layer: Mapping[str, int]
) -> Line:
    if arrow.kind not in ("fan", "join"):
        return down(through)
    begins, joins = _edge(rows[layer[arrow.from_]], spots, 1), _edge(rows[layer[arrow.to]], spots, -1)
    if arrow.kind == "join":
        return met(through, joins)
    return parted(through[0], through[1], begins) if len(through) == 2 else passed(through, begins, joins)


def _edge(row: list[str], spots: Mapping[str, Spot], side: int) -> float:
    """The height of a bar below a layer (side 1) or above it (side -1)."""
    return spots[row[0]].y + side * (max(spots[id].high for id in row) / 2 + BAR)


def _bars(
    arrows: Sequence[Arrow],
    back: set[int],
    chains: Mapping[int, list[str]],
    spots: Mapping[str, Spot],
    rows: list[list[str]],
    layer: Mapping[str, int],
) -> Iterator[Bar]:
    """A bar for each box at which branches begin, and for each at which they join."""
    begun: dict[str, list[float]] = {}
    joined: dict[str, list[float]] = {}
    branches: Counter[str] = Counter()
    for number, arrow in enumerate(arrows):
        if number in back or arrow.kind not in ("fan", "join"):
            continue
        first, *through, last = chains[number]
        if arrow.kind == "fan":
            begun.setdefault(first, []).append(spots[(*through, last)[0]].x)
            branches[first] += not through  # an arrow straight to the join is a branch without boxes
        if arrow.kind == "join" or through:
            joined.setdefault(last, []).append(spots[(first, *through)[-1]].x)
    for box, places in begun.items():
        yield bar_over([*places, spots[box].x], _edge(rows[layer[box]], spots, 1), branches[box])
    for box, places in joined.items():
        yield bar_over([*places, spots[box].x], _edge(rows[layer[box]], spots, -1))


# --- simplification ---


def _simplified(drawing: Drawing) -> Drawing:
    """The drawing without groups, whose titles become boxes; data from other steps becomes a line in the box."""
    drawing = _ungrouped(drawing)
    label = {box.id: box.step for box in drawing.boxes}
    uses: dict[str, list[str]] = {}
    for arrow in drawing.arrows:
        if arrow.kind == "data":
            uses.setdefault(arrow.to, []).append(label[arrow.from_])
    boxes = [
        msgspec.structs.replace(box, lines=(*box.lines, f"uses {', '.join(uses[box.id])}")) if box.id in uses else box
        for box in drawing.boxes
    ]
    arrows = tuple(
        msgspec.structs.replace(one, label="") if one.kind in ("fan", "join") and one.label in _ON_BARS else one
        for one in drawing.arrows
        if one.kind not in ("data", "sequential")
    )
    return msgspec.structs.replace(drawing, boxes=tuple(boxes), arrows=arrows)


def _ungrouped(drawing: Drawing) -> Drawing:
    """A title box for each group of several boxes; a single box gets the title itself."""
    title = {group.id: group.title for group in drawing.groups}
    members: dict[str, list[Box]] = {id: [] for id in title}
    for box in drawing.boxes:
        if box.group:
            members[box.group].append(box)
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    first = {inside[0].id: id for id, inside in members.items() if len(inside) > 1}
    for box in drawing.boxes:
        if box.id in first:
            boxes.append(Box(first[box.id], (title[box.group],), "start"))
            arrows.append(Arrow(first[box.id], box.id))
        elif box.group and len(members[box.group]) == 1:
            box = msgspec.structs.replace(box, lines=(title[box.group], *box.lines[1:]))
        boxes.append(box)
    home = {box.id: box.group for box in drawing.boxes}
    for arrow in drawing.arrows:
        enters = arrow.to in first and (arrow.kind == "call" or home[arrow.from_] != home[arrow.to])
        arrows.append(msgspec.structs.replace(arrow, to=first[arrow.to]) if enters else arrow)
    return msgspec.structs.replace(drawing, boxes=tuple(boxes), arrows=tuple(arrows), groups=())


# --- layers ---


def _closing(boxes: Iterable[str], arrows: Sequence[Arrow]) -> set[int]:
    """The indices of the arrows that close a cycle."""
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
    """The layer of each box: the length of the longest path to it."""
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
    """The boxes of each layer, with points for passing arrows, and the points of each arrow."""
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
    """Order the boxes within each layer, close to their neighbours."""
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


def _sized(box: Box, again: str) -> Spot:
    name, *rest = box.lines or ("",)
    again = again if box.step else ""
    letters = max(
        [width(one_line(name) + _mark(box) + again, _NAME, bold=True), *(width(one_line(line), _MORE) for line in rest)]
    )
    wide = min(_WIDEST, max(_NARROWEST, letters + 2 * _PADDING))
    return Spot(0, 0, wide, 2 * 9 + _LINE * max(1, len(box.lines)), wide)


def _mark(box: Box) -> str:
    return ENTRY_MARK if box.kind == "entry" else ""


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
    """The centre line for boxes that are alone in their layer."""
    widest = max(rows, key=lambda row: sum(spots[id].room for id in row))
    return (spots[widest[0]].x + spots[widest[-1]].x) / 2


def _pull(row: list[str], links: Sequence[tuple[str, str]], spots: dict[str, Spot]) -> None:
    """Move the boxes of a layer towards their neighbours, keeping the minimum distance."""
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
    """The whole picture, from its boxes and arrows. It takes the available width, up to its own size. If it would be too
    small to read, it keeps the smallest readable width, and its container scrolls.

    Two zero-height elements do this: side by side they have the full width, stacked the smallest. If possible, the picture
    is scaled to be at most `tallest` high while it stays readable.
    """
    least = layout.wide * _SMALLEST
    full = max(least, layout.wide * min(1, tallest / max(1, layout.high)))
    return Markup(
        '<div class="sized">{}<svg class="drawing" role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}">{}{}{}</svg></div>'
    ).format(
        _spacer(least) + Markup(" ") + _spacer(full - least),
        title,
        layout.wide,
        layout.high,
        Markup("").join(map(_bar_svg, layout.bars)),
        Markup("").join(arrows),
        Markup("").join(boxes),
    )


def _bar_svg(bar: Bar) -> Markup:
    labels = [Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(x, y, bar.label) for x, y in bar.at]
    return Markup('<g class="forkbar"><path d="M{:.1f} {:.1f} H{:.1f}"/>{}</g>').format(
        bar.left, bar.y, bar.right, Markup("").join(labels)
    )


def _spacer(wide: float) -> Markup:
    return Markup('<svg class="spacer" width="{:.0f}" height="0" aria-hidden="true"></svg>').format(wide)


def box_svg(layout: Layout, number: int, *, attributes: Markup = _NO_ATTRIBUTES, mark: str = "") -> Markup:
    """A box by its number; `mark` follows its name."""
    box = layout.drawing.boxes[number]
    spot = layout.spots[box.id]
    left, top = spot.x - spot.wide / 2, spot.y - spot.high / 2
    shape = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}"/>').format(
        left, top, spot.wide, spot.high, spot.high / 2 if box.kind in ("start", "end") else 9
    )
    room = spot.wide - _PADDING
    mark = f"{_mark(box)}{mark}"
    lines = Markup("")
    for place, words in enumerate(box.lines):
        if place == 0:
            shown = fitted(words, room - width(mark, _NAME, bold=True), _NAME, bold=True) + mark
        else:
            shown = fitted(words, room, _MORE)
        lines += Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(
            spot.x, top + 9 + _LINE * place + 12, "name" if place == 0 else "more", shown
        )
    return Markup('<g class="box {}" {}><title>{}</title>{}{}</g>').format(
        box.kind, attributes, "\n".join(box.lines), shape, lines
    )


def arrow_svg(layout: Layout, number: int, *, attributes: Markup = _NO_ATTRIBUTES, mark: str = "") -> Markup:
    """An arrow by its number, with its label."""
    arrow, line = layout.drawing.arrows[number], layout.lines[number]
    words = _label(arrow) + mark
    label = Markup("")
    if words:
        label = Markup('<text x="{:.1f}" y="{:.1f}"{}>{}<title>{}</title></text>').format(
            *line.at, Markup(' class="beside"') if line.beside else "", words, _words(arrow) or mark
        )
    return Markup('<g class="arrow {}" {}><path class="line" d="{}"/><path class="head" d="{}"/>{}</g>').format(
        arrow.kind, attributes, line.path, line.head, label
    )


def picture(layout: Layout, title: str) -> Markup:
    """A static drawing."""
    return svg(
        layout,
        title,
        [box_svg(layout, number) for number in range(len(layout.drawing.boxes))],
        [arrow_svg(layout, number) for number in range(len(layout.drawing.arrows))],
    )


def attribute(**values: str) -> Markup:
    """Attributes of an element; underscores become hyphens."""
    return Markup(" ").join(
        Markup('{}="{}"').format(name.strip("_").replace("_", "-"), escape(value)) for name, value in values.items()
    )


def _words(arrow: Arrow) -> str:
    return " · ".join(part for part in (arrow.label, arrow.bound) if part)


def _label(arrow: Arrow) -> str:
    line = one_line(_words(arrow))
    return line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"


def _label_width(arrow: Arrow) -> float:
    return width(_label(arrow), _MORE)


# --- text width: the reader's font is unknown, so the widest of the usual fonts counts ---


def width(words: str, size: float, *, bold: bool = False) -> float:
    """The width of a line of text at a font size."""
    return sum(map(_width, words)) * size * (1 if bold else _THIN)


def _width(letter: str) -> float:
    if combining(letter):
        return 0
    if letter in _NARROW:
        return 0.47
    if letter in _WIDE or east_asian_width(letter) in "WF":
        return 1.06
    return 0.8 if letter.isupper() else 0.71


def one_line(words: str) -> str:
    return " ".join(words.split())


def fitted(words: str, room: float, size: float, *, bold: bool = False) -> str:
    """A line cut to the available width, but at least one letter."""
    line = one_line(words)
    if width(line, size, bold=bold) <= room:
        return line
    room -= width("…", size, bold=bold)
    kept = 0
    while kept < len(line) and (room := room - width(line[kept], size, bold=bold)) >= 0:
        kept += 1
    return f"{line[: max(1, kept)].rstrip()}…"

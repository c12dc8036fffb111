"""Draws plots of bars as SVG. The table beside them has the same numbers, for those who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

_WIDE, _HIGH = 430, 150
_LEFT, _TOP, _BOTTOM = 60, 14, 22
"""The least room for the scale, and the room above the bars and for the names below them."""
_GAP, _LETTER = 8, 8
"""Between a number of the scale and its line; and the width of a digit."""
_MOST_NAMES = 3


class Bar(NamedTuple):
    name: str
    value: float
    words: str
    """The value in words."""
    unknown: bool = False
    """Whether more was used than the value says; it is drawn as a mark above the bar."""


def plot(bars: Sequence[Bar], title: str, words: Callable[[float], str]) -> Markup:
    """The bars in a row, with a scale up to the largest one. `words` writes a number of the scale."""
    most = max((bar.value for bar in bars), default=0.0)
    floor, height = _HIGH - _BOTTOM, _HIGH - _BOTTOM - _TOP
    marks = _marks(most, words)
    left = max(_LEFT, _GAP + _LETTER * max(len(mark) for _, mark in marks))
    each = (_WIDE - left) / max(1, len(bars))
    wide = max(1.0, min(36.0, each * 0.8))
    parts = [_scale(floor, height, left, marks)]
    step = max(1, -(-len(bars) // _MOST_NAMES))
    written = 0.0
    for number, bar in enumerate(bars):
        middle = left + each * (number + 0.5)
        high = height * bar.value / most if most else 0.0
        parts.append(_bar(bar, middle, wide, floor, max(high, 1.0 if bar.value else 0.0)))
        if number % step == 0:
            half = _LETTER * len(bar.name) / 2
            centre = max(min(middle, _WIDE - half), left + half)
            if centre - half >= written:
                written = centre + half + _GAP
                name = Markup('<text class="plot-name" x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
                parts.append(name.format(centre, _HIGH - 6, bar.name))
    head = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(_WIDE, _HIGH, title)
    return head + Markup("").join(parts) + Markup("</svg>")


_ROW, _BAR, _VALUE = 46, 14, 120
"""The height of a bar with its name above it, that of the bar alone, and the room for its value."""
_LONGEST = 52
"""The number of characters of a name that fit above a bar."""


def rows(bars: Sequence[Bar], title: str, most: float = 0.0, dots: Sequence[Sequence[float]] = ()) -> Markup:
    """The bars below each other, each with its name above it and its value beside it, up to `most` or the largest one.

    `dots` are the single values behind each bar, which are drawn on it.
    """
    found = [bar.value for bar in bars] + [one for several in dots for one in several]
    most = max([most, *found]) or 1.0
    wide = _WIDE - _VALUE
    parts = []
    for number, bar in enumerate(bars):
        top = number * _ROW
        name = bar.name if len(bar.name) <= _LONGEST else f"{bar.name[: _LONGEST - 1]}…"
        middle = top + 22 + _BAR / 2
        parts.append(
            Markup(
                '<g><title>{}</title><text class="plot-label" x="0" y="{}">{}</text>'
                '<rect class="plot-track" x="0" y="{}" width="{}" height="{}" rx="2"/>'
                '<rect class="plot-bar" x="0" y="{}" width="{:.1f}" height="{}" rx="2"/>{}{}'
                '<text class="plot-value" x="{}" y="{}">{}</text></g>'
            ).format(
                f"{bar.name}: {bar.words}",
                top + 15,
                name,
                top + 22,
                wide,
                _BAR,
                top + 22,
                wide * bar.value / most,
                _BAR,
                _dots(dots[number] if dots else (), wide / most, middle),
                Markup('<circle class="plot-unknown" cx="{:.1f}" cy="{}" r="3.5"/>').format(
                    wide * bar.value / most + 7, middle
                )
                if bar.unknown
                else Markup(""),
                wide + 10,
                top + 22 + _BAR - 2,
                bar.words,
            )
        )
    head = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        _WIDE, max(1, len(bars)) * _ROW, title
    )
    return head + Markup("").join(parts) + Markup("</svg>")


def _dots(values: Sequence[float], scale: float, y: float) -> Markup:
    """Nothing for a single value: the bar shows it."""
    if len(values) < 2:
        return Markup("")
    dot = Markup('<circle class="plot-dot" cx="{:.1f}" cy="{}" r="2.5"/>')
    return Markup("").join(dot.format(one * scale, y) for one in values)


def _marks(most: float, words: Callable[[float], str]) -> list[tuple[float, str]]:
    """The lines of the scale: the share of its height, and the number in words."""
    halves = (0.0, 0.5, 1.0) if words(most / 2) != words(most) else (0.0, 1.0)
    return [(part, words(most * part)) for part in (halves if most else (0.0,))]


def _scale(floor: float, height: float, left: int, marks: Sequence[tuple[float, str]]) -> Markup:
    lines = []
    for part, mark in marks:
        y = floor - height * part
        lines.append(
            Markup(
                '<path class="plot-line" d="M{} {:.1f}H{}"/><text class="plot-name" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(left, y, _WIDE, left - _GAP, y + 4, mark)
        )
    return Markup("").join(lines)


def _bar(bar: Bar, middle: float, wide: float, floor: float, high: float) -> Markup:
    if not bar.value and not bar.unknown:
        return Markup("")
    title = Markup("<title>{}</title>").format(f"{bar.name}: {bar.words}")
    drawn = Markup('<rect class="plot-bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="2"/>').format(
        middle - wide / 2, floor - high, wide, high
    )
    mark = Markup("")
    if bar.unknown:
        mark = Markup('<circle class="plot-unknown" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(middle, floor - high - 7)
    return Markup("<g>{}{}{}</g>").format(title, drawn, mark)


def summary(title: str, bars: Sequence[Bar], total: str) -> str:
    """What a plot shows, for those who cannot see it."""
    if not bars:
        return f"{title}: nothing"
    largest = max(bars, key=lambda bar: bar.value)
    return str(
        escape(f"{title} from {bars[0].name} to {bars[-1].name}: {total}; most on {largest.name}, {largest.words}")
    )

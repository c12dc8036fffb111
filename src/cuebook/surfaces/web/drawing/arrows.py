"""The paths of arrows between the boxes of a drawing: down through the layers, or back along the right side.

Arrows into and out of parallel branches meet at a bar: one above the branches, and one below them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BAR = 22
"""Distance of a bar from the layer above the branches, or from the layer below them."""
_LONG = 480
"""The length from which a bar is labelled at its left end as well."""
_TURN = 7
"""Radius of a turn between a bar and a branch."""
_BELOW = 9
"""Distance below a layer at which an arrow turns back."""


class Spot(msgspec.Struct):
    """The position of a box: its centre and size. A spot without a size is a point on a long arrow."""

    x: float
    y: float
    wide: float
    high: float
    room: float = 0.0
    """The width it reserves: at least its own width and that of the incoming arrow's label."""


class Line(msgspec.Struct, frozen=True):
    """An arrow as it is drawn."""

    path: str
    head: str
    at: tuple[float, float]
    """The position of its label."""
    beside: bool = False
    """Whether the label starts at this position; otherwise it is centred there."""
    lowest: float = 0.0
    """Its lowest point."""


def down(spots: Sequence[Spot]) -> Line:
    first, *through, last = spots
    x, y = first.x, first.y + first.high / 2
    path = f"M{x:.1f} {y:.1f}"
    ends = [(spot.x, spot.y) for spot in through] + [(last.x, last.y - last.high / 2 - 7)]
    words = (ends[0][0], ends[0][1] - 9)
    for to_x, to_y in ends:
        half = (y + to_y) / 2
        path += f" C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    return Line(path, f"M{x:.1f} {y + 7:.1f} l-4.5 -9 h9 z", words)


class Bar(msgspec.Struct, frozen=True):
    """A thick line at which parallel branches begin or join."""

    left: float
    right: float
    y: float
    label: str = ""
    at: tuple[tuple[float, float], ...] = ()
    """The positions where its label starts; a long bar has several, because a reader may see only a part of it."""


def bar_over(places: Sequence[float], y: float, count: int = 0) -> Bar:
    """A bar over these positions, the last of which is the box that the branches belong to. `count` is shown."""
    left, right = min(places) - 14, max(places) + 14
    if count < 2:
        return Bar(left, right, y)
    at = [places[-1] + 8] + ([left + 2] if right - left > _LONG else [])
    return Bar(left, right, y, f"{count} at once", tuple((x, y - 8) for x in at))


def parted(first: Spot, to: Spot, bar: float) -> Line:
    """A path from a box to a bar, along it, and down to a branch."""
    x, end = to.x, to.y - to.high / 2 - 7
    path = f"M{first.x:.1f} {first.y + first.high / 2:.1f}{_turned(first.x, x, bar)} V{end:.1f}"
    return Line(path, f"M{x:.1f} {end + 7:.1f} l-4.5 -9 h9 z", (x, bar + 14))


def met(spots: Sequence[Spot], bar: float) -> Line:
    """A path from a branch down to a bar, along it, and on to the box at which the branches join."""
    *through, before, last = spots
    path, words = "", (before.x, bar - 8)
    if through:
        line = down([*through, msgspec.structs.replace(before, y=before.y + 7, high=0)])
        path, words = f"{line.path} ", line.at
    x, y, end = before.x, before.y + before.high / 2, last.y - last.high / 2 - 7
    path += f"M{x:.1f} {y:.1f}{_turned(x, last.x, bar)} V{end:.1f}"
    return Line(path, f"M{last.x:.1f} {end + 7:.1f} l-4.5 -9 h9 z", words)


def passed(spots: Sequence[Spot], begins: float, joins: float) -> Line:
    """A path from one bar to the other, for a branch without boxes."""
    first, *rest = spots
    line = met(rest, joins)
    begun = parted(first, msgspec.structs.replace(rest[0], y=rest[0].y + 7), begins)
    return Line(f"{begun.path} {line.path}", line.head, line.at)


def _turned(x: float, to: float, bar: float) -> str:
    """The path down to a bar at `x` and along it, up to the turn down at `to`."""
    if abs(to - x) < 2 * _TURN:
        return f" V{bar:.1f} H{to:.1f}"
    way = _TURN if to > x else -_TURN
    return (
        f" V{bar - _TURN:.1f} Q{x:.1f} {bar:.1f} {x + way:.1f} {bar:.1f}"
        f" H{to - way:.1f} Q{to:.1f} {bar:.1f} {to:.1f} {bar + _TURN:.1f}"
    )


def around(first: Spot, last: Spot, right: float, spots: Sequence[Spot]) -> Line:
    """A path back along the right side, passing below other boxes on the way."""
    if first is last and not _is_outermost(first, spots):
        return _beside(first)
    out, leave, low = _leaving(first, right, spots)
    into, head, arrive = _arriving(last, right, spots)
    middle = (leave + arrive) / 2
    return Line(f"{out} {right:.1f} {middle:.1f}{into}", head, (right + 6, middle + 4), True, low)


def _leaving(first: Spot, right: float, spots: Sequence[Spot]) -> tuple[str, float, float]:
    """The path out to the right side, the height at which it arrives there, and its lowest point."""
    if _is_outermost(first, spots):
        x, y = first.x + first.wide / 2, first.y + 5
        return f"M{x:.1f} {y:.1f} C{right:.1f} {y:.1f} {right:.1f} {y:.1f}", y, y
    x, y, below = first.x + first.wide * 0.3, first.y + first.high / 2, _below(first, spots)
    path = f"M{x:.1f} {y:.1f} Q{x:.1f} {below:.1f} {x + 10:.1f} {below:.1f} H{right - 12:.1f}"
    return f"{path} Q{right:.1f} {below:.1f} {right:.1f} {below - 12:.1f} L", below, below


def _arriving(last: Spot, right: float, spots: Sequence[Spot]) -> tuple[str, str, float]:
    """The path in from the right side, its head, and the height at which it leaves that side."""
    if _is_outermost(last, spots):
        x, y = last.x + last.wide / 2 + 7, last.y - 5
        head = f"M{x - 7:.1f} {y:.1f} l9 -4.5 v9 z"
        return f" C{right:.1f} {y:.1f} {right:.1f} {y:.1f} {x:.1f} {y:.1f}", head, y
    x, y, below = last.x + last.wide * 0.3, last.y + last.high / 2, _below(last, spots) + 4
    path = f" V{below + 12:.1f} Q{right:.1f} {below:.1f} {right - 12:.1f} {below:.1f} H{x + 4:.1f}"
    return f"{path} Q{x:.1f} {below:.1f} {x:.1f} {y + 7:.1f}", f"M{x:.1f} {y:.1f} l-4.5 9 h9 z", below


def _beside(spot: Spot) -> Line:
    """A small loop at a box."""
    x, y = spot.x + spot.wide / 2, spot.y
    path = f"M{x:.1f} {y + 8:.1f} C{x + 22:.1f} {y + 12:.1f} {x + 22:.1f} {y - 9:.1f} {x + 7:.1f} {y - 8:.1f}"
    return Line(path, f"M{x:.1f} {y - 8:.1f} l9 -4.5 v9 z", (x - 4, y + spot.high / 2 + 13), True)


def _is_outermost(one: Spot, spots: Sequence[Spot]) -> bool:
    return not any(spot.y == one.y and spot.high and spot.x > one.x for spot in spots)


def _below(one: Spot, spots: Sequence[Spot]) -> float:
    """The height just below a box's layer."""
    return one.y + max(spot.high for spot in spots if spot.y == one.y) / 2 + _BELOW

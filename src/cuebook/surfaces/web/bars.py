"""Where a run's time and money went, step by step: as shares, and as bars that a page shows beside the words."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from cuebook.surfaces.web.cards import Card
from cuebook.surfaces.web.picture import Picture

_MOST = 40
"""Steps that are shown: those that took longest."""
_REST = 0.01
"""The part of the whole from which on the rest is worth a line."""
_SHOWN = 0.0005
"""Seconds from which on a step took time: what is done within it is counted there."""
_SHORT = 0.5
"""Seconds of waiting that are not worth a word."""


class Share(NamedTuple):
    """What one step took of a run's duration and cost."""

    card: Card | None
    """None for the rest: what came between steps, was taken back, or is not shown."""
    seconds: float
    time: float
    """Its part of the longest share's time, of a hundred."""
    cost: float
    money: float
    """Its part of the dearest share's cost, of a hundred."""


def shares(run: Picture) -> list[Share]:
    """In the order of the steps, without those that did nothing, and then the rest: together what the run took."""
    worked, totals = run.work.worked, run.row.totals
    every = [(card, worked.get(card.key, 0.0), card.cost) for card in run]
    took = [one for one in every if one[1] >= _SHOWN or one[2] > 0]
    longest = sorted(took, key=lambda one: -one[1])[:_MOST]
    shown: list[tuple[Card | None, float, float]] = [one for one in took if one in longest]
    seconds = totals.seconds - sum(seconds for _, seconds, _ in shown)
    cost = totals.cost - sum(cost for _, _, cost in shown)
    if shown and (seconds > _REST * totals.seconds or cost > _REST * totals.cost):
        shown.append((None, max(0.0, seconds), max(0.0, cost)))
    most_time = max((seconds for _, seconds, _ in shown), default=0.0) or 1.0
    most_money = max((cost for _, _, cost in shown), default=0.0) or 1.0
    return [
        Share(card, seconds, 100 * seconds / most_time, cost, 100 * cost / most_money) for card, seconds, cost in shown
    ]


def waits(run: Picture) -> list[tuple[Card, float]]:
    """The steps that waited for somebody or something, and how long: that is no part of a run's duration."""
    waited = run.work.waited
    return [(card, waited[card.key]) for card in run if waited.get(card.key, 0.0) >= _SHORT]


def bar(start: float, wide: float, kind: str = "time") -> Markup:
    """A stretch of a hundred parts."""
    begin = min(start, 99.4)
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="100" height="8"/><rect x="{:.2f}" width="{:.2f}" height="8"/></svg>'
    ).format(kind, begin, min(wide, 100 - begin))

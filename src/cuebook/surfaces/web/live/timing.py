"""The time and cost of a run's steps, as shares and as bars."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from cuebook.surfaces.web.live.cards import Card
from cuebook.surfaces.web.live.run_page import Picture

_MOST = 40
"""Maximum number of steps to show: those that took longest."""
_REST = 0.01
"""The rest is shown if it is more than this fraction of the total."""
_SHOWN = 0.0005
"""Minimum seconds for a step to be shown; the time of inner steps counts only for them."""
_SHORT = 0.5
"""Waits shorter than this many seconds are not shown."""


class Share(NamedTuple):
    """A step's share of a run's duration and cost."""

    card: Card | None
    """None for the rest: time between steps, undone by rewinds, or not shown."""
    seconds: float
    time: float
    """Its time in percent of the longest share."""
    cost: float
    money: float
    """Its cost in percent of the most expensive share."""


def shares(run: Picture) -> list[Share]:
    """The shares in the order of the steps, without idle steps, then the rest. They add up to the run's totals."""
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
    """The steps that waited, and for how long. Waiting is not part of a run's duration."""
    waited = run.work.waited
    return [(card, waited[card.key]) for card in run if waited.get(card.key, 0.0) >= _SHORT]


def bar(start: float, wide: float, kind: str = "time") -> Markup:
    """A bar, in percent."""
    begin = min(start, 99.4)
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="100" height="8"/><rect x="{:.2f}" width="{:.2f}" height="8"/></svg>'
    ).format(kind, begin, min(wide, 100 - begin))

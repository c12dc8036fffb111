"""Where a run's time and money went, step by step: as shares, and as bars that a page shows beside the words."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from cuebook.surfaces.web.picture import Card, Picture

_MOST = 40
"""Steps that are shown: those that took longest."""


class Share(NamedTuple):
    """What one step took."""

    card: Card
    seconds: float
    time: float
    """Its part of the longest step's time, of a hundred."""
    cost: float
    money: float
    """Its part of the dearest step's cost, of a hundred."""


def shares(run: Picture) -> list[Share]:
    """In the order of the steps; without those that did nothing."""
    took = [(card, _seconds(card)) for card in run if card.row.started is not None]
    if len(took) > _MOST:
        longest = {id(card) for card, _ in sorted(took, key=lambda one: -one[1])[:_MOST]}
        took = [one for one in took if id(one[0]) in longest]
    most_time = max((seconds for _, seconds in took), default=0.0) or 1.0
    most_money = max((card.cost for card, _ in took), default=0.0) or 1.0
    return [
        Share(card, seconds, 100 * seconds / most_time, card.cost, 100 * card.cost / most_money)
        for card, seconds in took
    ]


def _seconds(card: Card) -> float:
    return card.seconds_before + card.took


def bar(start: float, wide: float, kind: str = "time") -> Markup:
    """A stretch of a hundred parts."""
    begin = min(start, 99.4)
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="100" height="8"/><rect x="{:.2f}" width="{:.2f}" height="8"/></svg>'
    ).format(kind, begin, min(wide, 100 - begin))

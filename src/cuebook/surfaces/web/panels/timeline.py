"""Timelines: when each step of a run started, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Panel
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.events import Rewound, RunFinished
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.live.cards import Card
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import duration, piece, words
from cuebook.surfaces.web.panels.view import PanelView

_MOST_BARS = 60
_AHEAD = 0.15
"""Space for steps that are still running, as a fraction of the time so far."""


class Bar(NamedTuple):
    card: Card
    start: float
    """Positions in percent of the total time."""
    wide: float
    words: str


class TimelineView(PanelView):
    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        self._statuses: dict[str, str] = {}
        self._now = 0.0
        """How long the run had been driven when the timeline was last drawn."""

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        step = entry.place.step
        if not isinstance(entry.event, Rewound | RunFinished):
            status = run.step_status(entry.place)
            if not step or self._statuses.get(step) == status:
                return ()
            self._statuses[step] = status
        self._now = run.work.now
        return (self.panel.name,)

    def part(self, name: str, run: Picture) -> str:
        return str(self.html(run))

    def html(self, run: Picture) -> Markup:
        return piece("panels/timeline.html", name=self.panel.name, bars=list(self._bars(run)))

    def _bars(self, run: Picture) -> Iterator[Bar]:
        begun = run.latest_begun(_MOST_BARS)
        if not begun:
            return
        first = min(card.begins for card in begun)
        last = max(card.ends if card.ends is not None else self._now for card in begun)
        if any(card.ends is None for card in begun):  # steps that are still running reach to the end
            last += max(0.001, _AHEAD * (last - first))
        scale = 100 / max(0.001, last - first)
        for card in begun:
            end = card.ends if card.ends is not None else last
            label = words(card.status) if card.ends is None else duration(card.row.totals.seconds)
            yield Bar(card, (card.begins - first) * scale, max(0.6, (end - card.begins) * scale), label)

"""The panels of a run's page: one renderer for each kind of panel. Their content comes from the dialect's projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from markupsafe import Markup

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.panels import Panel
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.events import ValueSet
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import part, piece
from cuebook.surfaces.web.panels.calls import CallsView
from cuebook.surfaces.web.panels.conversation import ConversationView
from cuebook.surfaces.web.panels.drawing import DrawingView
from cuebook.surfaces.web.panels.evidence import EvidenceView
from cuebook.surfaces.web.panels.listing import ListingView
from cuebook.surfaces.web.panels.table import TableView
from cuebook.surfaces.web.panels.timeline import TimelineView
from cuebook.surfaces.web.panels.view import PanelView

_VIEWS: dict[str, type[PanelView]] = {
    "timeline": TimelineView,
    "conversation": ConversationView,
    "listing": ListingView,
    "table": TableView,
    "evidence": EvidenceView,
    "calls": CallsView,
}
_VARIABLE = "variable"
_ASIDE = "drawing"
"""The kind of panel that is shown in a pane beside the cards."""


class RunPanels:
    """All panels of one run. They see every entry once, in order, and draw from that alone, so a page and its stream
    show the same thing.
    """

    def __init__(self, playbook: Playbook | None) -> None:
        """A run without a playbook (a Python program) has no panels."""
        self.projection = Projection()
        self._panels: Sequence[Panel] = ()
        self._views: dict[str, PanelView] = {}
        if playbook is not None:
            self.projection = playbook.dialect.observe(playbook.document)
            self._panels = playbook.dialect.panels(playbook.document)
        for panel in _flat(self._panels):
            self._views[panel.name] = _view(panel, self.projection, playbook)
        self._types = dict(self.projection.types)
        """The types that the page shows."""
        self._retyped: dict[str, None] = {}
        """Variables whose types the page does not show yet."""

    def see(self, entry: Entry, run: Picture) -> list[str]:
        """Apply an entry that the run's picture already has; return the names of the parts that it changed."""
        update = self.projection.see(entry)
        changed = [
            f"{name} {part}"
            for name, view in self._views.items()
            for part in view.see(entry, run, update, changed=name in update.panels)
        ]
        return changed + self._variables(entry, run)

    def stream(self, asked: Entry, text: str, sent: int) -> str:
        """The parts changed by the text of a model call, of which `sent` characters were already streamed. An empty text
        starts over. The result depends on these arguments alone.
        """
        return "".join(view.stream(asked, text, sent) for view in self._views.values())

    def part(self, name: str, run: Picture) -> str:
        """A part as HTML: elements with `id` and `data-part`."""
        panel, _, rest = name.partition(" ")
        if panel == _VARIABLE:
            return part("variable", rest, run.values.get(rest, run.inputs.get(rest)), self._types[rest])
        return self._views[panel].part(rest, run)

    def html(self, run: Picture) -> str:
        """All panels as HTML."""
        return self._html(self._panels, run)

    def aside(self, run: Picture) -> str:
        """The panels beside the cards as HTML."""
        return self._html([panel for panel in self._panels if panel.kind == _ASIDE], run)

    def others(self, run: Picture) -> str:
        """All other panels as HTML."""
        return self._html([panel for panel in self._panels if panel.kind != _ASIDE], run)

    def _html(self, panels: Sequence[Panel], run: Picture) -> str:
        shown = [self._shown(panel, run) for panel in panels]
        groups = [list(group) for group in _beside(shown)]
        return str(piece("parts/panels.html", groups=groups))

    def _shown(self, panel: Panel, run: Picture) -> _Shown:
        within = [self._shown(one, run) for one in panel.within]
        return _Shown(panel, self._views[panel.name].html(run), within)

    def _variables(self, entry: Entry, run: Picture) -> list[str]:
        """The variables whose type changes on the page, once the picture has their values."""
        name = entry.event.name if isinstance(entry.event, ValueSet) else ""
        now = self.projection.types.get(name, "")
        if name and now and self._types.get(name) != now:
            self._types[name] = now
            self._retyped[name] = None
        ready = sorted(name for name in self._retyped if name in run.values or name in run.inputs)
        for name in ready:
            del self._retyped[name]
        return [f"{_VARIABLE} {name}" for name in ready]


def _view(panel: Panel, projection: Projection, playbook: Playbook | None) -> PanelView:
    if panel.kind != "drawing" or playbook is None:
        return _VIEWS[panel.kind](panel, projection)
    drawing = playbook.dialect.drawing(playbook.document)
    return DrawingView(panel, projection, drawing, f"The steps of {playbook.title}")


class _Shown(NamedTuple):
    panel: Panel
    html: Markup
    within: list[Any]


def _flat(panels: Sequence[Panel]) -> Iterator[Panel]:
    for panel in panels:
        yield panel
        yield from _flat(panel.within)


def _beside(shown: Sequence[_Shown]) -> Iterator[Iterator[_Shown]]:
    """Groups of neighbouring panels that are shown side by side."""
    numbered = groupby(enumerate(shown), lambda one: -1 if one[1].panel.beside else one[0])
    for _, group in numbered:
        yield (one for _, one in group)

"""Listings: lines of code with the current line marked, or lines of text added during a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Line, Listing, Panel
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import macro
from cuebook.surfaces.web.panels.view import PanelView

_TEMPLATE = "panels/listing.html"


class ListingView(PanelView):
    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        self._content = self._now()

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        if not changed:
            return ()
        before, self._content = self._content, self._now()
        return list(self._changed(before))

    def part(self, name: str, run: Picture) -> str:
        if name == self.panel.name:
            return str(self.html(run))
        key, line = next((key, line) for key, line in self._lines() if key == name)
        return str(macro(_TEMPLATE, "line", self.panel.name, key, line))

    def html(self, run: Picture) -> Markup:
        return macro(_TEMPLATE, "listing", self.panel.name, self._content, list(self._lines()))

    # --- inside ---

    def _now(self) -> Listing:
        content = self.projection.panel(self.panel.name)
        assert isinstance(content, Listing)
        return content

    def _lines(self) -> Iterator[tuple[str, Line]]:
        return ((line.key or str(number), line) for number, line in enumerate(self._content.lines))

    def _changed(self, before: Listing) -> Iterator[str]:
        """The changed lines, or everything if something other than lines changed."""
        old, now = before.lines, self._content.lines
        grew = self._content.grows and old == now[: len(old)]
        if grew or (before.name == self._content.name and len(old) == len(now)):
            yield from (key for number, (key, line) in enumerate(self._lines()) if line not in old[number : number + 1])
        else:
            yield self.panel.name

"""The base classes of panel renderers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Panel
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import piece


class PanelView(ABC):
    """Draws one panel of one run, as a whole and part by part."""

    def __init__(self, panel: Panel, projection: Projection) -> None:
        self.panel = panel
        self.projection = projection

    @abstractmethod
    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        """The parts that an entry changes. With `changed`, the projection has new content for the panel."""

    def stream(self, asked: Entry, text: str, sent: int) -> str:
        """See `RunPanels.stream`."""
        return ""

    @abstractmethod
    def part(self, name: str, run: Picture) -> str:
        """One part as HTML: elements with `id` and `data-part`."""

    @abstractmethod
    def html(self, run: Picture) -> Markup:
        """The whole panel as HTML."""


class ContentView(PanelView):
    """A panel that is drawn as a whole whenever its content changes."""

    template: str

    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        self._content = projection.panel(panel.name)

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        if not changed:
            return ()
        before, self._content = self._content, self.projection.panel(self.panel.name)
        return () if before == self._content else (self.panel.name,)

    def part(self, name: str, run: Picture) -> str:
        return str(self.html(run))

    def html(self, run: Picture) -> Markup:
        return piece(self.template, name=self.panel.name, title=self.panel.title, content=self._content)

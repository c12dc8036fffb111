"""Tables: records with named fields, or figures. An empty table is hidden."""

from __future__ import annotations

from cuebook.surfaces.web.panels.view import ContentView


class TableView(ContentView):
    template = "panels/table.html"

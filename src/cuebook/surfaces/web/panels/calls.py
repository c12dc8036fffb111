"""Calls: the call stack, with arguments and queued calls."""

from __future__ import annotations

from cuebook.surfaces.web.panels.view import ContentView


class CallsView(ContentView):
    template = "panels/calls.html"

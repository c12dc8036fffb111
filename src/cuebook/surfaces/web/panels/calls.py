"""Calls: the call stack of a program. The tool calls of models are in the cards of their steps."""

from __future__ import annotations

from cuebook.surfaces.web.panels.view import ContentView


class CallsView(ContentView):
    template = "panels/calls.html"

"""Calls: the call stack of a program, and the tool calls of models with their arguments, results and times, and plans."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Panel
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.journal import Entry
from cuebook.service.runs.tool_calls import ToolCalls
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import macro
from cuebook.surfaces.web.panels.view import ContentView, PanelView

MOST = 200
"""Number of calls to show, so that the page of a long run stays readable."""
LONGEST = 8_000
"""Number of characters of a result to show."""
_TEMPLATE = "panels/tool-calls.html"
_CALL, _GONE, _EARLIER, _PLANS = "call-", "gone-", "earlier", "plans"
"""Names of the parts: one call, a removed call, the number of hidden calls, and the plans."""


class CallsView(ContentView):
    template = "panels/calls.html"


class ToolCallsView(PanelView):
    """The tool calls of every dialect that lets a model call tools. Its panel is hidden while there are none."""

    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        self._tools = ToolCalls(LONGEST)
        self._plans = self._tools.plans

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        before = len(self._tools.calls)
        parts = [f"{_CALL if key in self._tools.calls else _GONE}{key}" for key in self._tools.see(entry)]
        hidden = list(self._tools.calls)[:-MOST]
        if len(self._tools.calls) != before and max(before, len(self._tools.calls)) > MOST:
            gone = len(hidden) - max(0, before - MOST)
            parts += [_EARLIER, *(f"{_GONE}{key}" for key in hidden[-gone:] if gone > 0)]
        parts = [part for part in parts if not part.startswith(_CALL) or part.removeprefix(_CALL) not in hidden]
        plans = self._tools.plans
        if plans != self._plans:
            self._plans = plans
            parts.append(_PLANS)
        return parts

    def part(self, name: str, run: Picture) -> str:
        if name.startswith(_CALL):
            return str(macro(_TEMPLATE, "line", self._tools.calls[name.removeprefix(_CALL)]))
        if name.startswith(_GONE):
            return str(macro(_TEMPLATE, "gone", name.removeprefix(_GONE)))
        if name == _EARLIER:
            return str(macro(_TEMPLATE, "earlier", self._earlier))
        return str(macro(_TEMPLATE, "plans", self._plans))

    def html(self, run: Picture) -> Markup:
        shown = list(self._tools.calls.values())[-MOST:]
        return macro(_TEMPLATE, "tools", shown, self._earlier, self._plans)

    @property
    def _earlier(self) -> int:
        return max(0, len(self._tools.calls) - MOST)

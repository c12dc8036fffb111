"""A reader of a run's stream, like a page: it receives events and has something to show."""

from __future__ import annotations

import re
from typing import Any

from tests.surfaces.web.served_app import Sse

_TEXT = re.compile(r'id="text-([^"]*)"')


class Reader:
    """The state of a reader of these events."""

    def __init__(self, events: list[Sse]) -> None:
        self.log: list[tuple[str, Any]] = []
        """Every event but the pieces of text."""
        self.tails: dict[str, str] = {}
        self.streamed: list[tuple[str, str]] = []
        """Each step's text as it had streamed when its output was shown."""
        for event in events:
            self.take(event)

    def take(self, event: Sse) -> None:
        step = event.data.get("step", "")
        if event.event == "step-content":
            self.tails[step] = self.tails.get(step, "") + event.data["content"]
            return
        if event.event == "step-block":
            return  # they depend on the pieces of text
        if event.event == "step-update" and "data-status" not in event.data["html"]:
            return  # other parts changed by a text; their pieces vary in size, as those of the text do
        self.log.append((event.event, event.data))
        if event.event == "step-rendered":
            self.streamed.append((step, self.tails.pop(step, "")))
        elif event.event == "step-update":
            for key in _TEXT.findall(event.data["html"]):
                self.tails[key] = ""

    @property
    def seen(self) -> tuple[Any, ...]:
        return self.log, self.streamed, {key: text for key, text in self.tails.items() if text}

"""A run's journal as plain JSON events: each entry as it is, and text as it streams."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.telling import Event


class Plain:
    """The teller for programs."""

    def skip(self, entry: Entry) -> None:
        pass

    def tell(self, entry: Entry) -> list[Event]:
        body: dict[str, Any] = msgspec.to_builtins(entry.event, enc_hook=str)
        kind = body.pop("is")
        return [Event(kind, {**_where(entry), "event": kind, "data": body})]

    def text(self, asked: Entry, text: str, sent: int) -> tuple[None, Event]:
        told = {"call": asked.seq, "offset": sent, "text": text[sent:]}
        return None, Event("TextChunk", {**_where(asked), "event": "TextChunk", "data": told})

    def again(self, asked: Entry) -> Event:
        return Event("TextReset", {**_where(asked), "event": "TextReset", "data": {"call": asked.seq}})


def _where(entry: Entry) -> dict[str, Any]:
    place = {"path": entry.place.path, "step": entry.place.step, "visit": entry.place.visit}
    return {"run": entry.run, "record": entry.seq, "at": entry.at, "place": place}

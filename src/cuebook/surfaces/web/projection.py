"""A run's journal as the events of its live page: names, payloads and order are those of the PLAYBOOK.md format.

For each step `step-update` (running), `step-content` as text arrives, `step-rendered`, `step-update` (completed), then
`variable-update`; in between `step-paused`, `elicitation` and `approval`; at the end `status`. What changes on the page
while no step does goes with the step that was begun last; before the first one, with its first event. What `html` holds
replaces the elements of the same ids, so that seeing it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cuebook.kernel.journal import Entry
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.web.cards import BUSY, Card
from cuebook.surfaces.web.changes import Changes
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.rendering import part
from cuebook.surfaces.web.telling import Event
from cuebook.surfaces.web.views import DialectView


class Untold:
    """What is to be drawn, and no event was sent with it yet."""

    def __init__(self) -> None:
        self.to_come: dict[Card, None] = {}
        self.gone: dict[Card, None] = {}
        self.noted: dict[Card, None] = {}
        self.names: dict[str, None] = {}
        """Of a view's parts."""
        self.run = False

    def __bool__(self) -> bool:
        return bool(self.to_come or self.gone or self.noted or self.names or self.run)

    def add(self, changes: Changes, names: Iterable[str]) -> None:
        for card in changes.gone:
            self.to_come.pop(card, None)
            self.noted.pop(card, None)
            self.gone[card] = None
        cards = (*changes.new, *changes.statuses, *changes.again)
        self.to_come |= {card: None for card in cards if card.status == "pending"}
        self.noted |= dict.fromkeys(changes.noted)
        self.names |= dict.fromkeys(names)
        self.run = self.run or changes.run


class Projection:
    """The teller of a run's page."""

    def __init__(self, picture: Picture, view: DialectView) -> None:
        self.picture = picture
        self.view = view
        self._untold = Untold()

    def skip(self, entry: Entry) -> None:
        changes = self._see(entry)
        for asked in changes.lost:
            self.view.hear(asked, "", 0)
        if self._goes_with(changes) is not None or changes.ended:
            self._untold = Untold()

    def tell(self, entry: Entry) -> list[Event]:
        return list(self._events(self._see(entry)))

    def text(self, asked: Entry, text: str, sent: int) -> tuple[Event | None, Event]:
        card = self.picture.card_at(asked.place)
        step = card.key if card is not None else ""
        html = self.view.hear(asked, text, sent)
        besides = Event("step-update", {"step": step, "html": html}) if html else None
        return besides, Event("step-content", {"step": step, "content": text[sent:]})

    def again(self, asked: Entry) -> Event:
        card = self.picture.card_at(asked.place)
        update = self._update(card, whole=True) if card is not None else Event("step-update", {"step": "", "html": ""})
        return _with(update, self.view.hear(asked, "", 0))

    def stand(self, *, interrupted: bool) -> Event | None:
        """What is to be drawn when whoever drove the run is gone, or somebody is at it again; None if it is as it was."""
        if self.picture.interrupted == interrupted:
            return None
        self.picture.interrupted = interrupted
        cards = [card for card in self.picture.order if card.status in BUSY]
        html = "".join(self._parts(card, whole=False) for card in cards) + self._run_parts()
        return Event("step-update", {"step": "", "html": html})

    # --- inside ---

    def _see(self, entry: Entry) -> Changes:
        changes = self.picture.apply(entry)
        self._untold.add(changes, self.view.see(entry, self.picture))
        return changes

    def _events(self, changes: Changes) -> Iterator[Event]:
        if changes.parted is not None:
            yield Event("step-content", {"step": changes.parted.key, "content": "\n\n"})
        if changes.rendered is not None:
            html = self._part("text", changes.rendered)
            yield Event("step-rendered", {"step": changes.rendered.key, "html": html})
        lost = "".join(self.view.hear(asked, "", 0) for asked in changes.lost)
        cards = self._goes_with(changes)
        if cards is not None:
            yield from self._updates(cards, changes, lost)
        for name, value, step in changes.values:
            yield Event("variable-update", {"name": name, "value": value, "step": step})
        if changes.opened is not None:
            yield self._asked(changes.opened)
        if changes.ended:
            besides = "" if cards is not None else self._besides(()) + lost
            yield Event("status", {"html": self._run_parts() + part("summary", self.picture) + besides})

    def _goes_with(self, changes: Changes) -> list[Card] | None:
        """The steps that have an event: those whose status changed, or else the one that anything else goes with.

        None where there is no event. A step that is to come has none of its own, and what changes before the first is begun
        waits for that; but nothing that asks a person waits.
        """
        changed = dict.fromkeys([*changes.new, *changes.statuses, *changes.again])
        cards = [card for card in changed if card.status != "pending"]
        if cards:
            return cards
        wait = changes.opened or changes.closed
        if changes.ended or not (wait or changes.lost or self._untold):
            return None
        if wait is not None:
            held = self.picture.card_at(wait.place) or self.picture.latest
            return [held] if held is not None else []
        latest = next(iter(changes.noted), self.picture.latest)
        return [latest] if latest is not None and latest.status != "pending" else None

    def _updates(self, cards: Sequence[Card], changes: Changes, lost: str) -> Iterator[Event]:
        """One for each of these steps; what else is to be drawn goes with the first."""
        wholes = {*changes.new, *changes.again, *self._untold.to_come}
        besides = self._besides(cards) + lost
        if not cards:
            yield Event("step-update", {"step": "", "html": self._run_parts() + besides})
        for card in cards:
            yield _with(self._update(card, whole=card in wholes), besides)
            besides = ""

    def _besides(self, cards: Sequence[Card]) -> str:
        """What was not told yet, as it is now; but for the steps that have their own events."""
        untold, self._untold = self._untold, Untold()
        there = {card.key for card in self.picture.order} if untold.gone else ()
        html = "".join(part("gone", card) for card in untold.gone if card.key not in there)
        html += "".join(self._parts(card, whole=True) for card in untold.to_come if card.status == "pending")
        html += "".join(self.view.part(name, self.picture) for name in untold.names)
        html += "".join(self._part("head", card) for card in untold.noted if card not in cards)
        return html + (part("summary", self.picture) if untold.run else "")

    def _update(self, card: Card, *, whole: bool) -> Event:
        html = self._parts(card, whole=whole) + self._run_parts()
        return Event("step-update", {"step": card.key, "html": html})

    def _parts(self, card: Card, *, whole: bool) -> str:
        """A step as it is now: all of it where it is new or begins again, otherwise what stands around its text."""
        names = ("card", "rail") if whole else ("head", "waits", "rail")
        return "".join(self._part(name, card) for name in names)

    def _part(self, name: str, card: Card) -> str:
        return part(name, card, self.picture)

    def _run_parts(self) -> str:
        return part("run_status", self.picture) + part("run_waits", self.picture)

    def _asked(self, wait: WaitRow) -> Event:
        card = self.picture.card_at(wait.place)
        step = card.key if card is not None else ""
        match wait.kind:
            case "question":
                asked: dict[str, Any] = {"type": wait.type, "prompt": wait.prompt, "options": list(wait.options)}
                return Event("elicitation", {"step": step, **asked})
            case "approval" | "in_doubt":
                shown: dict[str, Any] = {
                    name: wait.details[name] for name in ("summary", "preview") if name in wait.details
                }
                return Event(
                    "approval", {"step": step, "wait": wait.id, "kind": wait.kind, "prompt": wait.prompt, **shown}
                )
            case _:
                return Event("step-paused", {"step": step, "message": wait.prompt})


def _with(event: Event, html: str) -> Event:
    return Event(event.name, {**event.data, "html": event.data["html"] + html})

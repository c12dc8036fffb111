"""A run's journal as the events of its live page: names, payloads and order are those of the PLAYBOOK.md format.

For each step `step-update` (running), `step-content` as text arrives, `step-rendered`, `step-update` (completed), then
`variable-update`; in between `step-paused`, `elicitation` and `approval`; at the end `status`. What changes on the page
while no step does, as the steps to come, is our own `page-update`. What `html` holds replaces the elements of the same
ids, so that seeing it twice changes nothing.
"""

from __future__ import annotations

from typing import Any

from cuebook.kernel.journal import Entry
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.web.picture import Card, Changes, Picture
from cuebook.surfaces.web.rendering import part
from cuebook.surfaces.web.telling import Event
from cuebook.surfaces.web.views import DialectView


class Projection:
    """The teller of a run's page."""

    def __init__(self, picture: Picture, view: DialectView) -> None:
        self.picture = picture
        self.view = view

    def skip(self, entry: Entry) -> None:
        changes = self.picture.apply(entry)
        self.view.see(entry, self.picture)
        for asked in changes.lost:
            self.view.hear(asked, "", 0)

    def tell(self, entry: Entry) -> list[Event]:
        changes = self.picture.apply(entry)
        extra = "".join(self.view.part(name, self.picture) for name in self.view.see(entry, self.picture))
        extra += "".join(self.view.hear(asked, "", 0) for asked in changes.lost)
        return list(self._events(changes, extra))

    def text(self, asked: Entry, text: str, sent: int) -> Event:
        card = self.picture.card_at(asked.place)
        told = {"step": card.key if card is not None else "", "content": text[sent:]}
        html = self.view.hear(asked, text, sent)
        return Event("step-content", {**told, "html": html} if html else told)

    def again(self, asked: Entry) -> Event:
        card = self.picture.card_at(asked.place)
        update = self._update(card, whole=True) if card is not None else _page_update("")
        return _with(update, self.view.hear(asked, "", 0))

    # --- inside ---

    def _events(self, changes: Changes, extra: str) -> list[Event]:
        events: list[Event] = []
        if changes.parted is not None:
            events.append(Event("step-content", {"step": changes.parted.key, "content": "\n\n"}))
        if changes.rendered is not None:
            events.append(
                Event("step-rendered", {"step": changes.rendered.key, "html": self._part("text", changes.rendered)})
            )
        updates = self._updates(changes, extra)
        events += updates
        for name, value, step in changes.values:
            events.append(Event("variable-update", {"name": name, "value": value, "step": step}))
        if changes.opened is not None:
            events.append(self._asked(changes.opened))
        if changes.ended:
            besides = "" if updates else extra
            events.append(Event("status", {"html": self._run_parts() + part("summary", self.picture) + besides}))
        return events

    def _updates(self, changes: Changes, extra: str) -> list[Event]:
        """One for each step whose status changed; what else is to be drawn goes with the first, or by itself.

        A step that is still to come has no event of its own.
        """
        wholes = [*changes.new, *changes.again]
        changed = list(dict.fromkeys([*changes.new, *changes.statuses, *changes.again]))
        cards = [card for card in changed if card.status != "pending"]
        to_come = [card for card in changed if card.status == "pending"]
        if changes.closed is not None and not cards:
            held = self.picture.card_at(changes.closed.place)
            cards = [held] if held is not None else []
        besides = "".join(part("gone", card) for card in changes.gone)
        besides += "".join(self._parts(card, whole=card in wholes) for card in to_come) + extra
        besides += "".join(self._part("head", card) for card in changes.noted if card not in cards)
        if changes.run:
            besides += part("summary", self.picture)
        events = [self._update(card, whole=card in wholes) for card in cards]
        run = besides or changes.run or changes.closed is not None or changes.opened is not None
        if not events and run and not changes.ended:
            events = [_page_update(self._run_parts())]
        return [_with(events[0], besides), *events[1:]] if events else []

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


def _page_update(html: str) -> Event:
    """What changed on the page, while no step did."""
    return Event("page-update", {"html": html})


def _with(event: Event, html: str) -> Event:
    return Event(event.name, {**event.data, "html": event.data["html"] + html})

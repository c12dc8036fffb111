"""A run's journal as events, for its live page or as plain JSON.

The page's events have the names, payloads and order of the PLAYBOOK.md format: for each step `step-update` (running), `step-content`
as text arrives, `step-rendered`, `step-update` (completed), then `variable-update`; in between `step-paused`,
`elicitation` and `approval`; at the end `status`. `step-block` is an addition: the blocks of streaming Markdown that are complete, rendered,
and the rest of the text. A change that belongs to no step is sent with the step that began last,
and before the first step with its first event. The elements in `html` replace those with the same ids, so an event that
arrives twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cuebook.kernel.journal import Entry
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.web.live.blocks import Blocks
from cuebook.surfaces.web.live.cards import BUSY, Card
from cuebook.surfaces.web.live.run_page import Changes, Picture
from cuebook.surfaces.web.live.stream import Event
from cuebook.surfaces.web.pages.render import part
from cuebook.surfaces.web.panels import RunPanels


class Pending:
    """Changes that have not been sent with any event yet."""

    def __init__(self) -> None:
        self.to_come: dict[Card, None] = {}
        self.gone: dict[Card, None] = {}
        self.noted: dict[Card, None] = {}
        self.names: dict[str, None] = {}
        """Names of panel parts."""
        self.calls: dict[str, Card | None] = {}
        self.plans: dict[Card, None] = {}
        self.run = False

    def __bool__(self) -> bool:
        return bool(self.to_come or self.gone or self.noted or self.names or self.calls or self.plans or self.run)

    def add(self, changes: Changes, names: Iterable[str]) -> None:
        for card in changes.gone:
            self.to_come.pop(card, None)
            self.noted.pop(card, None)
            self.gone[card] = None
        cards = (*changes.new, *changes.statuses, *changes.again)
        self.to_come |= {card: None for card in cards if card.status == "pending"}
        self.noted |= dict.fromkeys(changes.noted)
        self.names |= dict.fromkeys(names)
        self.calls |= changes.calls
        self.plans |= dict.fromkeys(changes.plans)
        self.run = self.run or changes.run


class PageEvents:
    """Encodes the journal for the page of a run."""

    def __init__(self, picture: Picture, panels: RunPanels) -> None:
        self.picture = picture
        self.panels = panels
        self._pending = Pending()
        self._texts: dict[int, Blocks] = {}
        """The streaming texts, by the record of each call, with the text of earlier calls in the same step."""
        self._blocks: dict[Card, int] = {}
        """How many rendered blocks of each step this reader has been sent."""

    def skip(self, entry: Entry) -> None:
        changes = self._see(entry)
        for asked in changes.lost:
            self.panels.stream(asked, "", 0)
        if self._steps_for(changes) is not None or changes.ended:
            self._pending = Pending()

    def encode(self, entry: Entry) -> list[Event]:
        return list(self._events(self._see(entry)))

    def text(self, asked: Entry, text: str, sent: int) -> tuple[Event | None, Event]:
        card = self.picture.card_at(asked.place)
        step = card.key if card is not None else ""
        html = self.panels.stream(asked, text, sent)
        others = Event("step-update", {"step": step, "html": html}) if html else None
        return others, Event("step-content", {"step": step, "content": text[sent:]})

    def blocks(self, asked: Entry, text: str, sent: int) -> tuple[Event, int] | None:
        card = self.picture.card_at(asked.place)
        if card is None:
            return None
        whole = card.before_text + text
        if card.output is not None:  # the text chooses the next step
            return None
        ends = self._texts.setdefault(asked.seq, Blocks()).read(whole)
        first = max(sent, self._blocks.get(card, 0))
        if len(ends) <= first or self.picture.streams(card) > 1:  # concurrent texts are mixed
            return None
        html = "".join(
            part("block", card, number, whole[([0, *ends])[number] : ends[number]])
            for number in range(first, len(ends))
        )
        self._blocks[card] = len(ends)
        return Event("step-block", {"step": card.key, "html": html, "first": first, "rest": whole[ends[-1] :]}), len(
            ends
        )

    def restart(self, asked: Entry) -> Event:
        card = self.picture.card_at(asked.place)
        self._texts.pop(asked.seq, None)
        update = self._update(card, whole=True) if card is not None else Event("step-update", {"step": "", "html": ""})
        return _with(update, self.panels.stream(asked, "", 0))

    def interrupt(self, *, interrupted: bool, waits_for: str = "") -> Event | None:
        """The event for a run that is no longer driven, or is driven again; None if nothing changed."""
        if (self.picture.interrupted, self.picture.waits_for) == (interrupted, waits_for):
            return None
        self.picture.interrupted, self.picture.waits_for = interrupted, waits_for
        cards = [card for card in self.picture.at_work if card.status in BUSY]
        html = "".join(self._parts(card, whole=False) for card in cards) + self._run_parts()
        return Event("step-update", {"step": "", "html": html})

    # --- inside ---

    def _see(self, entry: Entry) -> Changes:
        changes = self.picture.apply(entry)
        self._pending.add(changes, self.panels.see(entry, self.picture))
        return changes

    def _events(self, changes: Changes) -> Iterator[Event]:
        if changes.parted is not None:
            yield Event("step-content", {"step": changes.parted.key, "content": "\n\n"})
        if changes.rendered is not None:
            html = self._part("text", changes.rendered)
            yield Event("step-rendered", {"step": changes.rendered.key, "html": html})
        lost = "".join(self.panels.stream(asked, "", 0) for asked in changes.lost)
        cards = self._steps_for(changes)
        if cards is not None:
            yield from self._updates(cards, changes, lost)
        for name, value, step in changes.values:
            yield Event("variable-update", {"name": name, "value": value, "step": step})
        if changes.opened is not None:
            yield self._asked(changes.opened)
        if changes.ended:
            others = "" if cards is not None else self._others(()) + lost
            yield Event("status", {"html": self._run_parts() + self._end_parts() + others})

    def _steps_for(self, changes: Changes) -> list[Card] | None:
        """The steps that get an event: those whose status changed, or else the step that other changes are sent with.

        None if there is no event. A pending step gets no event, and changes before the first step are sent with that step,
        except for questions to a person.
        """
        changed = dict.fromkeys([*changes.new, *changes.statuses, *changes.again])
        cards = [card for card in changed if card.status != "pending"]
        if cards:
            return cards
        wait = changes.opened or changes.closed
        if changes.ended or not (wait or changes.lost or self._pending):
            return None
        if wait is not None:
            held = self.picture.card_at(wait.place) or self.picture.latest
            return [held] if held is not None else []
        latest = next(iter(changes.noted), self.picture.latest)
        return [latest] if latest is not None and latest.status != "pending" else None

    def _updates(self, cards: Sequence[Card], changes: Changes, lost: str) -> Iterator[Event]:
        """One event for each of these steps; the first one also carries all other pending changes."""
        wholes = {*changes.new, *changes.again, *self._pending.to_come}
        others = self._others(cards) + lost
        if not cards:
            yield Event("step-update", {"step": "", "html": self._run_parts() + others})
        for card in cards:
            yield _with(self._update(card, whole=card in wholes), others)
            others = ""

    def _others(self, cards: Sequence[Card]) -> str:
        """The pending changes as HTML, except for the steps that have their own events."""
        pending, self._pending = self._pending, Pending()
        there = {card.key for card in self.picture.order} if pending.gone else ()
        called = [(key, card) for key, card in pending.calls.items() if card is None or card not in pending.to_come]
        html = "".join(part("gone", card) for card in pending.gone if card.key not in there)
        html += "".join(self._parts(card, whole=True) for card in pending.to_come if card.status == "pending")
        html += "".join(self.panels.part(name, self.picture) for name in pending.names)
        html += "".join(self._part("head", card) for card in pending.noted if card not in cards)
        html += "".join(
            part("gone_call", key) if card is None else part("call", card.calls[key], card) for key, card in called
        )
        html += "".join(part("plan", card) for card in pending.plans)
        return html + (self._end_parts() if pending.run else "")

    def _update(self, card: Card, *, whole: bool) -> Event:
        html = self._parts(card, whole=whole) + self._run_parts()
        return Event("step-update", {"step": card.key, "html": html})

    def _parts(self, card: Card, *, whole: bool) -> str:
        """A step as HTML: all of it if it is new or starts again, otherwise all but its text."""
        names = ("card", "rail") if whole else ("head", "waits", "rail")
        if whole:
            self._blocks.pop(card, None)
        return "".join(self._part(name, card) for name in names)

    def _part(self, name: str, card: Card) -> str:
        return part(name, card, self.picture)

    def _run_parts(self) -> str:
        allowed = part("allowed", self.picture) if self.picture.overrides else ""
        items = part("items", self.picture) if self.picture.loops.is_long else ""
        names = ("run_status", "run_actions", "run_waits", "to_come")
        return "".join(part(name, self.picture) for name in names) + allowed + items

    def _end_parts(self) -> str:
        return part("outcome", self.picture) + part("summary", self.picture)

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


class JsonEvents:
    """Encodes the journal for programs: each entry unchanged, and text as it streams."""

    def skip(self, entry: Entry) -> None:
        pass

    def encode(self, entry: Entry) -> list[Event]:
        body: dict[str, Any] = msgspec.to_builtins(entry.event, enc_hook=str)
        kind = body.pop("is")
        return [Event(kind, {**_where(entry), "event": kind, "data": body})]

    def text(self, asked: Entry, text: str, sent: int) -> tuple[None, Event]:
        body = {"call": asked.seq, "offset": sent, "text": text[sent:]}
        return None, Event("TextChunk", {**_where(asked), "event": "TextChunk", "data": body})

    def blocks(self, asked: Entry, text: str, sent: int) -> None:
        return None

    def restart(self, asked: Entry) -> Event:
        return Event("TextReset", {**_where(asked), "event": "TextReset", "data": {"call": asked.seq}})


def _where(entry: Entry) -> dict[str, Any]:
    place = {"path": entry.place.path, "step": entry.place.step, "visit": entry.place.visit}
    return {"run": entry.run, "record": entry.seq, "at": entry.at, "place": place}

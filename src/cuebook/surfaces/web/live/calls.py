"""The tool calls and the plans of models, in the cards of their steps. No HTML here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuebook.kernel.journal import Entry, Place
from cuebook.service.runs.tool_calls import ToolCalls
from cuebook.surfaces.web.live.cards import Card

if TYPE_CHECKING:
    from cuebook.surfaces.web.live.run_page import Picture

MOST = 200
"""Number of calls to show, so that the page of a long run stays readable."""
LONGEST = 8_000
"""Number of characters of a result to show."""


class ShownCalls:
    """The calls that a run's page shows: the latest."""

    def __init__(self) -> None:
        self._tools = ToolCalls(LONGEST)
        self._cards: dict[str, Card] = {}
        """The cards of the calls, by the keys of the calls."""
        self._versions = 0

    def see(self, entry: Entry, run: Picture) -> tuple[dict[str, Card | None], list[Card]]:
        """Apply an entry. Returns the keys of calls that are new or changed, each with its card, or None if it is not shown any
        more; and the cards whose plan changed, or the number of their earlier calls.
        """
        changed: dict[str, Card | None] = {}
        for key in self._tools.see(entry):
            call = self._tools.calls.get(key)
            card = self._cards.get(key)
            if card is None and call is not None:
                card = run.card_at(Place(call.path, call.step, call.visit))
            if card is None:
                continue
            if call is None:
                del card.calls[key], self._cards[key]
                changed[key] = None
            else:
                card.calls[key], self._cards[key], changed[key] = call, card, card
        plans = [self._hide(changed) for _ in range(len(self._cards) - MOST)]
        return changed, plans + self._plans(entry, run)

    def forget(self, card: Card) -> None:
        """Its calls are not shown any more."""
        for key in card.calls:
            self._cards.pop(key, None)
        card.calls.clear()

    def _hide(self, changed: dict[str, Card | None]) -> Card:
        first = next(iter(self._cards))
        card = self._cards.pop(first)
        del card.calls[first]
        card.hidden_calls += 1
        changed[first] = None
        return card

    def _plans(self, entry: Entry, run: Picture) -> list[Card]:
        if self._tools.plan_versions == self._versions:
            return []
        self._versions = self._tools.plan_versions
        plans = {plan.step: plan for plan in self._tools.plans}
        here, changed = run.card_at(entry.place), []
        for card in run:
            plan = plans.get(card.row.label) if card.plan is not None or card is here else None
            if plan != card.plan:
                card.plan = plan
                changed.append(card)
        return changed

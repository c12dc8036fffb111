"""The items of loops on a run's page: counted as they come, so that a long loop can be folded. No HTML here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cuebook.kernel.journal import ROOT, parent_key
from cuebook.service.runs.items import FAILED, SHORT, counted_words, loop_of
from cuebook.surfaces.web.live.cards import Card

MOST_FAILURES = 20
"""How many failed items of a loop are listed with it."""
_MOST_LOOPS = 10
_FIRST = (*FAILED, "awaiting_approval", "awaiting_input", "paused", "tool_call", "running", "completed", "skipped")
"""The statuses of a step's items, the one that matters most first."""


class LoopCount:
    """The items of one loop."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.counts: Counter[str] = Counter()
        self.failed: dict[Card, None] = {}

    @property
    def words(self) -> str:
        return counted_words(self.counts)

    @property
    def failures(self) -> list[Card]:
        return list(self.failed)[:MOST_FAILURES]


class Loops:
    """All loops of a run."""

    def __init__(self) -> None:
        self._loops: dict[tuple[str, str, int], LoopCount] = {}
        self._statuses: dict[str, Counter[str]] = {}
        self._inside = 0
        """How many steps belong to items."""

    def count(self, card: Card, by: int) -> None:
        """Counts a card with its status; with -1, no longer."""
        if card.row.path == ROOT:
            return
        status = card.row.status
        self._inside += by if card.in_loop else 0
        self._statuses.setdefault(card.row.label.partition("[")[0], Counter())[status] += by
        label = loop_of(card.row)
        if not label:
            return
        loop = self._loops.setdefault(parent_key(card.row.path)[:3], LoopCount(label))
        loop.counts[status] += by
        if by < 0:
            loop.failed.pop(card, None)
        elif status in FAILED:
            loop.failed[card] = None

    @property
    def is_long(self) -> bool:
        """Whether there are so many steps of items that those that are over are folded."""
        return self._inside > SHORT

    def status(self, step: str) -> str:
        """The status of a step in all items together, or in its branch; empty if it is in neither."""
        found = self._statuses.get(step, Counter())
        return next((status for status in _FIRST if found.get(status)), "")

    def __iter__(self) -> Iterator[LoopCount]:
        long = sorted(self._loops.values(), key=lambda loop: -loop.counts.total())
        yield from [loop for loop in long if loop.counts.total()][:_MOST_LOOPS]

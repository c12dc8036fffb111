"""Counts what happens to the runs of this process, in plain numbers: nothing here costs more than a few dictionary look-ups.

`metrics` turns them into a text for Prometheus when it is scraped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.kernel.events import (
    Driven,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    Performing,
    RunFinished,
    RunStarted,
    StepFinished,
    Suspended,
    TextChunk,
    TextReset,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import Entry, Key
from cuebook.kernel.outcomes import Failed, Reply, Usage
from cuebook.kernel.run import RunRow

OTHER = "other"
"""The label of all names beyond the limit."""
MOST_PLAYBOOKS, MOST_MODELS = 100, 50
_MOST_RUNS = 10_000
"""Runs whose effects are timed at the same time."""

Labels = tuple[str, ...]


class Counter:
    """Numbers that only grow, by the values of their labels."""

    def __init__(self, *labels: str) -> None:
        self.labels = labels
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + by


class Histogram:
    """How many values were at most so large, by the values of their labels."""

    def __init__(self, *labels: str, bounds: tuple[float, ...]) -> None:
        self.labels = labels
        self.bounds = bounds
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def see(self, value: float, *labels: str) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value


class Names:
    """The first names that were seen, up to a limit; all later ones are called `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LONG = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class Meters:
    """An observer of an engine."""

    def __init__(self, row_of: Callable[[str], RunRow | None]) -> None:
        """`row_of` returns the row of a run that this process drives."""
        self._row_of = row_of
        self._playbooks, self._models, self._providers = Names(MOST_PLAYBOOKS), Names(MOST_MODELS), Names(MOST_MODELS)
        self._began: dict[str, dict[Key, float]] = {}
        """When each effect in progress began, by run and place."""
        self.started = Counter("playbook", "trigger")
        self.ended = Counter("playbook", "status")
        self.drives = Counter()
        self.suspended = Counter("status")
        self.run_seconds = Histogram("status", bounds=_LONG)
        self.steps = Counter("status")
        self.step_seconds = Histogram(bounds=_LONG)
        self.effects = Counter("kind", "outcome")
        self.effect_seconds = Histogram("kind", bounds=_LONG)
        self.calls = Counter("model")
        self.tokens = Counter("model", "type")
        self.cost = Counter("model")
        self.unknown_costs = Counter("model")
        self.attempts = Counter("provider", "reason")
        self.fallbacks = Counter("provider")
        self.limited = Counter("provider")
        self.waits_opened = Counter("kind")
        self.waits_closed = Counter("kind", "how")
        self.commit_seconds = Histogram(bounds=_SHORT)
        self.events = Counter("event")
        self.messages = Counter("level")
        self.job_failures = Counter("kind")

    def see(self, seen: Entry | TextChunk | TextReset) -> None:
        if isinstance(seen, Entry):
            count = _COUNTED.get(type(seen.event))
            if count is not None:
                count(self, seen, seen.event)

    # --- runs ---

    def _started(self, entry: Entry, event: RunStarted | Forked) -> None:
        self.started.add(self._playbooks.label(event.name), event.trigger.partition(":")[0])

    def _driven(self, entry: Entry, event: Driven) -> None:
        self.drives.add()
        self._began.pop(entry.run, None)  # an earlier drive may have been cut off

    def _suspended(self, entry: Entry, event: Suspended) -> None:
        self.suspended.add(event.status)
        self._began.pop(entry.run, None)

    def _finished(self, entry: Entry, event: RunFinished) -> None:
        self._began.pop(entry.run, None)
        row = self._row_of(entry.run)
        self.ended.add("" if row is None else self._playbooks.label(row.name), event.status)
        if row is not None:
            self.run_seconds.see(row.totals.seconds, event.status)

    # --- steps and effects ---

    def _step(self, entry: Entry, event: StepFinished) -> None:
        self.steps.add(event.status)
        self.step_seconds.see(event.seconds)

    def _begun(self, entry: Entry, event: Performing | ModelAsked) -> None:
        if len(self._began) >= _MOST_RUNS and entry.run not in self._began:
            self._began.clear()
        self._began.setdefault(entry.run, {})[entry.place.key] = entry.at

    def _performed(self, entry: Entry, event: Performed) -> None:
        kind, outcome = event.fingerprint.partition(" ")[0], event.outcome
        failed = isinstance(outcome, Failed)
        self.effects.add(kind, "failed" if failed else "done")
        began = self._began.get(entry.run, {}).pop(entry.place.key, None)
        if began is not None:
            self.effect_seconds.see(max(0.0, entry.at - began), kind)
        if isinstance(outcome, Reply):
            self._count(outcome.model, outcome.usage)
        elif isinstance(outcome, Failed) and outcome.details.get("usage"):  # a reply that was refused
            self._count(str(outcome.details.get("model", "")), msgspec.convert(outcome.details["usage"], Usage))

    def _asked(self, entry: Entry, event: ModelAsked) -> None:
        self._begun(entry, event)
        if entry.place.attempt > 1 and not event.free:  # the outcome of the earlier attempt was lost
            self.unknown_costs.add(self._models.label(event.model))

    def _count(self, name: str, usage: Usage) -> None:
        model = self._models.label(name)
        self.calls.add(model)
        for kind in ("input", "output", "cached", "reasoning"):
            if amount := getattr(usage, kind):
                self.tokens.add(model, kind, by=amount)
        if usage.cost is None:
            self.unknown_costs.add(model)
        else:
            self.cost.add(model, by=usage.cost)

    def _noted(self, entry: Entry, event: Noted) -> None:
        data = event.data
        provider = self._providers.label(str(data.get("model") or data.get("provider") or "").partition("/")[0])
        match event.name:
            case "model_attempt":
                self.attempts.add(provider, str(data.get("kind", "")))
            case "model_fallback":
                self.fallbacks.add(provider)
            case "model_waiting":
                self.limited.add(provider)

    # --- waits ---

    def _opened(self, entry: Entry, event: WaitOpened) -> None:
        self.waits_opened.add(event.kind)

    def _closed(self, entry: Entry, event: WaitClosed) -> None:
        self.waits_closed.add(event.kind, event.how)


_COUNTED: dict[type, Callable[[Meters, Entry, Any], None]] = {
    RunStarted: Meters._started,
    Forked: Meters._started,
    Driven: Meters._driven,
    Suspended: Meters._suspended,
    RunFinished: Meters._finished,
    StepFinished: Meters._step,
    Performing: Meters._begun,
    ModelAsked: Meters._asked,
    Performed: Meters._performed,
    Noted: Meters._noted,
    WaitOpened: Meters._opened,
    WaitClosed: Meters._closed,
}

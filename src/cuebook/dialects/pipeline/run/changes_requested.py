"""Requests for changes: an approver sends the run back to an earlier step, with feedback. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.dialects.people import feedback_of
from cuebook.dialects.pipeline.model import Step
from cuebook.kernel.outcomes import Failed


class Requests:
    """The requests so far: how many at each approval, and how often each step was done again."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._places = {step.id: number for number, step in enumerate(steps)}
        self._steps = steps
        self._made: dict[str, int] = {}
        self._rounds: dict[str, int] = {}
        self.latest: dict[str, Any] = {}
        """The latest request: feedback, by, step (where it went), count."""

    def at(self, step: Step) -> int:
        return self._made.get(step.id, 0)

    def visit(self, step: Step) -> int:
        """The number of the current visit to a step."""
        return self._rounds.get(step.id, 0) + 1

    def take(self, step: Step, failed: Failed) -> int:
        """Notes a request at the approval of a step; returns the index of the step that is next."""
        asked = feedback_of(failed)
        assert asked is not None
        to = asked.to
        first, last = self._places[to], self._places[step.id]
        self._made[step.id] = self.at(step) + 1
        for one in self._steps[first : last + 1]:
            self._rounds[one.id] = self._rounds.get(one.id, 0) + 1
        count = sum(self._made.values())
        self.latest = {"feedback": asked.text, "by": asked.by, "step": to, "count": count}
        return first

    def plain(self) -> dict[str, Any]:
        """Everything for a checkpoint; empty if no changes were requested."""
        return {"made": self._made, "rounds": self._rounds, "latest": self.latest} if self._made else {}

    def restore(self, kept: Mapping[str, Any]) -> None:
        self._made, self._rounds = dict(kept.get("made", {})), dict(kept.get("rounds", {}))
        self.latest = dict(kept.get("latest", {}))


def needed_again(steps: Sequence[Step], needed: Mapping[str, int]) -> dict[str, int]:
    """The index of the last step that may need each result, if approvals can send the run back to earlier steps."""
    places = {step.id: number for number, step in enumerate(steps)}
    found = dict(needed)
    for last, step in enumerate(steps):
        to = step.asked.rule.changes if step.asked is not None else ()
        first = min((places[name] for name in to if name in places), default=last)
        found |= {name: last for name, number in found.items() if first <= number < last}
    return found

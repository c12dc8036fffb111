"""The progress of a pipeline run, saved in regular checkpoints to keep resuming cheap.

It keeps only the last result and the results that later steps refer to, so the cost of a step does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.run.resolve import Scope, referred
from cuebook.dialects.pipeline.run.results import Facts, Result
from cuebook.kernel.effects import Checkpoint

STRETCH = 64
"""Minimum number of steps between two checkpoints. If more results than that are kept, their number is the minimum, so the
checkpoint cost per step stays constant.
"""


class Progress:
    """The next step, and the results of the steps before it."""

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, Any]) -> None:
        self.scope = Scope(pipeline, inputs)
        self.number = 0
        """The index of the next step."""
        self.last = ""
        """The last step that produced output."""
        self.hinting = {step.id: step for step in pipeline.steps if step.rollback_hint}
        """The steps with a rollback_hint."""
        self.undoable: list[str] = []
        """The completed steps with a rollback_hint."""
        self._inputs = dict(inputs)
        self.referred = {step.id: referred(step) for step in pipeline.steps}
        """The steps that each step refers to."""
        self._needed = {name: number for number, step in enumerate(pipeline.steps) for name in self.referred[step.id]}
        """The index of the last step that refers to each step."""
        self._leaving: dict[int, list[str]] = {}
        for name, number in self._needed.items():
            self._leaving.setdefault(number, []).append(name)
        self._since = 0

    def keep(self, step: Step, result: Result) -> None:
        """Keeps the result of a step, and drops results that no later step refers to."""
        number, results = self.number, self.scope.results
        self.number += 1
        self._since += 1
        results[step.id] = result
        if step.id in self.hinting and not result.facts.skipped and not result.facts.error:
            self.undoable.append(step.id)
        leaving = list(self._leaving.get(number, ()))
        if len(result.text):
            leaving.append(self.last)
            self.last = step.id
        leaving.append(step.id)
        for name in leaving:
            if name != self.last and self._needed.get(name, -1) <= number:
                results.pop(name, None)

    @property
    def wants_checkpoint(self) -> bool:
        return self._since >= max(STRETCH, len(self.scope.results), len(self.undoable))

    def checkpoint(self) -> Checkpoint:
        """Everything needed to continue at the next step. Long text is stored by reference."""
        self._since = 0
        results = self.scope.results
        changed = {name: value for name, value in self.scope.args.items() if self._inputs.get(name, self) != value}
        state = {
            "number": self.number,
            "last": self.last,
            "undoable": self.undoable,
            "args": changed,
            "results": {name: msgspec.to_builtins(result.facts) for name, result in results.items()},
        }
        return Checkpoint(state, tuple(result.text for result in results.values()))

    def restore(self, state: Any) -> None:
        """Restores the state of a checkpoint."""
        kept, texts = state if isinstance(state, tuple | list) else (state, ())
        self.number, self.last = kept["number"], kept["last"]
        self.undoable = list(kept.get("undoable", ()))
        self.scope.args.update(kept["args"])
        for (name, facts), text in zip(kept["results"].items(), texts, strict=True):
            self.scope.results[name] = Result(text, msgspec.convert(facts, Facts))

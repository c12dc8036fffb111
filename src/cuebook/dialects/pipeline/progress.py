"""How far a run of a pipeline has come. Its state is kept by a checkpoint now and then, so that resuming stays cheap.

Only results that a later step refers to are kept, and the last one: the cost of a step does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.resolve import Scope, referred
from cuebook.dialects.pipeline.results import Facts, Result
from cuebook.kernel.effects import Checkpoint

STRETCH = 64
"""Steps between two checkpoints, at least. Where more results are kept, as many steps as there are: so all checkpoints
together cost each step the same.
"""


class Progress:
    """Which step is next, and what those before it came to."""

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, Any]) -> None:
        self.scope = Scope(pipeline, inputs)
        self.number = 0
        """Of the step that is next."""
        self.last = ""
        """The last step that gave an output."""
        self.hinting = {step.id: step for step in pipeline.steps if step.rollback_hint}
        """The steps that say how they are undone."""
        self.undoable: list[str] = []
        """The steps that were done and say how a person undoes them."""
        self._inputs = dict(inputs)
        self.referred = {step.id: referred(step) for step in pipeline.steps}
        """The steps that each step refers to."""
        self._needed = {name: number for number, step in enumerate(pipeline.steps) for name in self.referred[step.id]}
        """The last step that refers to each."""
        self._leaving: dict[int, list[str]] = {}
        for name, number in self._needed.items():
            self._leaving.setdefault(number, []).append(name)
        self._since = 0

    def keep(self, step: Step, result: Result) -> None:
        """Takes in what came of a step, and lets go of what nobody refers to any more."""
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
        """Everything that a new beginning at the next step needs. Long texts are kept by reference."""
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
        """Goes back to a checkpoint."""
        kept, texts = state if isinstance(state, tuple | list) else (state, ())
        self.number, self.last = kept["number"], kept["last"]
        self.undoable = list(kept.get("undoable", ()))
        self.scope.args.update(kept["args"])
        for (name, facts), text in zip(kept["results"].items(), texts, strict=True):
            self.scope.results[name] = Result(text, msgspec.convert(facts, Facts))

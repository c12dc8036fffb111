"""The progress of a pipeline run, saved in regular checkpoints to keep resuming cheap.

It keeps only the last result and the results that later steps refer to, so the cost of a step does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.run.action import hint_of
from cuebook.dialects.pipeline.run.changes_requested import Requests, needed_again
from cuebook.dialects.pipeline.run.resolve import Scope, referred, refs, undo_refs
from cuebook.dialects.pipeline.run.results import Facts, Result
from cuebook.kernel.browsing import Trail
from cuebook.kernel.effects import Checkpoint
from cuebook.kernel.outcomes import Failed

STRETCH = 64
"""Minimum number of steps between two checkpoints. If more results than that are kept, their number is the minimum, so the
checkpoint cost per step stays constant.
"""


class Progress:
    """The next step, and the results of the steps before it."""

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, Any]) -> None:
        self.scope = Scope(pipeline, inputs)
        self.pipeline = pipeline
        self._steps = pipeline.steps
        self.number = 0
        """The index of the next step."""
        self.last = ""
        """The last step that produced output."""
        self.hinting = {step.id: step for step in pipeline.steps if step.rollback_hint}
        """The steps with a rollback_hint."""
        self.undoable: list[str] = []
        """The completed steps with a rollback_hint."""
        self.to_undo: list[str] = []
        """The completed steps with a rollback, each once, the last one last."""
        self._by_id = {step.id: step for step in pipeline.steps}
        self._for_undo = {name for step in pipeline.steps for name in undo_refs(step)}
        """The steps whose results a rollback needs."""
        self._inputs = dict(inputs)
        self.referred = {step.id: referred(step) for step in pipeline.steps}
        """The steps that each step refers to."""
        self._needed = {name: number for number, step in enumerate(pipeline.steps) for name in self.referred[step.id]}
        """The index of the last step that refers to each step."""
        self._needed = needed_again(pipeline.steps, self._needed)
        self._needed |= dict.fromkeys(self._for_undo, len(pipeline.steps))
        self.requests = Requests(pipeline.steps)
        self._leaving: dict[int, list[str]] = {}
        for name, number in self._needed.items():
            self._leaving.setdefault(number, []).append(name)
        self._read = {(ref.step, str(ref.path[0])) for step in pipeline.steps for ref in refs(step)}
        """The fields of results that steps refer to."""
        self._since = 0

    def keep(self, step: Step, result: Result) -> None:
        """Keeps the result of a step, and drops results that no later step refers to."""
        number, results = self.number, self.scope.results
        self.number += 1
        self._since += 1
        results[step.id] = result
        if step.id in self.hinting and not result.facts.skipped and not result.facts.error:
            self.undoable.append(step.id)
        if step.rollback is not None and not result.facts.skipped and not result.facts.error:
            self.to_undo = [*(name for name in self.to_undo if name != step.id), step.id]
        leaving = list(self._leaving.get(number, ()))
        if len(result.text):
            leaving.append(self.last)
            self.last = step.id
        leaving.append(step.id)
        for name in leaving:
            if name != self.last and self._needed.get(name, -1) <= number:
                results.pop(name, None)

    def go_back(self, step: Step, failed: Failed) -> None:
        """Continues at the step to which an approver sent the run back; later results are void."""
        order = [one.id for one in self._steps]
        self.number = self.requests.take(step, failed)
        results, before = self.scope.results, set(order[: self.number])
        for name in [name for name in results if name not in before and name not in self._for_undo]:
            del results[name]
        earlier = order[: self.number][::-1]
        self.last = next((name for name in earlier if name in results and len(results[name].text)), "")
        self.scope.changes = self.requests.latest

    # --- for rollbacks ---

    def rollback_of(self, name: str) -> Step | None:
        return self._by_id[name].rollback

    def place_of(self, name: str) -> int:
        return next(number for number, step in enumerate(self._steps) if step.id == name)

    def visit_of(self, name: str) -> int:
        return self.requests.visit(self._by_id[name])

    def hint_of(self, name: str) -> str:
        return hint_of(self._by_id[name], self.scope)

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
            "results": {name: msgspec.to_builtins(self._kept_facts(name, one)) for name, one in results.items()},
        }
        if self.scope.trail.page:
            state["trail"] = msgspec.to_builtins(self.scope.trail)
        texts = tuple(result.text for result in results.values())
        scope = self.scope
        more = {"run": {**scope.run}, "state": {**scope.state}, "previous": {}, "changes": self.requests.plain()}
        more["to_undo"] = self.to_undo  # type: ignore[assignment]
        more["run"].pop("id", None)
        for name, result in scope.previous.items():
            more["previous"][name] = None if result is None else msgspec.to_builtins(result.facts)
            texts += () if result is None else (result.text,)
        return Checkpoint({**state, **{name: value for name, value in more.items() if value}}, texts)

    def _kept_facts(self, name: str, result: Result) -> Facts:
        """The facts of a result, without error output and headers that no step refers to."""
        if not result.facts.stderr and not result.facts.headers:
            return result.facts
        unused: dict[str, Any] = {
            field: empty for field, empty in (("stderr", ""), ("headers", {})) if (name, field) not in self._read
        }
        return msgspec.structs.replace(result.facts, **unused)

    def restore(self, state: Any) -> None:
        """Restores the state of a checkpoint."""
        kept, texts = state if isinstance(state, tuple | list) else (state, ())
        self.number, self.last = kept["number"], kept["last"]
        self.undoable = list(kept.get("undoable", ()))
        self.scope.args.update(kept["args"])
        self.scope.trail = msgspec.convert(kept.get("trail", {}), Trail)
        self.scope.run.update(kept.get("run", {}))
        self.scope.state.update(kept.get("state", {}))
        self.to_undo = list(kept.get("to_undo", ()))
        self.requests.restore(kept.get("changes", {}))
        self.scope.changes = self.requests.latest
        previous = kept.get("previous", {})
        self.scope.previous.update(dict.fromkeys(name for name, facts in previous.items() if facts is None))
        named: list[tuple[dict[str, Any], str, Any]] = [
            *((self.scope.results, name, facts) for name, facts in kept["results"].items()),
            *((self.scope.previous, name, facts) for name, facts in previous.items() if facts is not None),
        ]
        for (results, name, facts), text in zip(named, texts, strict=True):
            results[name] = Result(text, msgspec.convert(facts, Facts))

"""The progress of a list of steps, saved in regular checkpoints to keep resuming cheap.

It keeps only the last result and the results that later steps refer to, so the cost of a step does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.people import feedback_of
from cuebook.dialects.pipeline.model import Pipeline, Reaction, Step
from cuebook.dialects.pipeline.run.action import Given
from cuebook.dialects.pipeline.run.changes_requested import Requests, needed_again
from cuebook.dialects.pipeline.run.resolve import Scope, own_refs, referred, refs, undo_refs
from cuebook.dialects.pipeline.run.results import Facts, Result
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Checkpoint
from cuebook.kernel.outcomes import Failed

STRETCH = 64
"""Minimum number of steps between two checkpoints. If more results than that are kept, their number is the minimum, so the
checkpoint cost per step stays constant.
"""


class Outline:
    """A list of steps, and how long the result of each is needed."""

    def __init__(self, steps: Sequence[Step], exported: Iterable[str] = ()) -> None:
        """`exported` are the steps inside it whose results are needed after the list."""
        self.steps = tuple(steps)
        self.exported = tuple(exported)
        self.hinting = {step.id: step for step in self.steps if step.rollback_hint}
        """The steps with a rollback_hint."""
        self.referred = {step.id: referred(step) for step in self.steps}
        """The steps that each step refers to."""
        self.needed = {name: number for number, step in enumerate(self.steps) for name in self.referred[step.id]}
        """The index of the last step that refers to each step."""
        self.needed = needed_again(self.steps, self.needed)
        self.for_undo = {name for step in _below(self.steps) for name in undo_refs(step)}
        """The steps whose results a rollback needs."""
        self.needed |= dict.fromkeys((*self.exported, *self.for_undo), len(self.steps))
        self.by_id = {step.id: step for step in self.steps}
        self.leaving: dict[int, list[str]] = {}
        for name, number in self.needed.items():
            self.leaving.setdefault(number, []).append(name)
        self.inner = {step.id: _surfacing(step) for step in self.steps if step.inner}
        """The steps inside each step whose results are visible after it."""


class Outlines:
    """The lists of steps in a pipeline, each outlined once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._made: dict[str, Outline] = {}
        self.read = {(ref.step, str(ref.path[0])) for step in pipeline.every for ref in refs(step)}
        """The fields of results that steps refer to."""
        self.by_id = {step.id: step for step in pipeline.every}
        self.at_root = frozenset(step.id for step in (*pipeline.steps, *pipeline.on_failure, *pipeline.finally_))
        """The steps that are inside no other."""
        self.undo_inside = any(
            step.rollback is not None and (step.each is not None or step.id not in self.at_root)
            for step in pipeline.every
        )
        """Whether a step inside another can be undone. Then the journal has the order in which steps were done."""
        self._users: dict[str, set[str]] | None = None

    def of(self, name: str, steps: tuple[Step, ...], *, loop: bool = False) -> Outline:
        """The outline of a list, by a name. What happens in a `loop` is not visible outside."""
        if name not in self._made:
            self._made[name] = Outline(steps, () if loop else self._exported(steps))
        return self._made[name]

    def _exported(self, steps: tuple[Step, ...]) -> list[str]:
        if self._users is None:
            self._users = {}
            for step in self._pipeline.every:
                for ref in own_refs(step):
                    self._users.setdefault(ref.step, set()).add(step.id)
        inside = {step.id for step in _below(steps)}
        visible = [id for step in steps for id in (step.id, *_surfacing(step))]
        return [id for id in visible if self._users.get(id, set()) - inside]


def _below(steps: Iterable[Step]) -> list[Step]:
    found: list[Step] = []
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        found.append(step)
        waiting += step.inner
    return found


def _surfacing(step: Step) -> tuple[str, ...]:
    """The steps inside a step whose results are visible after it: those of branches and reactions, but not of loops."""
    if step.each is not None:
        return ()
    return tuple(id for inner in step.inner for id in (inner.id, *_surfacing(inner)))


class Progress:
    """The next step of a list, and the results of the steps before it."""

    def __init__(
        self,
        outline: Outline,
        outlines: Outlines,
        scope: Scope,
        given: Given,
        suffix: str = "",
        counted: int | None = None,
    ) -> None:
        """`suffix` follows the labels of its steps. Only the outputs of the first `counted` steps are results of the list."""
        self.outline, self.outlines, self.scope, self.given = outline, outlines, scope, given
        self.suffix = suffix
        self.number = 0
        """The index of the next step."""
        self.last = ""
        """The last step that produced output."""
        self.undoable: list[str] = []
        """The completed steps with a rollback_hint."""
        self.to_undo: list[str] = []
        """The completed steps with a rollback, each once, the last one last."""
        self.opened = ""
        """The label of the step that has begun and not ended."""
        self.aside = 0
        """How many reactions it is inside. There it makes no checkpoints, because its number does not say where it is."""
        self.inside: dict[str, Any] | None = None
        """Where it continues within its next step, after a checkpoint there."""
        self.parts: tuple[Text, ...] = ()
        """The texts that belong to `inside`."""
        self.requests = Requests(outline.steps)
        """The changes that approvers of these steps requested."""
        self.is_root = counted is not None
        self._counted = len(outline.steps) if counted is None else counted
        self._args = dict(scope.args)
        self._since = 0
        self._around: Progress | None = None
        """The progress of the list around a branch, and where the page of the run was when it began."""
        self._opened_at = scope.trail

    @classmethod
    def whole(cls, pipeline: Pipeline, inputs: Mapping[str, Any], given: Given | None = None) -> Progress:
        """The progress of a pipeline: its steps, followed by those of its sections."""
        every = Outline((*pipeline.steps, *pipeline.on_failure, *pipeline.finally_))
        scope = Scope(pipeline, inputs)
        return cls(every, Outlines(pipeline), scope, given or Given(), counted=len(pipeline.steps))

    def label(self, step: Step) -> str:
        return f"{step.id}{self.suffix}"

    def branch(self, outline: Outline, suffix: str = "", **locals: Any) -> Progress:
        """The progress of a list inside the current step."""
        made = Progress(outline, self.outlines, self.scope.inside(**locals), self.given, f"{self.suffix}{suffix}")
        made._opened_at, made._around = self.scope.trail, self
        return made

    def leave(self) -> None:
        """Ends a branch: the page of the run stays where it is, if the branch has used it. Only one branch does."""
        if self._around is not None and self.scope.trail != self._opened_at:
            self._around.scope.trail = self.scope.trail

    def keep(self, step: Step, result: Result) -> None:
        """Keeps the result of a step, and drops results that no later step refers to."""
        number, results, needed = self.number, self.scope.results, self.outline.needed
        self.number += 1
        self._since += 1
        results[step.id] = result
        if step.id in self.outline.hinting and not result.facts.skipped and not result.facts.error:
            self.undoable.append(step.id)
        undoable = step.rollback is not None and not self.outlines.undo_inside
        if undoable and not result.facts.skipped and not result.facts.error:
            self.to_undo = [*(name for name in self.to_undo if name != step.id), step.id]
        leaving = [*self.outline.leaving.get(number, ()), *self.outline.inner.get(step.id, ())]
        if len(result.text) and number < self._counted:
            leaving.append(self.last)
            self.last = step.id
        leaving.append(step.id)
        for name in leaving:
            if name != self.last and needed.get(name, -1) <= number:
                results.pop(name, None)

    def goes_back(self, failed: Failed) -> bool:
        """Whether an approver sent the run back to an earlier step of this list."""
        asked = feedback_of(failed)
        return asked is not None and not self.aside and any(step.id == asked.to for step in self.outline.steps)

    def go_back(self, step: Step, failed: Failed) -> None:
        """Continues at the step to which an approver sent the run back; later results are void."""
        order = [one.id for one in self.outline.steps]
        self.number = self.requests.take(step, failed)
        results = self.scope.results
        for later in self.outline.steps[self.number :]:
            for name in (later.id, *self.outline.inner.get(later.id, ())):
                if name not in self.outline.for_undo:
                    results.pop(name, None)
        earlier = order[: self.number][::-1]
        self.last = next((name for name in earlier if name in results and len(results[name].text)), "")
        self.scope.changes = self.requests.latest

    def place_of(self, name: str) -> int:
        return next(number for number, step in enumerate(self.outline.steps) if step.id == name)

    def keep_inner(self, results: Mapping[str, Result]) -> None:
        """Keeps results of steps inside the current step."""
        self.scope.results.update(results)
        self._since += len(results)

    # --- checkpoints ---

    @property
    def wants_checkpoint(self) -> bool:
        return not self.aside and self._since >= max(STRETCH, len(self.scope.results), len(self.undoable))

    def checkpoint(self, inside: Mapping[str, Any] | None = None, parts: tuple[Text, ...] = ()) -> Checkpoint:
        """Everything needed to continue at the next step, or `inside` it. Long text is stored by reference."""
        self._since = 0
        results = dict(_own(self.scope.results))
        args = _own(self.scope.args)
        state: dict[str, Any] = {
            "number": self.number,
            "last": self.last,
            "undoable": self.undoable,
            "args": {name: value for name, value in args.items() if self._args.get(name, self) != value},
            "results": {name: msgspec.to_builtins(self._kept_facts(name, one)) for name, one in results.items()},
        }
        texts = [text for result in results.values() for text in (result.text, *result.parts)]
        spread = {name: len(result.parts) for name, result in results.items() if result.parts}
        if spread:
            state["parts"] = spread
        if inside is not None:
            state["inside"] = dict(inside)
        if "failure" in self.scope.locals:
            state["failure"] = self.scope.locals["failure"]
        if self.scope.trail.page:
            state["trail"] = msgspec.to_builtins(self.scope.trail)
        if self.requests.plain():
            state["changes"] = self.requests.plain()
        if not self.is_root and self.scope.kept:
            state["kept"] = self.scope.kept
        if self.is_root:
            texts += self._recalled(state)
        return Checkpoint(state, (*texts, *parts))

    def _recalled(self, state: dict[str, Any]) -> list[Text]:
        """Adds what is known of the run and of earlier runs to a state; returns the texts of earlier results."""
        scope = self.scope
        more: dict[str, dict[str, Any]] = {"run": {**scope.run}, "state": {**scope.state}, "previous": {}}
        if self.to_undo:
            state["to_undo"] = self.to_undo
        more["run"].pop("id", None)
        texts: list[Text] = []
        for name, result in scope.previous.items():
            more["previous"][name] = None if result is None else msgspec.to_builtins(result.facts)
            texts += [] if result is None else [result.text]
        state.update({name: value for name, value in more.items() if value})
        return texts

    def _kept_facts(self, name: str, result: Result) -> Facts:
        """The facts of a result, without error output and headers that no step refers to."""
        if not result.facts.stderr and not result.facts.headers:
            return result.facts
        unused: dict[str, Any] = {
            field: empty
            for field, empty in (("stderr", ""), ("headers", {}))
            if (name, field) not in self.outlines.read
        }
        return msgspec.structs.replace(result.facts, **unused)

    def restore(self, state: Any) -> None:
        """Restores the state of a checkpoint."""
        kept, texts = state if isinstance(state, tuple | list) else (state, ())
        self.number, self.last = kept["number"], kept["last"]
        self.undoable = list(kept.get("undoable", ()))
        self.scope.args.update(kept["args"])
        if "failure" in kept:
            self.scope.locals["failure"] = kept["failure"]
        if "trail" in kept:
            self.scope.trail = msgspec.convert(kept["trail"], Trail)
        if "changes" in kept:
            self.requests.restore(kept["changes"])
            self.scope.changes = self.requests.latest
        self.scope.run.update(kept.get("run", {}))
        self.scope.state.update(kept.get("state", {}))
        self.scope.keep(kept.get("kept", {}))
        self.to_undo = list(kept.get("to_undo", ()))
        left = list(texts)
        for name, facts in kept["results"].items():
            result = Result(left.pop(0), msgspec.convert(facts, Facts))
            count = kept.get("parts", {}).get(name, 0)
            result.parts, left = tuple(left[:count]), left[count:]
            self.scope.results[name] = result
        for name, facts in kept.get("previous", {}).items():
            self.scope.previous[name] = None if facts is None else Result(left.pop(0), msgspec.convert(facts, Facts))
        self.inside = kept.get("inside")
        self.parts = tuple(left)


def _own(values: Any) -> Mapping[str, Any]:
    """What was added here, without what is inherited from the list around it."""
    own: Mapping[str, Any] = values.maps[0] if hasattr(values, "maps") else values
    return own


def reaction_to(step: Step, code: str) -> Reaction | None:
    """What a step does instead if its approval ended with this failure."""
    return {"denied": step.on_denied, "expired": step.on_expired}.get(code)

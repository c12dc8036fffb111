"""What is known of each step before a run: its effect, as far as the arguments tell.

What only a run can tell stands for itself, as in `$build.stdout`. Pure: nothing is performed, and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.pipeline.acting import Acted, Given, acting, prompt
from cuebook.dialects.pipeline.llm import DEFAULT, prompt_of
from cuebook.dialects.pipeline.model import ArgRef, Llm, Pipeline, Ref, Secret, Step, StepRef, Words
from cuebook.dialects.pipeline.resolve import Scope
from cuebook.kernel.effects import AskModel, EffectFailed

T = TypeVar("T")


class Foreseen(msgspec.Struct, frozen=True):
    """A step as it would be performed."""

    step: Step
    effect: Acted | AskModel | None
    """None where it could only fail."""
    unknown: tuple[str, ...] = ()
    """What the run puts in place of itself: outputs of earlier steps, arguments that are not given."""
    condition: bool | None = True
    """Whether it holds; None where only the run can tell."""
    missing: tuple[str, ...] = ()
    """Secret arguments that are not given."""
    problem: str = ""

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a step that may change something should say and does not."""
        if self.step.reads_only:
            return ()
        said = {"postcondition": self.step.postcondition, "rollback_hint": self.step.rollback_hint}
        return tuple(name for name, value in said.items() if not value)


def foresee(pipeline: Pipeline, args: Mapping[str, Any], options: Mapping[str, Any]) -> list[Foreseen]:
    """`args` are those that are known: one that is required and missing is not among them."""
    given = Given(str(options.get("cwd") or ""), options.get("max_output"))
    scope = Scope(pipeline, args)
    return [_foreseen(step, scope, given) for step in pipeline.steps]


def _foreseen(step: Step, scope: Scope, given: Given) -> Foreseen:
    standing = _Standing(scope.args)
    known = msgspec.structs.replace(
        step, action=standing.put(step.action), stdin=standing.put(step.stdin), env=standing.put(step.env)
    )
    told: dict[str, Any] = {
        "unknown": tuple(standing.unknown),
        "missing": tuple(standing.missing),
        "condition": _condition(step, scope),
    }
    try:
        return Foreseen(step, _effect(known, scope, given), **told)
    except EffectFailed as error:
        return Foreseen(step, None, problem=str(error.failed), **told)


def _effect(step: Step, scope: Scope, given: Given) -> Acted | AskModel:
    if isinstance(step.action, Llm):
        model = None if step.action.model == DEFAULT else step.action.model
        return AskModel(prompt_of(step, step.action, scope), model=model)
    return acting(step, scope, given, {}, prompt(step, 1))


def _condition(step: Step, scope: Scope) -> bool | None:
    if step.condition is None:
        return True
    if any(isinstance(ref, StepRef) or ref.name not in scope.args for ref in _refs(step.condition)):
        return None
    return scope.holds(step.condition)


def _refs(condition: Any) -> Iterator[Ref]:
    waiting = [condition]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ArgRef | StepRef):
            yield one
        else:
            waiting += getattr(one, "operands", ())


class _Standing:
    """Puts the words of a reference in place of what it would lead to."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._args = args
        self.unknown: dict[str, None] = {}
        self.missing: dict[str, None] = {}

    def put(self, value: T) -> T:
        made: Any = value
        match value:
            case Words(parts=parts):
                made = msgspec.structs.replace(value, parts=tuple(self._part(part) for part in parts))
            case Secret(arg=arg, handle="") if not self._args.get(arg):
                self.missing[arg] = None
                made = Words((f"${{{arg}}}",), value.line)
            case dict():
                made = {name: self.put(one) for name, one in value.items()}
            case list() | tuple():
                made = type(value)(self.put(one) for one in value)
            case msgspec.Struct():
                fields = {name: self.put(getattr(value, name)) for name in value.__struct_fields__}
                made = msgspec.structs.replace(value, **fields)
        result: T = made
        return result

    def _part(self, part: str | Ref) -> str | Ref:
        match part:
            case StepRef(step=step, path=path):
                words = f"${step}.{'.'.join(map(str, path))}"
            case ArgRef(name=name) if name not in self._args:
                words = f"${{{name}}}"
            case _:
                return part
        self.unknown[words] = None
        return words

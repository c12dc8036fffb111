"""What is known of each step before a run: its effect, as far as the arguments tell.

What only a run can tell stands for itself, as in `$build.stdout`. Pure: nothing is performed, and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.pipeline.acting import Acted, Given, acting, prompt
from cuebook.dialects.pipeline.llm import prompt_of
from cuebook.dialects.pipeline.model import DEFAULT_MODEL, ArgRef, Llm, Pipeline, Ref, Secret, Step, StepRef, Words
from cuebook.dialects.pipeline.resolve import Scope
from cuebook.kernel.effects import AskModel, SendHttp
from cuebook.kernel.outcomes import EffectFailed

T = TypeVar("T")


class Foreseen(msgspec.Struct, frozen=True):
    """A step as it would be performed."""

    step: Step
    effect: Acted | AskModel | None
    """None where it could only fail."""
    probe: Acted | AskModel | None = None
    """The same with a plain word for everything unknown, which passes for a host or a program, so that it can be asked of."""
    stand_ins: Mapping[str, str] = {}
    """Those words, and what each stands for."""
    unknown: tuple[str, ...] = ()
    """What the run puts in place of itself: outputs of earlier steps, arguments that are not given."""
    condition: bool | None = True
    """Whether it holds; None where only the run can tell."""
    missing: tuple[str, ...] = ()
    """Secret arguments that are not given: their places are left empty."""
    problem: str = ""

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a step that may change something should say and does not."""
        if self.step.reads_only:
            return ()
        said = {"postcondition": self.step.postcondition, "rollback_hint": self.step.rollback_hint}
        return tuple(name for name, value in said.items() if not value)

    @property
    def open_secrets(self) -> tuple[str, ...]:
        """The secret arguments that are not given, as they are written."""
        return tuple(f"${{{name}}}" for name in self.missing)

    def in_words(self, text: str) -> str:
        """A text about the probe as one about the effect."""
        for stand_in, words in self.stand_ins.items():
            text = text.replace(stand_in, words)
        return text


def foresee(pipeline: Pipeline, args: Mapping[str, Any], options: Mapping[str, Any]) -> list[Foreseen]:
    """`args` are those that are known: one that is required and missing is not among them."""
    given = Given(str(options.get("cwd") or ""), options.get("max_output"))
    scope = Scope(pipeline, args)
    return [_foreseen(step, scope, given) for step in pipeline.steps]


def _foreseen(step: Step, scope: Scope, given: Given) -> Foreseen:
    shown, probed = _Standing(scope.args, _as_written), _Standing(scope.args, _stand_in)
    told: dict[str, Any] = {"condition": _condition(step, scope)}
    try:
        told["effect"] = _effect(shown.step(step), scope, given)
        told["probe"] = _probe(_effect(probed.step(step), scope, given), probed.unknown.values())
    except EffectFailed as error:
        told |= {"effect": None, "problem": str(error.failed)}
    words = tuple(shown.unknown.values())
    stand_ins = dict(zip(probed.unknown.values(), words, strict=False))
    return Foreseen(step, unknown=words, missing=tuple(shown.missing), stand_ins=stand_ins, **told)


def _probe(effect: Acted | AskModel, stand_ins: Iterable[str]) -> Acted | AskModel:
    """A URL whose beginning is not known has none that could be asked of."""
    if isinstance(effect, SendHttp) and any(map(effect.url.startswith, stand_ins)):
        return msgspec.structs.replace(effect, url=f"https://{effect.url}")
    return effect


def _effect(step: Step, scope: Scope, given: Given) -> Acted | AskModel:
    if isinstance(step.action, Llm):
        model = None if step.action.model == DEFAULT_MODEL else step.action.model
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


def _as_written(ref: Ref, number: int) -> str:
    match ref:
        case StepRef(step=step, path=path):
            return f"${step}.{'.'.join(map(str, path))}"
        case ArgRef(name=name):
            return f"${{{name}}}"


def _stand_in(ref: Ref, number: int) -> str:
    """A word that no rule is about, that is a host as well and needs no quotes."""
    return f"zq{number}.unknown.example"


class _Standing:
    """Puts words in place of what references would lead to, where only the run can tell."""

    def __init__(self, args: Mapping[str, Any], word: Callable[[Ref, int], str]) -> None:
        self._args = args
        self._word = word
        self.unknown: dict[Ref, str] = {}
        self.missing: dict[str, None] = {}

    def step(self, step: Step) -> Step:
        made = {"action": self._put(step.action), "stdin": self._put(step.stdin), "env": self._put(step.env)}
        return msgspec.structs.replace(step, **made)

    def _put(self, value: T) -> T:
        made: Any = value
        match value:
            case Words(parts=parts):
                made = msgspec.structs.replace(value, parts=tuple(self._part(part) for part in parts))
            case Secret() if self._is_missing(value):
                self.missing[value.arg] = None
                made = None
            case dict():
                made = {name: self._put(one) for name, one in value.items()}
                made = {name: one for name, one in made.items() if not self._is_missing(value[name])}
            case list() | tuple():
                made = type(value)(self._put(one) for one in value)
            case msgspec.Struct():
                fields = {name: self._put(getattr(value, name)) for name in value.__struct_fields__}
                made = msgspec.structs.replace(value, **fields)
        result: T = made
        return result

    def _part(self, part: str | Ref) -> str | Ref:
        if isinstance(part, str) or not self._is_unknown(part):
            return part
        return self.unknown.setdefault(part, self._word(part, len(self.unknown)))

    def _is_unknown(self, part: str | Ref) -> bool:
        return isinstance(part, StepRef) or (isinstance(part, ArgRef) and part.name not in self._args)

    def _is_missing(self, value: Any) -> bool:
        return isinstance(value, Secret) and not value.handle and not self._args.get(value.arg)

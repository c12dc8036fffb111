"""Previews a pipeline run: each step's effect, as far as the arguments determine it.

References that only a run can resolve are shown as written, as in `$build.stdout`. Pure: it has no effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.people import approval_words
from cuebook.dialects.pipeline.describe import around, doing, parts, structure
from cuebook.dialects.pipeline.inputs import accept
from cuebook.dialects.pipeline.model import (
    DEFAULT_MODEL,
    ArgRef,
    Child,
    Function,
    Llm,
    Pipeline,
    Question,
    Ref,
    RunRef,
    Secret,
    Step,
    StepRef,
    Words,
)
from cuebook.dialects.pipeline.parse.references import as_written
from cuebook.dialects.pipeline.run import approvals
from cuebook.dialects.pipeline.run.action import Acted, Given, acting, prompt
from cuebook.dialects.pipeline.run.children import given as given_to_child
from cuebook.dialects.pipeline.run.llm import prompt_of
from cuebook.dialects.pipeline.run.questions import question
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.presentation.preview import Act, Branch, Limits, Open, Preview, declared_inputs, question_details
from cuebook.dialects.presentation.preview import Step as ShownStep
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.effects import Acting, AskHuman, AskModel, Browse, CallTool, RunPlaybook, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.kernel.files import FileRef
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import Settings

T = TypeVar("T")

Previewed = Acted | AskModel | AskHuman | RunPlaybook
"""What a step would do."""

_UNSHOWN = ("is", "approval", "witnessed", "reads_only", "secrets", "timeout")
"""Fields of an effect that the JSON contains elsewhere or omits."""


def preview(pipeline: Pipeline, given: Mapping[str, Any], settings: Settings) -> Preview:
    args, notes = _known(pipeline, given)
    options = settings.options
    scope = Scope(pipeline, args)
    placed = Given(str(options.get("cwd") or ""), options.get("max_output"))
    acts: dict[str, Act] = {}
    for step in pipeline.every:
        acts[step.id] = _act(step, scope, placed, _uncertain(pipeline, step))
        _follow(acts[step.id], scope)
    calls = sum(map(_calls, pipeline.every))
    counted = f"{calls:,} model call{'' if calls == 1 else 's'}, if every step uses all its turns, attempts and repairs"
    looped = calls and any(step.each is not None and _asks(step) for step in pipeline.every)
    if looped:
        counted = f"for one item of each loop, {counted}"
    return Preview(
        title=pipeline.title,
        inputs=args,
        declared=declared_inputs(pipeline),
        is_unfit=any(name not in args for name in given),
        steps=(
            *(_step(step, acts) for step in pipeline.steps),
            *(_step(step, acts, "after a failure") for step in pipeline.on_failure),
            *(_step(step, acts, "at the end of every run") for step in pipeline.finally_),
        ),
        acts=list(acts.values()),
        fails=any(act.problem and act.runs and not act.on_failure for act in acts.values()),
        notes=notes,
        limits=Limits(None if looped else calls, (counted if calls else "no model is called",)),
        details={"args": args, "allowed_domains": list(pipeline.allowed_domains)},
    )


def _follow(act: Act, scope: Scope) -> None:
    """Later steps find the page that this one opens."""
    effect = act.open.probe or act.effect
    if isinstance(effect, Browse) and "url" in effect.arguments and effect.action == "navigate":
        scope.trail = Trail(str(effect.arguments["url"]))


def _known(pipeline: Pipeline, given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments as a run would record them. Missing and invalid arguments are left out, with a note."""
    try:
        return accept(pipeline, given), ()
    except BadInput as error:
        note = error.message
    kept: dict[str, Any] = {}
    for name, arg in pipeline.args.items():
        alone = msgspec.structs.replace(pipeline, args={name: arg})
        try:
            kept |= accept(alone, {name: given[name]} if name in given else {})
        except BadInput:
            continue
    return kept, (note,)


def _calls(step: Step) -> int:
    """The maximum number of model calls of a step."""
    if not isinstance(step.action, Llm):
        return 0
    turns = max(3, 2 * step.action.max_tool_calls + 3) if step.action.tools else 1
    return (turns + step.action.max_repairs) * _attempts(step)


def _attempts(step: Step) -> int:
    return step.retry.max_attempts if step.retry is not None else 1


def _asks(step: Step) -> bool:
    """Whether a step or one inside it calls a model."""
    return isinstance(step.action, Llm) or any(map(_asks, step.inner))


def _uncertain(pipeline: Pipeline, step: Step) -> bool:
    """Whether a step runs only if something else happens: a failure, or a denied approval."""
    reactions = (one for other in pipeline.every for one in (other.on_denied, other.on_expired) if one is not None)
    only_then = [*pipeline.on_failure, *(one for reaction in reactions for one in reaction.steps)]
    return any(step is one or _uncertain_inside(one, step) for one in only_then)


def _uncertain_inside(outer: Step, step: Step) -> bool:
    return any(step is one or _uncertain_inside(one, step) for one in outer.inner)


def _step(step: Step, acts: Mapping[str, Act], when: str = "") -> ShownStep:
    act = acts[step.id]
    also = [when] if when else []
    also += around(step)
    also += ["its output must be JSON"] if step.output is not None and step.output.type == "json" else []
    also += [] if step.asked is None else approval_words(step.asked.rule)
    also += [f"if the run fails, it can be undone: {doing(step.rollback)}"] if step.rollback is not None else []
    also += ["its postcondition must hold"] if step.postcondition is not None else []
    return ShownStep(
        label=step.id,
        title=step.name,
        condition=step.condition_text if step.condition is not None else "",
        asks_approval=step.approval,
        does=(act.effect,) if act.effect is not None else (doing(step) if step.is_structure else "can only fail",),
        also=tuple(also),
        branches=tuple(Branch(name, tuple(_step(one, acts) for one in steps)) for name, steps in parts(step) if name),
        steps=tuple(_step(one, acts) for name, steps in parts(step) if not name for one in steps),
        details=act.details,
    )


def _structure(step: Step, scope: Scope, uncertain: bool) -> Act:
    """A step that contains others or waits: it does nothing itself."""
    runs = None if uncertain else _condition(step, scope)
    details = {"step": step.id, "name": step.name, "line": step.line, "namespace": step.namespace, "runs": runs}
    words = "; ".join((doing(step), *around(step)))
    return Act(
        label=step.id,
        title=step.name,
        report=(step.namespace, words),
        condition=step.condition_text if step.condition is not None else "",
        runs=runs,
        details={**details, "condition": step.condition_text or None, "does": words},
    )


def _act(step: Step, scope: Scope, placed: Given, uncertain: bool = False) -> Act:
    if step.is_structure:
        return _structure(step, scope, uncertain)
    shown, probed = _StandIns(scope.args, _as_written), _StandIns(scope.args, _plain_word)
    effect: Previewed | None = None
    probe: Previewed | None = None
    problem = ""
    try:
        effect = _effect(shown.step(step), scope, placed)
        probe = _probe(_effect(probed.step(step), scope, placed), probed.unknown.values())
    except EffectFailed as error:
        effect, problem = None, str(error.failed)
    names = tuple(shown.unknown.values())
    stand_ins = dict(zip(probed.unknown.values(), names, strict=False))
    secrets = tuple(f"${{{name}}}" for name in shown.missing)
    runs = None if uncertain else _condition(step, scope)
    lacks = _lacks(step)
    uses = effect.secrets if isinstance(effect, Acting) else ()
    return Act(
        label=step.id,
        title=step.name,
        effect=effect,
        open=Open(names, secrets, probe, stand_ins),
        calls=tuple(CallTool(tool) for tool in step.action.tools) if isinstance(step.action, Llm) else (),
        condition=step.condition_text if step.condition is not None else "",
        runs=runs,
        approval=_question(step),
        problem=problem,
        attempts=_attempts(step),
        on_failure=step.on_error.replace("_", " the ") if step.on_error != "stop" else "",
        lacks=lacks,
        details={
            "step": step.id,
            "name": step.name,
            "line": step.line,
            "namespace": step.namespace,
            "action": _action(effect),
            "unknown": list(names),
            "condition": step.condition_text or None,
            "runs": runs,
            "approval": step.approval,
            "changes": not step.reads_only,
            "lacks": list(lacks),
            "secrets": [{"at": use.at, "handle": use.handle} for use in uses],
            "timeout": step.timeout,
            "attempts": _attempts(step),
            "on_error": step.on_error,
            "failed": problem or None,
            **structure(step),
        },
    )


def _question(step: Step) -> str:
    text = None if step.asked is None else step.asked.text
    return prompt(step, 1) if text is None else as_written(text)


def _lacks(step: Step) -> tuple[str, ...]:
    """The declarations that are missing from a step that may change something."""
    if step.reads_only:
        return ()
    declared = {"postcondition": step.postcondition, "rollback_hint": step.rollback_hint or step.rollback}
    return tuple(name for name, value in declared.items() if not value)


def _action(effect: Previewed | None) -> dict[str, Any] | None:
    """The effect as it would be performed, with the handles of secrets."""
    if effect is None:
        return None
    if isinstance(effect, AskModel):
        return {"model": effect.model, "prompt": effect.prompt}
    if isinstance(effect, AskHuman):
        return question_details(effect)
    made = msgspec.to_builtins(effect, enc_hook=str)
    return {name: value for name, value in made.items() if name not in _UNSHOWN}


def _probe(effect: Previewed, stand_ins: Iterable[str]) -> Previewed:
    """Adds a scheme to a URL whose beginning is unknown, so the gate can decide on it."""
    if isinstance(effect, SendHttp) and any(map(effect.url.startswith, stand_ins)):
        return msgspec.structs.replace(effect, url=f"https://{effect.url}")
    if isinstance(effect, Browse) and any(map(str(effect.arguments.get("url", "")).startswith, stand_ins)):
        url = f"https://{effect.arguments['url']}"
        return msgspec.structs.replace(effect, arguments={**effect.arguments, "url": url})
    return effect


def _effect(step: Step, scope: Scope, given: Given) -> Previewed:
    if isinstance(step.action, Question):
        return question(step, step.action, scope)
    if isinstance(step.action, Child):
        return RunPlaybook(step.action.playbook, given_to_child(step.action, scope), approval=prompt(step, 1))
    if isinstance(step.action, Llm):
        model = None if step.action.model == DEFAULT_MODEL else step.action.model
        return AskModel(prompt_of(step, step.action, scope), model=model)
    return acting(step, scope, given, {}, prompt(step, 1), approvals.rule(step, 0))


def _condition(step: Step, scope: Scope) -> bool | None:
    if step.condition is None:
        return True
    if any(not isinstance(ref, ArgRef) or ref.name not in scope.args for ref in _refs(step.condition)):
        return None
    return scope.holds(step.condition)


def _refs(condition: Any) -> Iterator[Ref]:
    waiting = [condition]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Ref):
            yield one
        else:
            waiting += getattr(one, "operands", ())


def _as_written(ref: Ref | Function, number: int) -> str:
    written = as_written(Words((ref,)))
    return f"${written[2:-1]}" if isinstance(ref, StepRef | RunRef) else written


def _plain_word(ref: Ref | Function, number: int) -> str:
    """A word that no policy rule mentions, that is a valid host name and needs no quotes."""
    return f"zq{number}.unknown.example"


class _StandIns:
    """Replaces references that only the run can resolve with words."""

    def __init__(self, args: Mapping[str, Any], word: Callable[[Ref | Function, int], str]) -> None:
        self._args = args
        self._word = word
        self.unknown: dict[Ref | Function, str] = {}
        self.missing: dict[str, None] = {}

    def step(self, step: Step) -> Step:
        made = {name: self._put(getattr(step, name)) for name in ("action", "stdin", "env", "files", "takes")}
        return msgspec.structs.replace(step, **made)

    def _put(self, value: T) -> T:
        made: Any = value
        match value:
            case Words(parts=parts):
                made = msgspec.structs.replace(value, parts=tuple(self._part(part) for part in parts))
            case Secret() if self._is_missing(value):
                self.missing[value.arg] = None
                made = None
            case StepRef():  # a file, which only the run has
                made = FileRef(self.unknown.setdefault(value, self._word(value, len(self.unknown))), "", 0)
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

    def _part(self, part: str | Ref | Function) -> str | Ref | Function:
        if isinstance(part, str) or not self._is_unknown(part):
            return part
        return self.unknown.setdefault(part, self._word(part, len(self.unknown)))

    def _is_unknown(self, part: Ref | Function) -> bool:
        found = _refs(part) if isinstance(part, Function) else (part,)
        return any(not isinstance(one, ArgRef) or one.name not in self._args for one in found)

    def _is_missing(self, value: Any) -> bool:
        return isinstance(value, Secret) and not value.handle and not self._args.get(value.arg)

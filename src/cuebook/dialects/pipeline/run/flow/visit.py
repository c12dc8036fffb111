"""Visits one step after another: its condition, its loop, branches or wait, its result, and what follows from it."""

from __future__ import annotations

from typing import Any

from cuebook.dialects.pipeline.model import LocalRef, Parallel, Pause, Step
from cuebook.dialects.pipeline.run.attempt import attempt, run_failure
from cuebook.dialects.pipeline.run.flow.branches import parallel
from cuebook.dialects.pipeline.run.flow.loops import each
from cuebook.dialects.pipeline.run.flow.pauses import pause, polled
from cuebook.dialects.pipeline.run.memory import kept
from cuebook.dialects.pipeline.run.resolve import all_refs
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result
from cuebook.dialects.pipeline.run.retry import attempts
from cuebook.dialects.pipeline.run.state import Progress, reaction_to
from cuebook.dialects.pipeline.run.undo import noted
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Breakpoint, Program
from cuebook.kernel.events import Noted, StepFinished, StepSkipped, StepStarted
from cuebook.kernel.outcomes import EffectFailed, Failed, Resumed


def sequence(line: Progress, end: int | None = None) -> Program[None]:
    """Visits the steps of a list, up to the index `end`."""
    steps = line.outline.steps[:end]
    while line.number < len(steps):
        step = steps[line.number]
        try:
            result = yield from visit(line, step)
        except EffectFailed as error:
            if not line.goes_back(error.failed):
                raise
            yield from _go_back(line, step, error.failed)
            continue
        yield from _react(line, step, result)
        line.keep(step, result)
        if _skips_rest(step, result):
            why = "was not approved" if result.facts.refused else "failed"
            for one in steps[line.number :]:
                reason = f"step {line.label(step)} {why}, so the rest is skipped"
                yield StepSkipped(line.label(one), one.name, reason)
            return
        passed: Resumed = yield Breakpoint(line.label(step))
        if passed.overrides:
            line.scope.override(passed.overrides)
        if line.wants_checkpoint:
            yield line.checkpoint()


def _go_back(line: Progress, step: Step, failed: Failed) -> Program[None]:
    """Ends the visit to a step whose approver asked for changes, and continues at the step that they chose."""
    line.go_back(step, failed)
    line.opened = ""
    yield Noted("changes", dict(line.scope.changes))
    yield StepFinished(line.label(step), "failed", f"{failed.message} (back to step {line.scope.changes['step']})")


def _skips_rest(step: Step, result: Result) -> bool:
    reaction = reaction_to(step, result.facts.refused)
    refused = reaction is not None and reaction.then == "skip_rest"
    return refused or (result.failed is not None and step.on_error == "skip_rest")


def _react(line: Progress, step: Step, result: Result) -> Program[None]:
    """Runs the steps for a denied or expired approval. They see its result, and later steps see theirs."""
    reaction = reaction_to(step, result.facts.refused)
    if reaction is None or not reaction.steps:
        return
    line.keep_inner({step.id: result})
    line.aside += 1
    for one in reaction.steps:
        done = yield from visit(line, one)
        line.keep_inner({one.id: done})
        yield from _react(line, one, done)
        if _skips_rest(one, done):
            break
    line.aside -= 1


def visit(line: Progress, step: Step) -> Program[Result]:
    label, inside = line.label(step), line.inside
    line.inside, line.opened = None, label
    if inside is None:
        changed = yield StepStarted(label, step.name)
        if changed:
            line.scope.override(changed)
    try:
        if inside is None and not (yield from _held(line, step)):
            reason = f"its condition does not hold: {step.condition_text}"
            yield StepFinished(label, "skipped", reason)
            line.opened = ""
            return Result(facts=Facts(skipped=True))
        result = yield from _done(line, step, inside)
        yield from noted(line, step, result)
        if step.state and result.failed is None and step.each is None:
            line.scope.results[step.id] = result
            yield from kept(step, line.scope)
    except EffectFailed as error:
        if reaction_to(step, error.failed.code) is not None and step.each is None:
            return (yield from _refused(line, step, error))
        if error.failed.code in ENDING:
            raise
        result = Result().failing(error.failed, error.seq)
    output: Text | None = result.text if len(result.text) else None
    if result.failed is None:
        yield StepFinished(label, output=output)
        line.opened = ""
        return result
    yield StepFinished(label, "failed", result.failed.message, output)
    line.opened = ""
    if step.on_error == "stop":
        line.keep_inner({step.id: result})  # the sections after a failure may refer to it
        raise EffectFailed(run_failure(line, step, result.failed, result.facts), result.seq)
    return result


def _done(line: Progress, step: Step, inside: dict[str, Any] | None) -> Program[Result]:
    """The result of a step, whatever its kind."""
    if step.each is not None:
        return (yield from each(line, step, step.each, inside, visit, sequence))
    match step.action:
        case Parallel():
            return (yield from parallel(line, step, step.action, sequence))
        case Pause():
            return (yield from pause(line, step, step.action))
    if step.until is not None:
        return (yield from polled(line, step, step.until, inside))
    return (yield from attempts(step, lambda number: attempt(line, step, number)))


def _held(line: Progress, step: Step) -> Program[bool]:
    """Whether its condition holds. A condition about the item of a loop is checked for each item, within the loop."""
    if step.condition is None or (step.each is not None and about_item(step)):
        return True
    held = line.scope.holds(step.condition)
    yield Noted("condition", {"text": step.condition_text, "held": held})
    return held


def about_item(step: Step) -> bool:
    """Whether the condition of a step depends on the item of its loop."""
    names = (step.each.name, "loop") if step.each is not None else ()
    return any(isinstance(ref, LocalRef) and ref.name in names for ref in all_refs(step.condition))


def _refused(line: Progress, step: Step, error: EffectFailed) -> Program[Result]:
    """The result of a step whose approval was denied or expired, if the step says what happens then."""
    code, message = error.failed.code, error.failed.message
    yield StepFinished(line.label(step), "skipped", message)
    line.opened = ""
    return Result(facts=Facts(skipped=True, refused=code, message=message))

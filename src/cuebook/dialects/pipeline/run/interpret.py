"""Runs a pipeline as a program: one step after another, each with its condition, approval, contract and postcondition.

Deterministic: it affects the outside world only through the effects it yields. `Noted` adds evidence to the kernel's events:
condition, attempt, contract, postcondition, repair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.options import RUN_ID
from cuebook.dialects.pipeline.model import Child, Llm, Pipeline, Question, Step
from cuebook.dialects.pipeline.run import approvals
from cuebook.dialects.pipeline.run.action import Given, acting, hint_of, unhanded
from cuebook.dialects.pipeline.run.changes_requested import REQUESTED
from cuebook.dialects.pipeline.run.children import running
from cuebook.dialects.pipeline.run.llm import asking
from cuebook.dialects.pipeline.run.memory import kept, recalled
from cuebook.dialects.pipeline.run.outputs import broken_off, evidence, read, violated, violations
from cuebook.dialects.pipeline.run.postconditions import UNSEEN, check, evidence_of
from cuebook.dialects.pipeline.run.probes import probed
from cuebook.dialects.pipeline.run.questions import asked
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result
from cuebook.dialects.pipeline.run.retry import attempts, nothing_done
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.dialects.pipeline.run.undo import cancelled, undone
from cuebook.kernel.browsing import Trail
from cuebook.kernel.context import Text
from cuebook.kernel.effects import OUTPUT_OF, AskApproval, Breakpoint, Browse, Program
from cuebook.kernel.events import (
    ArtifactMade,
    Noted,
    Planned,
    StepFinished,
    StepSkipped,
    StepStarted,
    Warned,
)
from cuebook.kernel.fold.retry import RETRY_FROM
from cuebook.kernel.outcomes import Cancelled, EffectFailed, Failed, Resumed

_HINTS = 5
"""The maximum number of hints in a failure message; its details contain them all."""


def interpret(
    pipeline: Pipeline, inputs: Mapping[str, Any], options: Mapping[str, Any], state: Any = None
) -> Program[dict[str, Any]]:
    given = Given(str(options.get("cwd") or ""), options.get("max_output"))
    progress = Progress(pipeline, inputs)
    if state is None:
        yield Planned(pipeline.plan)
        for problem in pipeline.warnings:
            where = f"Line {problem.line}: " if problem.line else ""
            yield Warned("playbook", f"{where}{problem.message} {problem.fix}".rstrip())
        for name in unhanded(progress.scope):
            message = f"The argument {name} does not fit into an environment variable, so commands do not receive it that way."
            yield Warned("argument", f"{message} A step can refer to it, preferably in stdin.")
    else:
        progress.restore(state)
    progress.scope.run["id"] = str(options.get(RUN_ID) or "")
    yield from recalled(pipeline, progress.scope)
    if any(step.rollback is not None for step in pipeline.steps):
        yield from _undoing(progress, given, _steps(progress, given))
    else:
        yield from _steps(progress, given)
    return (yield from _end(progress))


def _undoing(progress: Progress, given: Given, steps: Program[None]) -> Program[None]:
    """Runs the steps. If the run ends without completing, offers to undo what was done."""

    def attempt(step: Step) -> Program[Result]:
        return _attempt(progress, step, given, 1)

    try:
        yield from steps
    except EffectFailed as error:
        named = str(error.failed.details.get("undo_too", ""))
        failed = yield from undone(progress, error.failed, attempt, partly=named)
        raise EffectFailed(failed, None if RETRY_FROM in failed.details else error.seq) from None
    except Cancelled as error:
        failed = yield from undone(progress, cancelled(error), attempt)
        if "undone" not in failed.details:
            raise
        raise EffectFailed(failed) from None


def _steps(progress: Progress, given: Given) -> Program[None]:
    pipeline = progress.pipeline
    while progress.number < len(pipeline.steps):
        step = pipeline.steps[progress.number]
        try:
            result = yield from _visit(progress, step, given)
        except EffectFailed as error:
            if error.failed.code != REQUESTED:
                raise
            yield from _go_back(progress, step, error.failed)
            continue
        progress.keep(step, result)
        if result.failed is not None and step.on_error == "skip_rest":
            yield from _skip_rest(pipeline.steps[progress.number :], step)
            break
        passed: Resumed = yield Breakpoint(step.id)
        if passed.overrides:
            progress.scope.override(passed.overrides)
        if progress.wants_checkpoint:
            yield progress.checkpoint()


def _go_back(progress: Progress, step: Step, failed: Failed) -> Program[None]:
    """Ends the visit to a step whose approver asked for changes, and continues at the step that they chose."""
    progress.go_back(step, failed)
    yield Noted("changes", dict(progress.scope.changes))
    yield StepFinished(step.id, "failed", f"{failed.message} (back to step {progress.scope.changes['step']})")


def _skip_rest(rest: tuple[Step, ...], after: Step) -> Program[None]:
    for step in rest:
        yield StepSkipped(step.id, step.name, f"step {after.id} failed, so the rest is skipped")


def _end(progress: Progress) -> Program[dict[str, Any]]:
    """Makes the last output the artifact of the run."""
    if not progress.last:
        return {"step": "", "steps": progress.number}
    result = progress.scope.results[progress.last]
    yield ArtifactMade(result.text, "json" if result.has_json() else "text")
    return {"step": progress.last, "digest": result.text.digest, "steps": progress.number}


# --- one step ---------------------------------------------------------------------------------------------------


def _visit(progress: Progress, step: Step, given: Given) -> Program[Result]:
    changed = yield StepStarted(step.id, step.name)
    if changed:
        progress.scope.override(changed)
    try:
        held = yield from _held(progress, step)
        if not held:
            reason = f"its condition does not hold: {step.condition_text}"
            yield StepFinished(step.id, "skipped", reason)
            return Result(facts=Facts(skipped=True))
        result = yield from attempts(step, lambda number: _attempt(progress, step, given, number))
        if step.state and result.failed is None:
            progress.scope.results[step.id] = result
            yield from kept(step, progress.scope)
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        result = Result().failing(error.failed, error.seq)
    output: Text | None = result.text if len(result.text) else None
    if result.failed is None:
        yield StepFinished(step.id, output=output)
        return result
    yield StepFinished(step.id, "failed", result.failed.message, output)
    if step.on_error == "stop":
        raise EffectFailed(_run_failure(progress, step, result.failed, result.facts), result.seq)
    return result


def _held(progress: Progress, step: Step) -> Program[bool]:
    """Whether its condition holds."""
    if step.condition is None:
        return True
    held = progress.scope.holds(step.condition)
    yield Noted("condition", {"text": step.condition_text, "held": held})
    return held


def _run_failure(progress: Progress, step: Step, failed: Failed, facts: Facts) -> Failed:
    """The failure of a run because of a step, with hints for undoing the completed steps, the last step first."""
    details: dict[str, Any] = {"step": step.id, "visit": progress.requests.visit(step)}
    done = [step.id] if step.rollback_hint and not nothing_done(step, failed, facts) else []
    done += reversed(progress.undoable)
    fix = failed.fix
    if step.rollback is not None and not nothing_done(step, failed, facts):
        details["undo_too"] = step.id
    if done:
        hints = details["rollback_hints"] = {name: hint_of(progress.hinting[name], progress.scope) for name in done}
        shown = " ".join(f"{name}: {hints[name]}" for name in done[:_HINTS])
        fix = f"{fix} To undo what was done: {hints[step.id] if done == [step.id] else shown}".lstrip()
    return Failed(failed.code, f"Step {step.id} failed: {failed.message}", fix, details=details)


# --- one attempt ------------------------------------------------------------------------------------------------


def _attempt(progress: Progress, step: Step, given: Given, number: int) -> Program[Result]:
    """Performs the step's effect, once the gate has obtained any approval, then checks the contract and the
    postcondition."""
    scope = progress.scope
    shown = approvals.evidence(step, scope, progress.referred.get(step.id, ()), progress.last)
    question, rule = approvals.question(step, scope, number), approvals.rule(step, progress.requests.at(step))
    if isinstance(step.action, Question):
        return (yield from asked(step, step.action, scope))
    if isinstance(step.action, Llm):
        result = yield from asking(step, step.action, scope, given, shown, question, rule)
    elif isinstance(step.action, Child):
        result = yield from running(step, step.action, scope, shown, question, rule)
    else:
        try:
            effect = acting(step, scope, given, shown, question, rule)
            outcome = yield effect
        except EffectFailed as error:
            if error.failed.code in ENDING:
                raise
            return broken_off(step, error.failed, error.seq)
        if isinstance(effect, Browse):
            scope.trail = Trail.before(effect).after(effect, outcome)
        result = read(step, outcome).but(approved=step.approval)
    if result.failed is not None:
        return result
    problems = violations(step.output, result)
    if problems:
        yield Noted("contract", evidence(problems, result))
        return result.failing(violated(problems))
    return (yield from _verified(step, result, shown, scope, given))


def _verified(step: Step, result: Result, shown: Mapping[str, str], scope: Scope, given: Given) -> Program[Result]:
    """The result once its postcondition holds, or once the user has accepted it without evidence."""
    if step.postcondition is None:
        return result
    before, scope.results[step.id] = scope.results.get(step.id), result
    probes = yield from probed(step, step.postcondition, scope, given)
    if before is None:
        scope.results.pop(step.id, None)
    report = check(step.postcondition, evidence_of(result, probes))
    yield Noted("postcondition", report.plain())
    if report.verdict == "failed":
        return result.failing(report.failed())
    if report.verdict == "missing":
        question = f"Step {step.id} was done, but there is no evidence that it worked: {report.words}. Accept it?"
        looked = {**shown, f"{OUTPUT_OF}{step.id}": str(result.text)}
        try:
            yield AskApproval(approval=question, preview=looked, purpose="takeover")
        except EffectFailed as error:
            if error.failed.code != "denied":
                raise
            message = f"there is no evidence that it worked ({report.words}), and it was not accepted"
            return result.failing(Failed(UNSEEN, f"{message}: {error.failed.message}"), error.seq)
    return result

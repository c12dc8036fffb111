"""One attempt at a step: its effect, its contract and its postcondition; and the failure of a run because of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.pipeline.model import Child, Llm, Question, Step
from cuebook.dialects.pipeline.run import approvals
from cuebook.dialects.pipeline.run.action import acting, hint_of, shortened
from cuebook.dialects.pipeline.run.children import running
from cuebook.dialects.pipeline.run.llm import asking
from cuebook.dialects.pipeline.run.outputs import broken_off, evidence, read, violated, violations
from cuebook.dialects.pipeline.run.postconditions import UNSEEN, check, evidence_of
from cuebook.dialects.pipeline.run.probes import probed, resolved
from cuebook.dialects.pipeline.run.questions import asked
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result, written
from cuebook.dialects.pipeline.run.retry import nothing_done
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.effects import OUTPUT_OF, AskApproval, Browse, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import EffectFailed, Failed

_HINTS = 5
"""The maximum number of hints in a failure message; its details contain them all."""


def attempt(line: Progress, step: Step, number: int) -> Program[Result]:
    """Performs the step's effect, once the gate has obtained any approval, then checks the contract and the
    postcondition."""
    scope, label = line.scope, line.label(step)
    if isinstance(step.action, Question):
        return (yield from asked(step, step.action, scope))
    shown = approvals.evidence(step, scope, line.outline.referred.get(step.id, ()), line.last) | _item(line)
    question, rule = approvals.question(step, scope, number, label), approvals.rule(step, line.requests.at(step))
    if isinstance(step.action, Llm):
        result = yield from asking(step, step.action, scope, line.given, shown, question, rule)
    elif isinstance(step.action, Child):
        result = yield from running(step, step.action, scope, shown, question, rule)
    else:
        try:
            effect = acting(step, scope, line.given, shown, question, rule)
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
    return (yield from _verified(line, step, result, shown))


def _item(line: Progress) -> dict[str, str]:
    """The item of the loop around the step, for an approver."""
    loop = line.scope.locals.get("loop")
    return {"item": shortened(written(line.scope.locals[loop["name"]]))} if loop is not None else {}


def _verified(line: Progress, step: Step, result: Result, shown: Mapping[str, str]) -> Program[Result]:
    """The result once its postcondition holds, or once the user has accepted it without evidence."""
    if step.postcondition is None:
        return result
    scope, label = line.scope, line.label(step)
    before, scope.results[step.id] = scope.results.get(step.id), result
    try:
        wanted = resolved(step.postcondition, scope)
    except EffectFailed as error:
        return result.failing(error.failed)
    probes = yield from probed(step, wanted, scope, line.given)
    if before is None:
        scope.results.pop(step.id, None)
    report = check(wanted, evidence_of(result, probes))
    yield Noted("postcondition", report.plain())
    if report.verdict == "failed":
        return result.failing(report.failed())
    if report.verdict == "missing":
        question = f"Step {label} was done, but there is no evidence that it worked: {report.words}. Accept it?"
        looked = {**shown, f"{OUTPUT_OF}{label}": str(result.text)}
        try:
            yield AskApproval(approval=question, preview=looked, purpose="takeover")
        except EffectFailed as error:
            if error.failed.code != "denied":
                raise
            message = f"there is no evidence that it worked ({report.words}), and it was not accepted"
            return result.failing(Failed(UNSEEN, f"{message}: {error.failed.message}"), error.seq)
    return result


def run_failure(line: Progress, step: Step, failed: Failed, facts: Facts) -> Failed:
    """The failure of a run because of a step, with hints for undoing the completed steps, the last step first."""
    label, outline = line.label(step), line.outline
    # A loop fails because of an item, which is where a retry continues.
    details: dict[str, Any] = {"step": failed.details.get("step", label), "visit": line.requests.visit(step)}
    done = [step.id] if step.rollback_hint and not nothing_done(step, failed, facts) else []
    done += reversed(line.undoable)
    fix = failed.fix
    if step.rollback is not None and not nothing_done(step, failed, facts):
        details["undo_too"] = step.id
    if done:
        hinting = {step.id: step, **outline.hinting}
        hints = details["rollback_hints"] = {name: hint_of(hinting[name], line.scope) for name in done}
        shown = " ".join(f"{name}: {hints[name]}" for name in done[:_HINTS])
        fix = f"{fix} To undo what was done: {hints[step.id] if done == [step.id] else shown}".lstrip()
    return Failed(failed.code, f"Step {label} failed: {failed.message}", fix, details=details)

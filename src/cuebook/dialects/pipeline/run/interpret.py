"""Runs a pipeline as a program: its steps, then `on_failure` if they failed, then `finally`.

Deterministic: it affects the outside world only through the effects it yields. `Noted` adds evidence to the kernel's events:
condition, attempt, contract, postcondition, repair, items, branches, until.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.options import RUN_ID
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.pipeline.run.action import Given, unhanded
from cuebook.dialects.pipeline.run.flow.visit import sequence
from cuebook.dialects.pipeline.run.memory import recalled
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.dialects.pipeline.run.undo import cancelled, undone
from cuebook.kernel.effects import Program
from cuebook.kernel.events import ArtifactMade, Planned, StepFinished, Warned
from cuebook.kernel.fold.retry import RETRY_FROM
from cuebook.kernel.outcomes import Cancelled, EffectFailed, Failed


def interpret(
    pipeline: Pipeline, inputs: Mapping[str, Any], options: Mapping[str, Any], state: Any = None
) -> Program[dict[str, Any]]:
    given = Given(str(options.get("cwd") or ""), options.get("max_output"))
    line = Progress.whole(pipeline, inputs, given)
    ended: EffectFailed | Cancelled | None = None
    if state is None:
        yield Planned(pipeline.plan)
        for problem in pipeline.warnings:
            where = f"Line {problem.line}: " if problem.line else ""
            yield Warned("playbook", f"{where}{problem.message} {problem.fix}".rstrip())
        for name in unhanded(line.scope):
            message = f"The argument {name} does not fit into an environment variable, so commands do not receive it that way."
            yield Warned("argument", f"{message} A step can refer to it, preferably in stdin.")
    else:
        line.restore(state)
        ended = _known(line.scope.locals.get("failure"))
    line.scope.run["id"] = str(options.get(RUN_ID) or "")
    yield from recalled(pipeline, line.scope)
    steps = _with_sections(pipeline, line, ended) if pipeline.on_failure or pipeline.finally_ else sequence(line)
    if any(step.rollback is not None for step in pipeline.every):
        yield from _undoing(line, steps)
    else:
        yield from steps
    return (yield from _end(line, len(pipeline.steps)))


def _end(line: Progress, steps: int) -> Program[dict[str, Any]]:
    """Makes the last output the artifact of the run."""
    done = min(line.number, steps)
    if not line.last:
        return {"step": "", "steps": done}
    result = line.scope.results[line.last]
    yield ArtifactMade(result.text, "json" if result.has_json() else "text")
    return {"step": line.last, "digest": result.text.digest, "steps": done}


def _undoing(line: Progress, steps: Program[None]) -> Program[None]:
    """Runs the steps. If the run ends without completing, offers to undo what was done."""
    try:
        yield from steps
    except EffectFailed as error:
        named = str(error.failed.details.get("undo_too", ""))
        failed = yield from undone(line, error.failed, partly=named)
        again = isinstance(failed.details.get(RETRY_FROM), dict)  # a list is done again in addition to what failed
        raise EffectFailed(failed, None if again else error.seq) from None
    except Cancelled as error:
        failed = yield from undone(line, cancelled(error))
        if "undone" not in failed.details:
            raise
        raise EffectFailed(failed) from None


# --- sections ---------------------------------------------------------------------------------------------------


def _with_sections(pipeline: Pipeline, line: Progress, ended: EffectFailed | Cancelled | None) -> Program[None]:
    """Runs the steps and the sections. A run that failed or was cancelled still ends that way."""
    steps, rest = len(pipeline.steps), len(pipeline.steps) + len(pipeline.on_failure)
    if line.number < steps and ended is None:
        ended = yield from _section(line, steps, ended)
        line.number = rest if ended is None or isinstance(ended, Cancelled) else steps
    _tell(line, ended)
    if line.number < rest:
        ended = yield from _section(line, rest, ended)
        _tell(line, ended)
    line.number = max(line.number, rest)
    ended = yield from _section(line, len(line.outline.steps), ended)
    if ended is not None:
        raise ended


def _section(
    line: Progress, end: int, ended: EffectFailed | Cancelled | None
) -> Program[EffectFailed | Cancelled | None]:
    """Runs the steps up to an index; returns how the run ends. The first failure counts, and a cancellation more."""
    try:
        yield from sequence(line, end)
    except EffectFailed as error:
        yield from _close(line, error.failed.message, in_doubt=bool(error.failed.details.get("in_doubt")))
        return ended or error
    except Cancelled as error:
        yield from _close(line, str(error) or "Cancelled.", in_doubt=error.in_doubt)
        return error
    line.number = end  # the rest may have been skipped
    return ended


def _close(line: Progress, reason: str, *, in_doubt: bool) -> Program[None]:
    """Closes the step that was interrupted, so that the steps of a section are not part of it."""
    if line.opened:
        yield StepFinished(line.opened, "in_doubt" if in_doubt else "failed", reason)
        line.opened = ""
    line.inside, line.aside = None, 0


def _tell(line: Progress, ended: EffectFailed | Cancelled | None) -> None:
    """Makes the failure visible to the sections as `$failure`. `record` lets a checkpoint restore it."""
    told: dict[str, Any] = {"step": None, "code": None, "message": None}
    if isinstance(ended, EffectFailed):
        failed = ended.failed
        told = {"step": failed.details.get("step"), "code": failed.code, "message": failed.message}
        told["record"] = {"failed": msgspec.to_builtins(failed), "seq": ended.seq}
    elif ended is not None:
        told = {"step": None, "code": "cancelled", "message": str(ended)}
    line.scope.locals["failure"] = told


def _known(told: Mapping[str, Any] | None) -> EffectFailed | Cancelled | None:
    """How the run ends, from a checkpoint within a section."""
    if told is None or told["code"] is None:
        return None
    if "record" not in told:
        return Cancelled(str(told["message"]))
    return EffectFailed(msgspec.convert(told["record"]["failed"], Failed), told["record"]["seq"])

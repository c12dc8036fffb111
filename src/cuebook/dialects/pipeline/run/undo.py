"""Undoes what a run has done when it ends without completing: each step that says how, the last one first.

Every rollback is offered to a person, who sees why and decides; it is performed, checked and recorded like any other step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Approval, Step, Words
from cuebook.dialects.pipeline.run.results import Result
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.kernel.effects import Program
from cuebook.kernel.events import Noted, StepFinished, StepStarted
from cuebook.kernel.fold.retry import RETRY_FROM
from cuebook.kernel.outcomes import Cancelled, EffectFailed, Failed

GROUP = "undo"
_UNANSWERED = frozenset({"expired"})
_SAID = 300

Attempt = Callable[[Step], Program[Result]]


def undone(progress: Progress, failed: Failed, attempt: Attempt, *, partly: str = "") -> Program[Failed]:
    """Offers to undo the completed steps, and the step that failed if it may be done in part (`partly`). Returns the failure
    with what became of each.
    """
    names = [*([partly] if partly else []), *(name for name in reversed(progress.to_undo) if name != partly)]
    steps = [step for name in names if (step := progress.rollback_of(name)) is not None]
    if not steps:
        return failed
    fates: dict[str, str] = {}
    yield StepStarted(GROUP, "Undo what was done")
    for name, step in zip(names, steps, strict=True):
        if any(fate.startswith("not answered") for fate in fates.values()):
            fates[name] = "not offered"
            continue
        words = f"{failed.message} {'It may be done in part. ' if name == partly else ''}Undo step {name}?"
        fates[name] = yield from _one(msgspec.structs.replace(step, asked=_asking(words)), attempt)
    done = [name for name, fate in fates.items() if fate == _DONE]
    yield Noted("rollback", {"fates": fates})
    left = {name: fate for name, fate in fates.items() if fate != _DONE}
    yield StepFinished(GROUP, "failed" if left else "completed", _words(done, left))
    return _with(progress, failed, done, left)


_DONE = "undone"


def _asking(words: str) -> Approval:
    return Approval(Words((words,)), ())


def _one(step: Step, attempt: Attempt) -> Program[str]:
    """What became of one rollback."""
    yield StepStarted(step.id, step.name)
    fate, status = _DONE, "completed"
    result = Result()
    try:
        result = yield from attempt(step)
        if result.failed is not None:
            fate = f"failed: {result.failed.message[:_SAID]}"
    except EffectFailed as error:
        said = error.failed.message[:_SAID]
        fate = "not answered in time" if error.failed.code in _UNANSWERED else f"not undone: {said}"
    if fate != _DONE:
        status = "skipped" if fate.startswith("not ") else "failed"
    yield StepFinished(step.id, status, "" if fate == _DONE else fate, result.text if len(result.text) else None)  # type: ignore[arg-type]
    return fate


def _words(done: list[str], left: dict[str, str]) -> str:
    parts = [f"Undone: {', '.join(done)}."] if done else []
    parts += [f"Not undone: {'; '.join(f'{name} ({fate})' for name, fate in left.items())}."] if left else []
    return " ".join(parts)


def _with(progress: Progress, failed: Failed, done: list[str], left: dict[str, str]) -> Failed:
    """The failure of the run, with what was undone, what was not, and what to do next."""
    details: dict[str, Any] = {**failed.details, "undone": done, "not_undone": left}
    run = progress.scope.run.get("id") or "RUN"
    fix = failed.fix
    if done:
        first = min(done, key=progress.place_of)
        details[RETRY_FROM] = {"step": first, "visit": progress.visit_of(first)}
        fix = f"{fix} `cuebook retry {run}` does everything again from step {first}, because it was undone.".strip()
    if left:
        hints = {name: hint for name in left if (hint := progress.hint_of(name))}
        by_hand = " ".join(f"{name}: {hint}" for name, hint in hints.items())
        also = f" To undo it by hand: {by_hand}" if by_hand else ""
        fix = f"{fix} `cuebook show {run}` shows what was not undone.{also}".strip()
    return msgspec.structs.replace(failed, message=f"{failed.message} {_words(done, left)}", fix=fix, details=details)


def cancelled(error: Cancelled) -> Failed:
    return Failed("cancelled", str(error) or "Cancelled.")

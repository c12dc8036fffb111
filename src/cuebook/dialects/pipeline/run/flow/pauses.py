"""Waits: for a time to pass, for a date, or until a condition holds. While a run waits, it is a row on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.pipeline.model import Pause, Step, Until, Words
from cuebook.dialects.pipeline.parse.moments import duration, moment, written
from cuebook.dialects.pipeline.run.attempt import attempt
from cuebook.dialects.pipeline.run.results import ENDING, Result
from cuebook.dialects.pipeline.run.retry import is_final
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.kernel.effects import Now, Program, Wait
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import EffectFailed, Failed, Moment

STRETCH = 32
"""How many attempts are made between two checkpoints."""


def pause(line: Progress, step: Step, action: Pause) -> Program[Result]:
    """Waits for a time to pass, or until a date; a date in the past is over at once."""
    now: Moment = yield Now()
    if action.seconds is not None:
        seconds = _read(line, action.seconds, duration, "a duration such as 10m")
    else:
        assert action.at is not None
        seconds = max(0.0, _read(line, action.at, moment, "a date such as 2027-03-01T08:00:00Z") - now.at)
    if seconds > 0:
        yield Wait(seconds=seconds, about=f"Step {line.label(step)} waits until {written(now.at + seconds)}.")
    return Result()


def _read(line: Progress, words: Words, read: Any, expected: str) -> float:
    text = line.scope.text(words)
    found: float | None = read(text)
    if found is None:
        message = f"line {words.line}: expected {expected}, got '{text[:60]}'."
        raise EffectFailed(Failed("bad_time", message, "Correct the value."))
    return found


def polled(line: Progress, step: Step, until: Until, inside: Mapping[str, Any] | None) -> Program[Result]:
    """Repeats a step that only reads until its condition holds. A failed attempt counts as not yet, unless it could never
    succeed."""
    if inside is None:
        began: Moment = yield Now()
        state: dict[str, Any] = {"began": began.at, "attempts": 0}
    else:
        state = {"began": inside["began"], "attempts": inside["attempts"]}
    while True:
        result = yield from _once(line, step)
        state["attempts"] += 1
        if result.failed is not None and is_final(result.failed.code):
            return result
        if _holds(line, step, until, result):
            yield Noted("until", {"text": until.text, "held": True, "attempts": state["attempts"]})
            return result.but(error="", message="") if result.failed is None else _accepted(result)
        now: Moment = yield Now()
        if now.at + until.every > state["began"] + until.timeout:
            yield Noted("until", {"text": until.text, "held": False, "attempts": state["attempts"]})
            return result.failing(_too_late(until, state["attempts"], result))
        yield Wait(seconds=until.every, about=f"Step {line.label(step)} waits until {until.text} holds.")
        if state["attempts"] % STRETCH == 0 and not line.aside:
            yield line.checkpoint(state)


def _once(line: Progress, step: Step) -> Program[Result]:
    try:
        return (yield from attempt(line, step, 1))
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        return Result().failing(error.failed, error.seq)


def _holds(line: Progress, step: Step, until: Until, result: Result) -> bool:
    """Whether the condition holds for a result of the step. A value that does not exist yet means that it does not."""
    scope = line.scope.inside()
    scope.results[step.id] = result
    try:
        return scope.holds(until.condition)
    except EffectFailed:
        return False


def _accepted(result: Result) -> Result:
    """A failed attempt that the condition waited for, as in `$probe.error`."""
    made = Result(result.text, result.facts)
    made.html = result.html
    return made


def _too_late(until: Until, attempts: int, result: Result) -> Failed:
    last = f" The last attempt failed: {result.failed.message}" if result.failed is not None else ""
    message = f"The condition {until.text} did not hold within {until.timeout:g} s ({attempts} attempts).{last}"
    return Failed("wait_timeout", message, "Raise the timeout of its wait, or find out why it does not hold.")

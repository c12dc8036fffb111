"""Trying a step again: only what is known to have failed, with a journaled wait between attempts."""

from __future__ import annotations

from collections.abc import Callable

from cuebook.dialects.pipeline.model import Http, Llm, Mcp, Retry, Step
from cuebook.dialects.pipeline.outputs import VIOLATED
from cuebook.dialects.pipeline.postconditions import FAILED, UNSEEN
from cuebook.dialects.pipeline.results import ENDING, Facts, Result
from cuebook.kernel.budgets import SPENT
from cuebook.kernel.doubts import UNBEGUN, never_began
from cuebook.kernel.effects import Program, Random, SendHttp, Wait
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import Drawn, Failed

_UNRESOLVED = frozenset(
    {"missing_argument", "missing_value", "skipped_reference", "no_json", "incomplete_output", "bad_url"}
)
"""Failures of a step that never came to its effect."""

_SETTLED = ENDING | (UNBEGUN - {"secret_unreadable"}) | _UNRESOLVED | {UNSEEN, SPENT}
"""Failures that another attempt would only meet again, what a person has decided, and what was cut when the run's time was over:
it is not tried again. A keyring may be unlocked by then.
"""

_UNHEARD = frozenset({"timeout", "server_failed", "dropped", "bad_result", SPENT})
"""Failures of a tool after which nobody knows whether it did something, unless the call was never sent."""


_MINUTE = 60.0


def attempts(step: Step, once: Callable[[int], Program[Result]]) -> Program[Result]:
    """What comes of a step in as many attempts as it may have. `once` is told which one it is."""
    number = 1
    while True:
        result = yield from once(number)
        failed = result.failed
        if failed is None or step.retry is None or not _may_repeat(step, step.retry, number, failed, result.facts):
            return result
        delay = yield from _delay(step.retry, number)
        told = {"number": number, "code": failed.code, "message": failed.message, "delay": delay}
        yield Noted("attempt", told)
        if delay > 0:
            yield Wait(seconds=delay)
        number += 1


def _may_repeat(step: Step, retry: Retry, number: int, failed: Failed, facts: Facts) -> bool:
    return number < retry.max_attempts and failed.code not in _SETTLED and not in_the_dark(step, failed, facts)


def in_the_dark(step: Step, failed: Failed, facts: Facts) -> bool:
    """Whether it happened, or may have happened elsewhere all the same, or in part. A command that was ended is known to
    be over. What was done is not done again because its output is not what it should be.
    """
    if step.reads_only:
        return False
    match step.action:
        case Llm():
            return facts.acted
        case _ if failed.code in (VIOLATED, FAILED):
            return facts.status is None or facts.status < 400
        case Http():
            return bool(failed.details.get("sent"))
        case Mcp():
            return failed.code in _UNHEARD and failed.details.get("sent") is not False
        case _:
            return False


def nothing_done(step: Step, failed: Failed, facts: Facts) -> bool:
    """Whether there is nothing to undo."""
    kind = SendHttp.__name__ if isinstance(step.action, Http) else ""
    return failed.code in _UNRESOLVED or (facts.status is None and never_began(kind, failed))


def _delay(retry: Retry, number: int) -> Program[float]:
    """Seconds before the next attempt."""
    delay = retry.delay * (2 ** (number - 1) if retry.backoff == "exponential" else 1)
    delay = min(delay, max(_MINUTE, retry.delay) if retry.max_delay is None else retry.max_delay)
    if retry.jitter and delay > 0:
        drawn: Drawn = yield Random()
        delay *= 0.5 + drawn.value / 2
    return delay

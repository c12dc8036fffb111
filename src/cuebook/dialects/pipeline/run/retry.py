"""Retries a step that is known to have failed, with a journaled wait between attempts."""

from __future__ import annotations

from collections.abc import Callable

from cuebook.dialects.pipeline.model import Child, Http, Llm, Mcp, NodeCall, Retry, Step, Web
from cuebook.dialects.pipeline.run.outputs import VIOLATED
from cuebook.dialects.pipeline.run.postconditions import FAILED, UNSEEN
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result
from cuebook.kernel.effects import Program, Random, SendHttp, Wait
from cuebook.kernel.engine.budget import SPENT
from cuebook.kernel.engine.in_doubt import UNBEGUN, never_began
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import Drawn, Failed

_UNRESOLVED = frozenset(
    {"missing_argument", "missing_value", "skipped_reference", "no_json", "incomplete_output", "bad_url"}
)
"""Failures of a step before its effect."""

_FINAL = ENDING | (UNBEGUN - {"secret_unreadable"}) | _UNRESOLVED | {UNSEEN, SPENT}
"""Failures that are not retried: they would only recur, result from a user's decision, or mean that the run was out of
time. An unreadable secret is retried, because a keyring may be unlocked in the meantime.
"""

_UNCERTAIN = frozenset({"timeout", "server_failed", "dropped", "bad_result", SPENT})
"""Tool failures after which it is unknown whether the tool did something, unless the call was never sent."""


_MINUTE = 60.0


def attempts(step: Step, once: Callable[[int], Program[Result]]) -> Program[Result]:
    """Makes as many attempts as the step allows and returns the last result. `once` receives the number of the
    attempt."""
    number = 1
    while True:
        result = yield from once(number)
        failed = result.failed
        if failed is None or step.retry is None or not _may_repeat(step, step.retry, number, failed, result.facts):
            return result
        delay = yield from _delay(step.retry, number)
        attempt = {"number": number, "code": failed.code, "message": failed.message, "delay": delay}
        yield Noted("attempt", attempt)
        if delay > 0:
            yield Wait(seconds=delay)
        number += 1


def is_final(code: str) -> bool:
    """Whether a failure would only recur."""
    return code in _FINAL


def _may_repeat(step: Step, retry: Retry, number: int, failed: Failed, facts: Facts) -> bool:
    return number < retry.max_attempts and failed.code not in _FINAL and not may_have_happened(step, failed, facts)


def may_have_happened(step: Step, failed: Failed, facts: Facts) -> bool:
    """Whether the effect happened, or may have happened wholly or in part despite the failure. A command that was
    killed is known to have stopped. An action that succeeded is not repeated only because its output is wrong.
    """
    if step.reads_only and not isinstance(step.action, Child):
        return False
    match step.action:
        case Llm():
            return facts.acted
        case Child():  # what it has done would be done again
            return True
        case _ if failed.code in (VIOLATED, FAILED):
            return facts.status is None or facts.status < 400
        case Http():
            return bool(failed.details.get("sent"))
        case Web():
            return bool(failed.details.get("sent"))
        case NodeCall():
            return bool(failed.details.get("sent")) and not step.idempotent
        case Mcp():
            return failed.code in _UNCERTAIN and failed.details.get("sent") is not False
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

"""What a node is told before it tries again: the guidance of its author or a reflection of the model, and what failed.

Only the latest failure counts. A reflection that fails or says nothing is replaced by the plain words.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.dialects.graph.evaluating import tried
from cuebook.dialects.graph.model import Retry
from cuebook.dialects.graph.results import Result, Verdict
from cuebook.kernel.context import Context
from cuebook.kernel.effects import All, AskModel, Program
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed, Reply

_FAILED = "## Previous attempt failed evaluation"
_REFLECT = "Diagnose in two to four sentences what went wrong, and how you will go about it this time."


def preamble(retry: Retry, base: str, result: Result, context: Context, model: str | None) -> Program[str]:
    failures = _failures(result.verdicts)
    if retry.mode == "static":
        return f"## Retry guidance\n\n{retry.text}\n\n{_FAILED}\n\n{failures}"
    if retry.mode != "default":
        said = yield from _reflection(retry, base, failures, result, context, model)
        if said:
            return f"## Reflection on previous attempt\n\n{said}\n\n{_FAILED}\n\n{failures}"
    return f"{_FAILED}\n\n{failures}\n\nMend this and try again."


def _failures(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(f"  - {verdict}" for verdict in verdicts if not verdict.passed)


def _reflection(
    retry: Retry, base: str, failures: str, result: Result, context: Context, model: str | None
) -> Program[str]:
    question = (
        f"You attempted this:\n\n{base}\n\nThe evaluation failed:\n{failures}\n\n"
        f"Tools that you called:\n{tried(result.calls)}\n\n{retry.text or _REFLECT}"
    )
    # Within an `All`, its words are none of the node's own, and its failure is a value.
    outcomes: tuple[Reply | Failed, ...] = yield All((AskModel(question, context, model),))
    reply = outcomes[0]
    said = "" if isinstance(reply, Failed) else reply.text.strip()
    if not said:
        why = str(reply) if isinstance(reply, Failed) else "it said nothing"
        yield Warned(
            "reflection", f"The reflection before the next attempt failed ({why}); plain words are used instead."
        )
    return said

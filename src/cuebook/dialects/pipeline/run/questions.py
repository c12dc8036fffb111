"""A step that asks a person: its answer is its output."""

from __future__ import annotations

from cuebook.dialects.pipeline.model import Question, Step
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import Facts, Result, parsed
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskHuman, Program
from cuebook.kernel.outcomes import Answer


def question(step: Step, action: Question, scope: Scope) -> AskHuman:
    """The effect that asks."""
    return AskHuman(
        scope.text(action.text),
        "form" if action.schema is not None else "input",
        default=action.default,
        expires_after=action.expires,
        label=step.id,
        schema=action.schema,
        by=action.by,
    )


def asked(step: Step, action: Question, scope: Scope) -> Program[Result]:
    answer: Answer = yield question(step, action, scope)
    if action.schema is None:
        return Result(Text(answer.value), Facts(is_text=True))
    value = parsed(answer.value)
    if isinstance(value, str):
        return Result(Text(value), Facts(is_text=True))
    return Result(Text(answer.value))

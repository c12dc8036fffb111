"""What the approver of a step reads and sees, and who decides. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.dialects.people import first_line, offered
from cuebook.dialects.pipeline.model import Step, StepRef, Words
from cuebook.dialects.pipeline.parse.references import as_written
from cuebook.dialects.pipeline.run.action import hint_of, preview, prompt, shown_output
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import written
from cuebook.kernel.effects import OUTPUT_OF
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.votes import Rule


def question(step: Step, scope: Scope, attempt: int, label: str = "") -> str:
    """The question for the approver: the author's text, or one that names the step."""
    if step.asked is None or step.asked.text is None:
        return prompt(step, attempt, label)
    again = f" (attempt {attempt})" if attempt > 1 else ""
    return f"{first_line(_text(step.asked.text, scope))}{again}"


def evidence(step: Step, scope: Scope, referred: Sequence[str], last: str) -> dict[str, str]:
    """What the approver sees in addition to the action: what the author chose, or else the outputs that the step uses."""
    asked = step.asked
    made: dict[str, str] = {}
    if asked is not None and asked.text is not None:
        text = _text(asked.text, scope)
        if text != first_line(text):
            made["request"] = text
    if asked is None or asked.show is None:
        return {**made, **preview(step, scope, referred, last)}
    for name, words in asked.show:
        made[name or _name(words)] = _shown(words, scope)
    hint = hint_of(step, scope)
    return {**made, "to undo it": hint} if hint else made


def rule(step: Step, requested: int) -> Rule | None:
    """Who decides. Changes can be requested only so often."""
    if step.asked is None or step.asked.rule == Rule():
        return None
    return offered(step.asked.rule, requested, step.asked.changes_at_most)


def _name(words: Words) -> str:
    part = words.parts[0] if len(words.parts) == 1 else None
    if isinstance(part, StepRef) and part.path == ("stdout",):
        return f"{OUTPUT_OF}{part.step}"
    text = as_written(words)
    return text[2:-1] if part is not None and text.startswith("${") else text


def _shown(words: Words, scope: Scope) -> str:
    """The evidence; if there is none, the reason, because evidence that is missing must not go unnoticed."""
    part = words.parts[0] if len(words.parts) == 1 else None
    if isinstance(part, StepRef) and part.path == ("stdout",) and part.step in scope.results:
        result = scope.results[part.step]
        if not result.facts.skipped:
            return shown_output(result) or "(no output)"
    return _text(words, scope)


def _text(words: Words, scope: Scope) -> str:
    try:
        return written(scope.value(words))
    except EffectFailed as error:
        return f"(not available: {error.failed.message})"

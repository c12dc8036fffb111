"""What the approver of a step reads and sees, and requests for changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.dialects.markdown.model import Approval, Step
from cuebook.dialects.markdown.run.scope import Scope
from cuebook.dialects.people import Feedback, first_line, offered
from cuebook.kernel.effects import OUTPUT_OF, AskApproval
from cuebook.kernel.events import Warned
from cuebook.kernel.votes import Rule


class Question(msgspec.Struct, frozen=True):
    """The approval of a step, as an effect needs it."""

    approval: str = ""
    rule: Rule | None = None
    preview: dict[str, str] = {}

    def effect(self) -> AskApproval:
        return AskApproval(approval=self.approval, rule=self.rule, preview=self.preview)


def question(scope: Scope, step: Step, asked: Approval, warnings: list[Warned]) -> Question:
    """What the approver of a step is asked, by the values so far."""
    text = scope.render(step.label, asked.text, warnings).strip() or f"Approve step {step.label}: {step.title}?"
    shown = first_line(text)
    preview = {"request": text} if shown != text else {}
    for name in asked.show:
        preview[name] = scope.values.get(name, f"(not available: nothing has set {name})")
    if not asked.show and scope.last is not None:
        label, output = scope.last
        preview[f"{OUTPUT_OF}{label}"] = str(output)
    rule = offered(asked.rule, scope.requests.get(step.label, 0), asked.changes_at_most)
    return Question(shown, None if rule == Rule() else rule, preview)


def position_of(steps: Sequence[Step], feedback: Feedback, before: int) -> int | None:
    """The position of the step to which a request for changes leads; None if it is not among the earlier ones."""
    return next((number for number, step in enumerate(steps[:before]) if step.label == feedback.to), None)


def noted(feedback: Feedback, count: int) -> dict[str, Any]:
    return {"feedback": feedback.text, "by": feedback.by, "step": feedback.to, "count": count}

"""A playbook as earlier interpreters read it, for runs that they started."""

from __future__ import annotations

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.markdown.model import Book, Branch, Step


def without_people(book: Book) -> Book:
    """The playbook without forms, which were questions of an unknown type, and without approvals, which were text."""
    asked = [step for step in book.walk() if _is_form(step) or step.approval is not None]
    if not asked:
        return book
    unknown = [
        Problem('Invalid elicit type: "form"', step.elicitation.line, "Use input, confirm or select.", "W5")
        for step in asked
        if step.elicitation is not None and _is_form(step)
    ]
    steps = tuple(_without(step) for step in book.steps)
    return msgspec.structs.replace(book, steps=steps, warnings=(*book.warnings, *unknown))


def _without(step: Step) -> Step:
    text = step.content
    if step.approval is not None:
        text = f"{text}\n{step.approval.written}".strip()
    branches = tuple(Branch(one.condition, tuple(map(_without, one.steps)), one.line) for one in step.branches)
    asked = None if _is_form(step) else step.elicitation
    return msgspec.structs.replace(step, content=text, elicitation=asked, approval=None, branches=branches)


def _is_form(step: Step) -> bool:
    return step.elicitation is not None and step.elicitation.type == "form"

"""What the steps of a playbook have to do with each other and with the world, for continuing with a changed text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.dialect import World
from cuebook.dialects.markdown.model import Book, Step, answers_only, approves_only
from cuebook.dialects.markdown.parse import answer_names
from cuebook.dialects.markdown.run.placeholders import placeholders
from cuebook.dialects.markdown.run.tools import BUILT_IN_CONNECTION, PLAYBOOK
from cuebook.kernel.tool_names import READING


def world(step: Step) -> World | None:
    """What a step has to do with the world around the run; None if that is not known."""
    if step.branches:
        return None
    if step.tool is not None:
        if step.tool.connection == PLAYBOOK:
            return None
        is_reading = step.tool.connection == BUILT_IN_CONNECTION and step.tool.tool in READING
        return "reads" if is_reading else "writes"
    return "none"


def uses(book: Book, step: Step) -> frozenset[str] | None:
    """The steps that may set a value that a step refers to; None if it may depend on everything before it, as a model does,
    which sees all earlier outputs.
    """
    asks = answers_only(step) or approves_only(step)
    if step.branches or not (step.tool or asks) or (step.approval is not None and not step.approval.show):
        return None
    names = set(_names(step))
    return frozenset(
        one.label
        for one in book.steps
        for part in (one, *(sub for branch in one.branches for sub in branch.steps))
        if one is not step and names.intersection(_set_by(part))
    )


def _names(step: Step) -> Iterator[str]:
    texts = []
    if step.tool is not None:
        texts.append(step.tool.arguments)
    elif step.elicitation is not None:
        texts += [step.elicitation.prompt, *step.elicitation.options, step.elicitation.default or ""]
    if step.approval is not None:
        texts.append(step.approval.text)
        yield from step.approval.show
    yield from (found.name for text in texts for found in placeholders(text))


def _set_by(step: Step) -> set[str]:
    answers = answer_names(step) if step.elicitation is not None else ()
    return {*answers, *((step.output.name,) if step.output is not None else ())}

"""A Markdown playbook as boxes and arrows: questions, model calls, tool calls, and the branches between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuebook.dialects.markdown.model import (
    Book,
    Branch,
    Step,
    answers_only,
    approves_only,
    branches_on_itself,
    condition_words,
    reaches_branches,
)
from cuebook.dialects.markdown.run.tools import tool_name
from cuebook.dialects.presentation.drawing import ArrowKind, Chain, Drawing, Progress


def drawing(book: Book, progress: Progress | None = None) -> Drawing:
    chain = Chain(progress)
    names = [declared.name for declared in book.inputs]
    chain.add("start", "start", [book.title, *([f"inputs: {', '.join(names)}"] if names else [])])
    for number, step in enumerate(book.steps, start=1):
        _add_step(chain, book, f"s{number}", step)
    chain.add("finish", "end", [f"artifact: {book.artifact_type}" if book.artifact_type else "end"])
    return chain.drawing(book.title)


def _add_step(chain: Chain, book: Book, id: str, step: Step) -> None:
    heading = f"Step {step.label}: {step.title}"
    branches = reaches_branches(book, step)
    runs_itself = not branches or branches_on_itself(book, step)
    if step.approval is not None:
        chain.add(f"{id}_ask", "person", [*([heading] if approves_only(step) else []), "approval"], step.label)
        if approves_only(step):
            return
    if step.tool is not None:
        gives = _gives(step) if runs_itself else ()
        chain.add(id, "tool", [heading, f"calls {tool_name(step.tool)}", *gives], step.label)
    elif answers_only(step):
        chain.add(id, "person", [heading, *_asks(step), *_gives(step)], step.label)
    else:
        if step.elicitation is not None:
            chain.add(f"{id}_q", "person", [heading, *_asks(step)], step.label)
        if runs_itself:
            chain.add(id, "step", [heading, *_begins(step), *_gives(step)], step.label)
    if branches:
        words = [_variables(step)] if runs_itself else [heading, _variables(step), *_gives(step)]
        chain.add(f"{id}_b", "choice", words, step.label)
        _add_branches(chain, book, id, step.branches)


def _add_branches(chain: Chain, book: Book, id: str, branches: Sequence[Branch]) -> None:
    chosen = f"{id}_b"
    ends: list[tuple[str, str, ArrowKind]] = []
    for number, branch in enumerate(branches, start=1):
        chain.loose = [(chosen, condition_words(branch), "way")]
        for place, sub in enumerate(branch.steps, start=1):
            _add_step(chain, book, f"{id}_{number}_{place}", sub)
        ends += chain.loose
    if all(branch.condition is not None for branch in branches):
        ends.append((chosen, "otherwise", "otherwise"))
    chain.loose = ends


def _asks(step: Step) -> Iterator[str]:
    asked = step.elicitation
    if asked is None:
        return
    yield f"asks: {asked.prompt}" if asked.prompt else "asks the user"
    if asked.type == "select" and asked.options:
        yield f"one of: {', '.join(asked.options)}"


def _begins(step: Step) -> Iterator[str]:
    if step.prompt is not None:
        yield f"begins with {step.prompt.argument}"


def _gives(step: Step) -> Iterator[str]:
    if step.output is not None:
        yield f"sets {step.output.name}"


def _variables(step: Step) -> str:
    names = dict.fromkeys(branch.condition.variable for branch in step.branches if branch.condition is not None)
    return f"which {', '.join(names)}?"

"""The summary of a Markdown playbook, and the outline that `cuebook parse` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuebook.dialects.markdown.model import Book, Output, Step, condition_words
from cuebook.dialects.markdown.run.tools import tool_name
from cuebook.dialects.people import approval_words
from cuebook.dialects.presentation.summary import Need, Row, Summary, input_words, listed
from cuebook.formats.words import counted, short

_LINE = 80


def summary(book: Book) -> Summary:
    steps = list(book.walk())
    questions = sum(step.elicitation is not None for step in steps)
    approvals = sum(step.approval is not None for step in steps)
    tools = list(dict.fromkeys(tool_name(step.tool) for step in steps if step.tool is not None))
    prompts = list(dict.fromkeys(step.prompt.argument for step in steps if step.prompt is not None))
    outputs = list(dict.fromkeys(step.output.name for step in steps if step.output is not None))
    return Summary(
        title=book.title,
        description=book.description,
        inputs=book.inputs,
        rows=(
            *(Row("step", f"{step.label} {step.title}{' (branches)' if step.branches else ''}") for step in book.steps),
            *((Row("questions", counted(questions, "question")),) if questions else ()),
            *listed(tools=tools, prompts=prompts, values=outputs, artifact=[book.artifact_type]),
        ),
        data={
            "input_count": len(book.inputs),
            "step_count": len(book.steps),
            "step_titles": [step.title for step in book.steps],
            "artifact_type": book.artifact_type,
            "has_branching": any(step.branches for step in steps),
            "has_elicitation": questions > 0,
            "has_tool_calls": bool(tools),
            "directives_used": sorted(_directives(steps)),
            "outputs": outputs,
            "tools": tools,
            "prompts": prompts,
        },
        needs=(
            Need("model", "any"),
            *(Need("tool", name) for name in tools),
            *(Need("text", name) for name in prompts),
            *(
                (Need("you", "answer a question" if questions == 1 else f"answer {questions} questions"),)
                if questions
                else ()
            ),
            *(
                (Need("you", "approve a step" if approvals == 1 else f"approve {approvals} steps"),)
                if approvals
                else ()
            ),
        ),
    )


def _directives(steps: Sequence[Step]) -> set[str]:
    uses = {"@output": "output", "@elicit": "elicitation", "@prompt": "prompt", "@tool": "tool", "@approve": "approval"}
    return {name for name, field in uses.items() if any(getattr(step, field) is not None for step in steps)}


def outline(book: Book) -> Iterator[str]:
    yield book.title
    if book.description:
        yield f"  {short(book.description, _LINE)}"
    if book.system:
        yield f"system: {short(book.system, _LINE)}"
    if book.inputs:
        yield "inputs:"
        yield from (f"  {input_words(declared)}" for declared in book.inputs)
    yield "steps:"
    for step in book.steps:
        yield from _step_lines(step, "  ")
    if book.artifact_type:
        yield f"artifact: {book.artifact_type}"
    for problem in book.warnings:
        where = f"line {problem.line}: " if problem.line else ""
        yield f"warning: {where}{problem.message}"


def _step_lines(step: Step, indent: str) -> Iterator[str]:
    yield f"{indent}{step.label} {step.title} (line {step.line})"
    inner = f"{indent}  "
    yield from (f"{inner}{words}" for words in _directive_words(step))
    for branch in step.branches:
        words = condition_words(branch)
        yield f"{inner}{words if branch.condition is None else f'if {words}'}"
        for sub in branch.steps:
            yield from _step_lines(sub, f"{inner}  ")


def _directive_words(step: Step) -> Iterator[str]:
    """A phrase for each directive of the step."""
    if step.approval is not None:
        yield f"asks for approval: {short(step.approval.text or step.title, _LINE)}"
        yield from approval_words(step.approval.rule)
    if step.tool is not None:
        yield f"calls {tool_name(step.tool)}"
    if step.elicitation is not None:
        options = f" ({', '.join(step.elicitation.options)})" if step.elicitation.options else ""
        yield f"asks the user: {short(step.elicitation.prompt or step.title, _LINE)}{options}"
    if step.prompt is not None:
        yield f"begins with {step.prompt.argument}"
    if step.output is not None:
        yield f"sets {_output_words(step.output)}"


def _output_words(output: Output) -> str:
    kind = f" ({': '.join(filter(None, (output.type, ', '.join(output.options))))})" if output.type else ""
    field = f', from the field "{output.extract}"' if output.extract else ""
    return f"{output.name}{kind}{field}"

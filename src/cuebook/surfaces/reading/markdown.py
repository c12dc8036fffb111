"""Markdown playbooks as they are read: an outline, and what `summary` says of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cuebook.dialects.markdown.model import Book, DeclaredInput, Output, Step
from cuebook.dialects.markdown.tools import tool_name
from cuebook.surfaces.reading.foreseeing import condition_words
from cuebook.surfaces.wording import counted


def summary_of(book: Book) -> dict[str, Any]:
    steps = list(book.walk())
    return {
        "title": book.title,
        "description": book.description,
        "input_count": len(book.inputs),
        "step_count": len(book.steps),
        "step_titles": [step.title for step in book.steps],
        "artifact_type": book.artifact_type,
        "has_branching": any(step.branches for step in steps),
        "has_elicitation": any(step.elicitation for step in steps),
        "has_tool_calls": any(step.tool for step in steps),
        "directives_used": sorted(_directives(steps)),
        "inputs": [{"name": one.name, "type": one.type, "required": one.required} for one in book.inputs],
        "outputs": list(dict.fromkeys(step.output.name for step in steps if step.output is not None)),
        "tools": list(dict.fromkeys(tool_name(step.tool) for step in steps if step.tool is not None)),
        "prompts": list(dict.fromkeys(step.prompt.argument for step in steps if step.prompt is not None)),
    }


def _directives(steps: Sequence[Step]) -> set[str]:
    uses = {"@output": "output", "@elicit": "elicitation", "@prompt": "prompt", "@tool": "tool"}
    return {name for name, field in uses.items() if any(getattr(step, field) is not None for step in steps)}


def summary_lines(book: Book) -> Iterator[str]:
    made = summary_of(book)
    yield book.title
    if book.description:
        yield f"\n{book.description}\n"
    for declared in book.inputs:
        yield f"input     {_input_line(declared)}"
    for step in book.steps:
        yield f"step      {step.label} {step.title}{' (branches)' if step.branches else ''}"
    for name, words in (
        ("questions", counted(sum(step.elicitation is not None for step in book.walk()), "question")),
        ("tools", ", ".join(made["tools"])),
        ("prompts", ", ".join(made["prompts"])),
        ("values", ", ".join(made["outputs"])),
        ("artifact", book.artifact_type),
    ):
        if words and not (name == "questions" and not made["has_elicitation"]):
            yield f"{name:<10}{words}"


def outline(book: Book) -> Iterator[str]:
    yield book.title
    if book.description:
        yield f"  {_short(book.description)}"
    if book.system:
        yield f"system: {_short(book.system)}"
    if book.inputs:
        yield "inputs:"
        yield from (f"  {_input_line(declared)}" for declared in book.inputs)
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
    yield from (f"{inner}{words}" for words in _doings(step))
    for branch in step.branches:
        words = condition_words(branch)
        yield f"{inner}{words if branch.condition is None else f'if {words}'}"
        for sub in branch.steps:
            yield from _step_lines(sub, f"{inner}  ")


def _input_line(declared: DeclaredInput) -> str:
    values = f": {', '.join(declared.options)}" if declared.options else ""
    need = "required" if declared.required else f"default: {_short(declared.default or '', 40)}"
    about = f": {declared.description}" if declared.description else ""
    return f"{declared.name} ({declared.type}{values}; {need}){about}"


def _doings(step: Step) -> Iterator[str]:
    """What the step's directives say, each in a few words."""
    if step.tool is not None:
        yield f"calls {tool_name(step.tool)}"
    if step.elicitation is not None:
        options = f" ({', '.join(step.elicitation.options)})" if step.elicitation.options else ""
        yield f"asks a person: {_short(step.elicitation.prompt or step.title)}{options}"
    if step.prompt is not None:
        yield f"begins with {step.prompt.argument}"
    if step.output is not None:
        yield f"gives {_output_words(step.output)}"


def _output_words(output: Output) -> str:
    kind = f" ({': '.join(filter(None, (output.type, ', '.join(output.options))))})" if output.type else ""
    field = f', from the field "{output.extract}"' if output.extract else ""
    return f"{output.name}{kind}{field}"


def _short(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"

"""The document of a Markdown playbook: frozen values with line numbers, independent of parsing and running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from cuebook.dialects.dialect import Document, Input
from cuebook.dialects.findings import Problem
from cuebook.kernel.effects import QuestionType
from cuebook.kernel.events import PlannedStep

ARTIFACT_TYPES = ("markdown", "json", "mermaid", "chartjs", "html_css", "javascript", "typescript")


class DeclaredInput(Input, frozen=True):
    """An input with the line that declares it."""

    line: int = 0


class Output(msgspec.Struct, frozen=True):
    """`@output`: the name under which a step's result is stored."""

    name: str
    type: str = ""
    """The declared type; empty if there is none. The stored value is always text."""
    options: tuple[str, ...] = ()
    extract: str = ""
    """A field of a JSON object in the reply, whose value is stored instead of the whole reply."""
    line: int = 0


class Elicitation(msgspec.Struct, frozen=True):
    """`@elicit`: a question to the user."""

    type: QuestionType
    prompt: str = ""
    options: tuple[str, ...] = ()
    default: str | None = None
    line: int = 0


class ToolUse(msgspec.Struct, frozen=True):
    """`@tool`: a tool call that replaces the model call."""

    connection: str
    tool: str
    arguments: str = ""
    """The JSON as written, with placeholders; empty if there are no arguments."""
    line: int = 0


class PromptUse(msgspec.Struct, frozen=True):
    """`@prompt`: text that is inserted before the step's own text."""

    argument: str
    """As written: `library:name`, `file:path`, `mcp:server/name`, `{{variable}}`, or a bare name."""
    line: int = 0


class Condition(msgspec.Struct, frozen=True):
    variable: str
    operator: Literal["==", "!="]
    value: str
    source: Literal["input", "step_output"] = "input"


class Branch(msgspec.Struct, frozen=True):
    condition: Condition | None
    """The condition; None for `else`."""
    steps: tuple[Step, ...]
    line: int = 0


class Step(msgspec.Struct, frozen=True):
    number: int
    """The number as written. Steps run in document order. A sub-step has the number of its step."""
    label: str
    """The number; for a sub-step the number and a letter."""
    title: str
    content: str
    """The text for the model, with placeholders but without directives and branches."""
    line: int
    prompt: PromptUse | None = None
    output: Output | None = None
    elicitation: Elicitation | None = None
    tool: ToolUse | None = None
    branches: tuple[Branch, ...] = ()

    @property
    def branches_on_itself(self) -> bool:
        """Whether a condition refers to the output of this step, so that the step runs before its branch is chosen.

        In a step that only branches, such a condition refers to the value that an earlier step has set.
        """
        does = self.content or self.prompt or self.elicitation or self.tool
        own = self.output.name if self.output is not None and does else ""
        return bool(own) and any(b.condition is not None and b.condition.variable == own for b in self.branches)


class Book(Document, msgspec.Struct, frozen=True):
    """The document of a Markdown playbook."""

    title: str
    steps: tuple[Step, ...]
    inputs: tuple[DeclaredInput, ...] = ()
    system: str = ""
    description: str = ""
    """Shown to people; not sent to models."""
    artifact_type: str = ""
    """One of `ARTIFACT_TYPES`, a placeholder that is filled in at the end of the run, or empty."""
    warnings: tuple[Problem, ...] = ()
    """The warnings that the format defines. `check` finds other likely mistakes."""
    faults: tuple[Problem, ...] = ()
    """Errors from `check` that do not stop a run, although the run will not do what the playbook says."""

    @property
    def admits_agents(self) -> bool:
        return True

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(step.label, step.title) for step in self.steps)

    @property
    def every_step(self) -> tuple[PlannedStep, ...]:
        return tuple({step.label: PlannedStep(step.label, step.title) for step in self.walk()}.values())

    def walk(self) -> Iterator[Step]:
        """All steps and sub-steps, in document order."""
        for step in self.steps:
            yield step
            for branch in step.branches:
                yield from branch.steps


# --- properties of steps


def branches_on_itself(book: Book, step: Step) -> bool:
    """Whether the step runs before its branch is chosen, because a condition refers to its output and not to an input."""
    own = step.output.name if step.output is not None else ""
    return step.branches_on_itself and all(declared.name != own for declared in book.inputs)


def reaches_branches(book: Book, step: Step) -> bool:
    """Whether the branches can be taken. A step with a tool ignores them, unless they depend on the tool's result."""
    return bool(step.branches) and (step.tool is None or branches_on_itself(book, step))


def answers_only(step: Step) -> bool:
    """Whether the step only asks a question, so that the answer is its output."""
    asked = step.elicitation is not None and step.tool is None
    return asked and not step.content and step.prompt is None and not step.branches


def condition_words(branch: Branch) -> str:
    condition = branch.condition
    return "otherwise" if condition is None else f'{condition.variable} {condition.operator} "{condition.value}"'

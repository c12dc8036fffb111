"""The document of a Markdown playbook: frozen values with line numbers, independent of parsing and running."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from cuebook.dialects.dialect import Document, Input
from cuebook.dialects.findings import Problem
from cuebook.kernel.effects import QuestionType
from cuebook.kernel.events import PlannedStep
from cuebook.kernel.votes import Rule

_NAME = re.compile(r"\w+", re.ASCII)

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
    schema: dict[str, Any] | None = None
    """The JSON Schema of a form. Each field of the answer is a value with its name."""
    by: tuple[str, ...] = ()
    """Who may answer: names, and roles as `role:NAME`; if empty, everyone who may answer questions."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of a form that placeholders and conditions can refer to."""
        named = (self.schema or {}).get("properties")
        return tuple(name for name in named if _NAME.fullmatch(name)) if isinstance(named, dict) else ()


class Approval(msgspec.Struct, frozen=True):
    """`@approve`: what an approver reads and sees before the step is done, and who decides."""

    text: str = ""
    show: tuple[str, ...] = ()
    """The names of the values that are shown."""
    rule: Rule = Rule()
    changes_at_most: int = 0
    """How often changes can be requested."""
    line: int = 0
    written: str = ""
    """The directive as written."""


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
    approval: Approval | None = None

    @property
    def own_title(self) -> str:
        """The title as written; empty for the only sub-step of a branch without headings."""
        letter = self.label.removeprefix(str(self.number))
        return "" if letter and self.title == f"Branch {letter}" else self.title

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


def approves_only(step: Step) -> bool:
    """Whether the step only asks for an approval, so that it has no output."""
    does = step.content or step.elicitation or step.prompt or step.tool or step.branches
    return step.approval is not None and not does


def condition_words(branch: Branch) -> str:
    condition = branch.condition
    return "otherwise" if condition is None else f'{condition.variable} {condition.operator} "{condition.value}"'

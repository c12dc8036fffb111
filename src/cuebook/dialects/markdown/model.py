"""A Markdown playbook as frozen values with line numbers. It knows neither how it was read nor how it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from cuebook.dialects.registry import Input, Problem
from cuebook.kernel.effects import QuestionType
from cuebook.kernel.events import PlannedStep

ARTIFACT_TYPES = ("markdown", "json", "mermaid", "chartjs", "html_css", "javascript", "typescript")


class DeclaredInput(Input, frozen=True):
    """An input with the line that declares it."""

    line: int = 0


class Output(msgspec.Struct, frozen=True):
    """`@output`: the name under which a step's result is kept."""

    name: str
    type: str = ""
    """Empty where none was written. It never changes what is stored, which is a text."""
    options: tuple[str, ...] = ()
    extract: str = ""
    """The field of a JSON object in the reply that is kept instead of the whole reply."""
    line: int = 0


class Elicitation(msgspec.Struct, frozen=True):
    """`@elicit`: a question to a person."""

    type: QuestionType
    prompt: str = ""
    options: tuple[str, ...] = ()
    default: str | None = None
    line: int = 0


class ToolUse(msgspec.Struct, frozen=True):
    """`@tool`: a tool that is called instead of a model."""

    connection: str
    tool: str
    arguments: str = ""
    """JSON as it was written, placeholders included; empty where there is none."""
    line: int = 0


class PromptUse(msgspec.Struct, frozen=True):
    """`@prompt`: a text that goes before the step's own."""

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
    """None for `else`."""
    steps: tuple[Step, ...]
    line: int = 0


class Step(msgspec.Struct, frozen=True):
    number: int
    """As written; steps run in the order of the document. A sub-step has its parent's."""
    label: str
    """The number, or number and letter of a sub-step."""
    title: str
    content: str
    """What the model is asked, before placeholders are filled in: without directives and branches."""
    line: int
    prompt: PromptUse | None = None
    output: Output | None = None
    elicitation: Elicitation | None = None
    tool: ToolUse | None = None
    branches: tuple[Branch, ...] = ()

    @property
    def branches_on_itself(self) -> bool:
        """Whether a condition asks for this step's own output: then it runs before the branch is chosen.

        A step that does nothing but branch has no output before: there the condition means what an earlier step set.
        """
        does = self.content or self.prompt or self.elicitation or self.tool
        own = self.output.name if self.output is not None and does else ""
        return bool(own) and any(b.condition is not None and b.condition.variable == own for b in self.branches)


class Book(msgspec.Struct, frozen=True):
    """The document of a Markdown playbook."""

    title: str
    steps: tuple[Step, ...]
    inputs: tuple[DeclaredInput, ...] = ()
    system: str = ""
    description: str = ""
    """For people; no model sees it."""
    artifact_type: str = ""
    """One of `ARTIFACT_TYPES`, `{{name}}` where it is known only at the end, or empty."""
    warnings: tuple[Problem, ...] = ()
    """What the format's own readers warn of. Everything else that looks like a mistake is found by `check`."""
    faults: tuple[Problem, ...] = ()
    """What `check` calls an error, and a run does not stop at: it certainly runs otherwise than it is written."""

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(step.label, step.title) for step in self.steps)

    def walk(self) -> Iterator[Step]:
        """Every step and sub-step, as they stand in the document."""
        for step in self.steps:
            yield step
            for branch in step.branches:
                yield from branch.steps

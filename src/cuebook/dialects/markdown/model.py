"""A Markdown playbook as frozen values with line numbers. It knows neither how it was read nor how it is run."""

from __future__ import annotations

import msgspec

from cuebook.dialects.registry import Input, Problem
from cuebook.kernel.events import PlannedStep


class DeclaredInput(Input, frozen=True):
    """An input with the line that declares it."""

    line: int = 0


class Step(msgspec.Struct, frozen=True):
    number: int
    """As written; steps run in the order of the document."""
    title: str
    content: str
    """What the model is asked, before placeholders are filled in."""
    line: int

    @property
    def label(self) -> str:
        return str(self.number)


class Book(msgspec.Struct, frozen=True):
    """The document of a Markdown playbook."""

    title: str
    steps: tuple[Step, ...]
    inputs: tuple[DeclaredInput, ...] = ()
    system: str = ""
    description: str = ""
    """For people; no model sees it."""
    warnings: tuple[Problem, ...] = ()
    """What looks like a mistake and does not keep the playbook from running."""

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(step.label, step.title) for step in self.steps)

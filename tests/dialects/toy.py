"""A whole dialect in a few lines, as another package would add it: `toy: Title`, then one step per line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from cuebook.dialects import Dialect, Document
from cuebook.dialects.dialect import Input, OutlinedStep, Question
from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskHuman, AskModel, Breakpoint, Program
from cuebook.kernel.events import ArtifactMade, Planned, PlannedStep, StepFinished, StepStarted


class Toy(Document, msgspec.Struct, frozen=True):
    title: str
    steps: tuple[tuple[str, str], ...]
    """The verb of each step, `model` or `ask`, and its text."""
    inputs: tuple[Input, ...] = ()

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(str(number), text) for number, (_, text) in enumerate(self.steps, start=1))


class ToyDialect(Dialect):
    name = "toy"
    title = "Toys: one step a line"
    suffixes = (".toy",)
    default_name = "playbook.toy"
    recognised_by = "a toy begins with 'toy: ' and a title"
    templates: ClassVar[Mapping[str, str]] = {"linear": "a step"}

    def template(self, name: str) -> str:
        return "toy: %TITLE%\nmodel: Say hello.\n"

    def recognises(self, text: str, name: str) -> bool:
        return text.startswith("toy:")

    def parse(self, text: str, name: str) -> Toy:
        title, *lines = [[part.strip() for part in line.split(":", 1)] for line in text.splitlines() if ":" in line]
        wrong = [line for line in lines if line[0] not in ("input", "ask", "model")]
        if wrong:
            problems = [Problem(f"Unknown verb '{verb}'.", fix="Write model or ask.") for verb, _ in wrong]
            raise InvalidPlaybook(name, problems)
        steps = tuple((verb, rest) for verb, rest in lines if verb != "input")
        return Toy(
            title[1],
            steps,
            tuple(Input(rest, required=False, default="tea") for verb, rest in lines if verb == "input"),
        )

    def outline(self, document: Toy) -> tuple[OutlinedStep, ...]:
        asks = [Question("input") if verb == "ask" else None for verb, _ in document.steps]
        return tuple(
            OutlinedStep(step.label, step.title, question=question)
            for step, question in zip(document.plan, asks, strict=True)
        )

    def start(
        self, document: Toy, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        def program(state: Any) -> Program[Any]:
            yield Planned(document.plan)
            output = Text("")
            for (verb, text), step in zip(document.steps, document.plan, strict=True):
                yield StepStarted(step.label, step.title)
                filled = text.format(**inputs)
                said = yield AskHuman(filled) if verb == "ask" else AskModel(filled)
                output = Text(said.value) if verb == "ask" else said.content
                yield StepFinished(step.label, output=output)
                yield Breakpoint(step.label)
            yield ArtifactMade(output, "text")
            return None

        return program


TOY = ToyDialect()

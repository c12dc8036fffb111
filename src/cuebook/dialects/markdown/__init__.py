"""The Markdown dialect: a title, inputs and numbered steps that ask models and people, call tools and branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from cuebook.dialects.markdown import interpret_1
from cuebook.dialects.markdown.check import check
from cuebook.dialects.markdown.inputs import accept
from cuebook.dialects.markdown.interpolate import placeholders
from cuebook.dialects.markdown.interpret import interpret
from cuebook.dialects.markdown.model import Book, Step
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.markdown.state import pause_state
from cuebook.dialects.markdown.streaming import Publisher
from cuebook.dialects.options import Option
from cuebook.dialects.registry import OutlinedStep, Problem, Question
from cuebook.kernel.effects import Program
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, Settings, WaitRow

_TITLE = re.compile(r"^#\s+\S", re.ASCII | re.MULTILINE)
_STEP = re.compile(r"^##\s+STEP\s", re.ASCII | re.MULTILINE)


class Markdown:
    """Implements `registry.Dialect`, and of what a dialect may have besides all but types and traces."""

    name = "markdown"
    interpreter = 3
    options: tuple[Option, ...] = ()

    def recognises(self, text: str, name: str) -> bool:
        if name.lower().endswith((".md", ".markdown")):
            return True
        text = text.removeprefix("\ufeff").replace("\r", "\n")
        return bool(_TITLE.search(text) and _STEP.search(text))

    def parse(self, text: str, name: str) -> Book:
        book = parse(text, name)
        grave = [one for one in check(text, name, book=book) if one.severity == "error"]
        faults = tuple(Problem(one.message, one.line, one.fix, one.code) for one in grave)
        return msgspec.structs.replace(book, faults=faults) if faults else book

    def accept(self, document: Book, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(
        self, document: Book, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        program = _INTERPRETERS.get(interpreter)
        if program is None:
            raise CuebookError(
                f"This run was started by version {interpreter} of the Markdown interpreter, which is not known here.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: program(document, inputs)

    def outline(self, document: Book) -> tuple[OutlinedStep, ...]:
        found: list[OutlinedStep] = []
        for step in document.steps:
            found.append(OutlinedStep(step.label, step.title, "", _question(step)))
            for branch in step.branches:
                found += [OutlinedStep(sub.label, sub.title, step.label, _question(sub)) for sub in branch.steps]
        return tuple(found)

    def state(
        self,
        row: RunRow,
        document: Book,
        entries: Iterable[Entry],
        waits: Iterable[WaitRow],
        text: str,
        settings: Settings,
    ) -> dict[str, Any]:
        return pause_state(row, document, entries, waits, text, settings)

    def places(self, document: Book, text: str) -> frozenset[str]:
        outputs = [step.output.name for step in document.walk() if step.output is not None]
        return frozenset((*outputs, *(place.name for place in placeholders(text))))

    def publisher(self, document: Book, run: str) -> Publisher:
        return Publisher()


def _question(step: Step) -> Question | None:
    """What the step asks; where only the run knows the options, anything may fit."""
    asked = step.elicitation
    if asked is None or step.tool is not None:
        return None
    if asked.type != "select":
        return Question(asked.type)
    unknown = any(True for option in asked.options for _ in placeholders(option))
    return Question("select", asked.options) if asked.options and not unknown else Question("input")


def _interpret_2(book: Book, inputs: Mapping[str, Any]) -> Program[Any]:
    """As it is now, but silent about faults."""
    return interpret(msgspec.structs.replace(book, faults=()), inputs)


_INTERPRETERS = {1: interpret_1.interpret, 2: _interpret_2, Markdown.interpreter: interpret}
"""A run keeps the one that it began with."""

MARKDOWN = Markdown()

"""The Markdown dialect: a title, inputs and numbered steps that call models and tools, ask questions and branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from cuebook.dialects.dialect import Dialect, EditableSteps, OutlinedStep, Question, Surroundings, said_by
from cuebook.dialects.findings import Codes, Finding, InvalidPlaybook, Problem
from cuebook.dialects.markdown.check import CODES, check
from cuebook.dialects.markdown.inputs import accept
from cuebook.dialects.markdown.model import Book, Step
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.markdown.run.interpret import interpret
from cuebook.dialects.markdown.run.placeholders import placeholders
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.effects import Program
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.children import ChildUse
    from cuebook.dialects.presentation.drawing import Drawing, Progress
    from cuebook.dialects.presentation.panels import Panel
    from cuebook.dialects.presentation.preview import Preview
    from cuebook.dialects.presentation.summary import Summary

_TITLE = re.compile(r"^#\s+\S", re.ASCII | re.MULTILINE)
_STEP = re.compile(r"^##\s+STEP\s", re.ASCII | re.MULTILINE)


class Markdown(Dialect):
    """A title, inputs and numbered steps."""

    name = "markdown"
    title = "Markdown playbooks: numbered steps that call models and tools, ask questions and branch"
    suffixes = (".playbook.md", ".md", ".markdown")
    default_name = "playbook.md"
    noun = "Markdown playbook"
    converts = True
    recognised_by = (
        "a Markdown playbook ends in .md and has a '# Title' and '## STEP 1: ...' headings, or is a skill (SKILL.md)"
    )
    interpreter = 4
    templates: ClassVar[Mapping[str, str]] = {
        "linear": "inputs and steps, one after the other",
        "branching": "a step that branches on the result of an earlier step",
        "questions": "the user chooses, comments and confirms",
        "tools": "a tool is called, and a model reads its result",
    }
    guides: ClassVar[Mapping[str, str]] = {
        "markdown": "Markdown playbooks: the whole format on one page",
        "format": "Markdown playbooks: title, sections and their purpose",
        "inputs": "Markdown playbooks: inputs, their types and placeholders",
        "steps": "Markdown playbooks: steps, and what a model sees",
        "directives": "Markdown playbooks: @output, @elicit, @prompt and @tool",
        "branching": "Markdown playbooks: branches and conditions",
        "artifacts": "Markdown playbooks: artifacts, the results of runs",
    }
    draft_prompt_file = "draft.md"
    writes_markdown = True

    def recognises(self, text: str, name: str) -> bool:
        if name.lower().endswith((".md", ".markdown")):
            return True
        text = text.removeprefix("\ufeff").replace("\r", "\n")
        return bool(_TITLE.search(text) and _STEP.search(text))

    def parse(self, text: str, name: str) -> Book:
        book = parse(text, name)
        errors = [one for one in check(text, name, book=book) if one.severity == "error"]
        faults = tuple(Problem(one.message, one.line, one.fix, one.code) for one in errors)
        return msgspec.structs.replace(book, faults=faults) if faults else book

    def check(self, text: str, name: str, around: Surroundings) -> list[Finding]:
        findings = check(text, name)
        if not around.has_files or not any("@tool" in line for line in text.splitlines()):
            return findings
        try:
            book = parse(text, name)
        except InvalidPlaybook:
            return findings
        problems = self.child_problems(book, text, name, around)
        findings += [Finding(one.code.lower(), "error", one.message, one.line, fix=one.fix) for one in problems]
        return sorted(findings, key=lambda finding: (finding.line or 0, finding.column or 0, finding.code))

    def editable(self, document: Book) -> EditableSteps:
        digests = {}
        for step in document.walk():
            conditions = [branch.condition for branch in step.branches]
            digests[step.label] = said_by(msgspec.structs.replace(step, branches=()), conditions)
        from cuebook.dialects.markdown.order import uses, world

        alone = {step.label: kind for step in document.steps if (kind := world(step)) is not None}
        used = {step.label: found for step in document.steps if (found := uses(document, step)) is not None}
        return EditableSteps(digests, tuple(step.label for step in document.steps), used, alone)

    def children(self, document: Book) -> tuple[ChildUse, ...]:
        from cuebook.dialects.markdown.run.children import children

        return children(document)

    @property
    def codes(self) -> Codes:
        return CODES

    def accept(self, document: Book, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(
        self, document: Book, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        program = _INTERPRETERS.get(interpreter)
        if program is None:
            raise CuebookError(
                f"This run was started by version {interpreter} of the Markdown interpreter, which this version does not support.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: program(document, inputs)

    def summary(self, document: Book) -> Summary:
        from cuebook.dialects.markdown.describe import summary

        return summary(document)

    def drawing(self, document: Book, progress: Progress | None = None) -> Drawing:
        from cuebook.dialects.markdown.drawing import drawing

        return drawing(document, progress)

    def preview(self, document: Book, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
        from cuebook.dialects.markdown.preview import preview

        return preview(document, given, settings)

    def claims(self, text: str, name: str) -> bool:
        """Whether a file is meant to be a playbook. A page that shows playbooks in code blocks is not."""
        if name.lower().endswith(self.suffixes[0]):
            return True
        if name.lower().rpartition("/")[2] == "skill.md":
            from cuebook.dialects.markdown.parse.skill import is_skill

            return is_skill(text)
        from cuebook.dialects.markdown.parse.sections import outline

        is_named = name.lower().endswith(self.suffixes)
        return is_named and any(section.kind == "step" for section in outline(text, fenced=True).sections)

    def parse_result(self, text: str, name: str, around: Surroundings) -> dict[str, Any]:
        from cuebook.dialects.markdown.convert import result_object
        from cuebook.dialects.markdown.parse import read

        return result_object(read(text))

    def definition(self, document: Book) -> dict[str, Any]:
        return self.to_json(document)

    def parse_lines(self, document: Book) -> Iterable[str]:
        from cuebook.dialects.markdown.describe import outline

        return outline(document)

    def to_json(self, document: Book) -> dict[str, Any]:
        from cuebook.dialects.markdown.convert import to_json

        return to_json(document)

    def from_json(self, data: Any, name: str) -> str:
        from cuebook.dialects.markdown.convert import from_json

        return from_json(data, name)

    def only_reads(self, document: Book, *, confined: bool) -> bool:
        return not any(step.tool is not None for step in document.walk())

    def outline(self, document: Book) -> tuple[OutlinedStep, ...]:
        found: list[OutlinedStep] = []
        for step in document.steps:
            found.append(OutlinedStep(step.label, step.title, "", _question(step)))
            for branch in step.branches:
                found += [OutlinedStep(sub.label, sub.own_title, step.label, _question(sub)) for sub in branch.steps]
        return tuple(found)

    def places(self, document: Book, text: str) -> frozenset[str]:
        outputs = [step.output.name for step in document.walk() if step.output is not None]
        return frozenset((*outputs, *(place.name for place in placeholders(text))))

    def observe(self, document: Book, run: str = "") -> Projection:
        from cuebook.dialects.markdown.observe import MarkdownProjection

        return MarkdownProjection(document)

    def panels(self, document: Book) -> tuple[Panel, ...]:
        """A drawing, if any step has branches or can send the run back."""
        from cuebook.dialects.presentation.panels import Panel

        returns = any(one.approval is not None and one.approval.rule.changes for one in document.walk())
        drawn = returns or any(step.branches for step in document.steps)
        return (Panel("drawing", "drawing", "Flow"),) if drawn else ()


def _question(step: Step) -> Question | None:
    """The question that a step asks. If its options are known only during a run, any answer is accepted."""
    asked = step.elicitation
    if asked is None or step.tool is not None:
        return None
    if asked.type != "select":
        return Question(asked.type, schema=asked.schema)
    unknown = any(True for option in asked.options for _ in placeholders(option))
    return Question("select", asked.options) if asked.options and not unknown else Question("input")


def _interpret_2(book: Book, inputs: Mapping[str, Any]) -> Program[Any]:
    """The third interpreter without warnings about faults."""
    return _interpret_3(msgspec.structs.replace(book, faults=()), inputs)


def _interpret_3(book: Book, inputs: Mapping[str, Any]) -> Program[Any]:
    """The current interpreter without forms, which were unknown questions, and approvals, which were text."""
    from cuebook.dialects.markdown.run.earlier import without_people

    return interpret(without_people(book), inputs)


def _interpret_1(book: Book, inputs: Mapping[str, Any]) -> Program[Any]:
    from cuebook.dialects.markdown.run.interpret_v1 import interpret

    return interpret(book, inputs)


_INTERPRETERS = {1: _interpret_1, 2: _interpret_2, 3: _interpret_3, Markdown.interpreter: interpret}
"""The interpreters by version. A run keeps the version it started with."""

MARKDOWN = Markdown()

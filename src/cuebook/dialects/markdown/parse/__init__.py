"""Parses the text of a Markdown playbook into its document, or lists every problem with its line.

A skill (`SKILL.md`) is read as a playbook too. The format is line-based: headings, directives and branch markers take effect
everywhere, even inside a code fence. The parser reports only the warnings that the format defines; `check` finds other likely
mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.markdown.model import (
    ARTIFACT_TYPES,
    Approval,
    Book,
    Branch,
    Condition,
    DeclaredInput,
    Elicitation,
    Output,
    PromptUse,
    Step,
    ToolUse,
)
from cuebook.dialects.markdown.parse import sections
from cuebook.dialects.markdown.parse.branches import BranchDraft, StepDraft, content, draft, headless_letters
from cuebook.dialects.markdown.parse.declarations import artifact_type, read_artifact_type, read_input
from cuebook.dialects.markdown.parse.directives import SCHEMES, Directive
from cuebook.dialects.markdown.parse.sections import Outline, Section, outline

SIZE_LIMIT = 200_000
"""The maximum size of a document, in bytes of UTF-8."""

FRONT_MATTER = ("---", "\ufeff---")
"""How a text with front matter begins; only such a text may be a skill."""

NEARLY_STEP = re.compile(r"\s*#{1,6}\s*STEP\b\s*\d.*", re.ASCII | re.IGNORECASE)

Source: TypeAlias = Literal["input", "step_output"]


class Parsed(msgspec.Struct, frozen=True):
    """The result of parsing: the document, or the errors that prevent it."""

    definition: Book | None
    warnings: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()

    @property
    def valid(self) -> bool:
        return self.definition is not None


def parse(text: str, name: str, *, fenced: bool = False) -> Book:
    """Parses playbook text into a document. Raises `InvalidPlaybook` with all problems."""
    parsed = read(text, fenced=fenced)
    if parsed.definition is None:
        raise InvalidPlaybook(name, parsed.errors)
    return parsed.definition


def read(text: str, *, fenced: bool = False) -> Parsed:
    """Parses playbook text into a document or errors, with the warnings in either case.

    With `fenced`, lines inside a closed code fence are plain text. Other implementations of the format do not make this
    distinction.
    """
    unreadable = _unreadable(text)
    if unreadable is not None:
        return Parsed(None, errors=(unreadable,))
    if text.startswith(FRONT_MATTER):
        from cuebook.dialects.markdown.parse.skill import read_skill

        skill = read_skill(text)
        if skill is not None:
            return Parsed(skill, skill.warnings)
    return _Reading(outline(text, fenced=fenced)).result()


def _unreadable(text: str) -> Problem | None:
    if len(text) > SIZE_LIMIT or len(text.encode("utf-8", "surrogatepass")) > SIZE_LIMIT:
        return Problem("Document exceeds 200KB size limit", fix="Split it.", code="F4")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start].replace("\r\n", "\n").replace("\r", "\n")
        line = before.count("\n") + 1
        return Problem("Document contains a lone surrogate, which is not valid UTF-8", line, "Correct it.", "not_text")
    if not text.removeprefix("\ufeff").strip():
        return Problem("Document is empty", fix="Write a title and a step.", code="F5")
    return None


class _Reading:
    """Reads the sections of a playbook and collects its problems."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.rows = outline.rows
        self.steps: list[Step] = []
        self.inputs: dict[str, DeclaredInput] = {}
        self.outputs: set[str] = set()
        """The names that earlier steps have set, including answers."""
        self.system = ""
        self.artifact_type = ""
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def result(self) -> Parsed:
        title, description = sections.title(self.outline)
        if title is None:
            self._no_title()
        for section in self.outline.sections:
            self._declaration(section)
        self._steps()
        warnings = tuple(sorted(self.warnings, key=lambda problem: problem.line or 0))
        if self.errors:
            return Parsed(None, warnings, tuple(sorted(self.errors, key=lambda problem: problem.line or 0)))
        book = Book(
            title=title or "",
            steps=tuple(self.steps),
            inputs=tuple(self.inputs.values()),
            system=self.system,
            description=description,
            artifact_type=self.artifact_type,
            warnings=warnings,
        )
        return Parsed(book, warnings)

    # --- outside the steps ---------------------------------------------------------------------------

    def _no_title(self) -> None:
        message = "No title found: document must contain a level-1 heading (# Title)"
        front_matter = self.rows[0] == "---"
        fix = "Front matter is ignored: write the title as a heading." if front_matter else "Begin with '# Title'."
        self.errors.append(Problem(message, fix=fix, code="F1"))

    def _declaration(self, section: Section) -> None:
        if section.kind == "system":
            self.system = self.outline.text(section)
        elif section.kind == "inputs":
            for index in range(section.start, section.end):
                self._input(self.rows[index].strip(), index + 1)
        elif section.kind == "artifacts":
            self._artifact(section)

    def _input(self, text: str, line: int) -> None:
        if not text.startswith(("-", "*")):
            return
        declared = read_input(text, line)
        if declared is None:
            fix = "Write: - `name` (string): description."
            self.warnings.append(Problem(f'Malformed input line: "{text}"', line, fix, "W2"))
        elif declared.name in self.inputs:
            first = self.inputs[declared.name].line
            fix = f"Line {first} already declares it: rename one of them."
            self.errors.append(Problem(f'Duplicate input name: "{declared.name}"', line, fix, "F3"))
        else:
            self.inputs[declared.name] = declared

    def _artifact(self, section: Section) -> None:
        for index in range(section.start, section.end):
            said = read_artifact_type(self.rows[index].strip())
            if said is None:
                continue
            known = artifact_type(said)
            if known is None:
                message = f'Unknown artifact type: "{said}". Valid types: {", ".join(ARTIFACT_TYPES)}'
                self.warnings.append(Problem(message, index + 1, code="W3"))
            self.artifact_type = known or ""
            return

    # --- steps ----------------------------------------------------------------------------------------

    def _steps(self) -> None:
        expected = 1
        for section in self.outline.sections:
            if section.kind != "step":
                continue
            if section.number != expected:
                message = f"Non-sequential step number: expected {expected}, got {section.number}"
                self.warnings.append(Problem(message, section.heading + 1, code="W1"))
            expected = section.number + 1
            self.steps.append(self._step(section))
        if not self.steps:
            self._no_steps()
        for number, step in enumerate(self.steps):
            earlier = [one.label for one in self.steps[:number]]
            self._check_changes(step, earlier)
            for branch in step.branches:
                for inner, sub in enumerate(branch.steps):
                    self._check_changes(sub, [*earlier, *(one.label for one in branch.steps[:inner])])

    def _check_changes(self, step: Step, earlier: Sequence[str]) -> None:
        """Checks that a request for changes leads to an earlier step, or an earlier sub-step of the same branch."""
        for to in step.approval.rule.changes if step.approval is not None else ():
            if to not in earlier:
                message = f"@approve: there is no step '{to}' before step {step.label} to which changes could lead."
                fix = f"Use one of: {', '.join(earlier)}." if earlier else "Ask for the approval in a later step."
                self.errors.append(Problem(message, step.approval.line if step.approval else None, fix, "approve"))

    def _no_steps(self) -> None:
        message = "No steps found: document must contain at least one ## STEP heading"
        near = next((n for n, row in enumerate(self.rows, 1) if "#" in row and NEARLY_STEP.fullmatch(row)), None)
        fix = "Write '## STEP 1: Title' and instructions below it."
        fix = f"Line {near} looks like a step heading: write it as '## STEP 1: Title'." if near else fix
        self.errors.append(Problem(message, fix=fix, code="F2"))

    def _step(self, section: Section) -> Step:
        if section.marks:
            return self._marked(draft(self.outline, section))
        text = "\n".join(self.rows[section.start : section.end]).strip()
        return Step(section.number, str(section.number), section.title, text, section.heading + 1)

    def _marked(self, draft: StepDraft) -> Step:
        """Reads a step that has directives, markers or sub-steps."""
        section = draft.section
        label = str(section.number)
        text = content(draft.outside, self.rows)
        step = self._built(section.number, label, section.title, text, section.heading + 1, draft.directives())
        self._declare(step)
        if not draft.branches:
            return step
        # A condition may refer to the output and answer of its step, but not to values that the branches set.
        conditions = [self._condition(branch) for branch in draft.branches]
        named = headless_letters(section.number, draft.branches)
        branches = [
            Branch(condition, self._substeps(section.number, letter, branch), branch.index + 1)
            for letter, condition, branch in zip(named, conditions, draft.branches, strict=True)
        ]
        return msgspec.structs.replace(step, branches=tuple(branches))

    def _condition(self, branch: BranchDraft) -> Condition | None:
        if branch.condition is None:
            return None
        variable, operator, value = branch.condition
        known = variable in self.outputs
        if not known and variable not in self.inputs:
            message = f'Undeclared branch variable: "{variable}"'
            self.warnings.append(Problem(message, branch.index + 1, code="W4"))
        source: Source = "step_output" if known and variable not in self.inputs else "input"
        return Condition(variable, cast(Literal["==", "!="], operator), value, source)

    def _substeps(self, number: int, letter: str, branch: BranchDraft) -> tuple[Step, ...]:
        if not branch.substeps:
            return self._headless(number, letter, branch)
        steps: list[Step] = []
        for sub in branch.substeps:
            passages = [sub.passage] if steps else [branch.lead, sub.passage]
            directives = [directive for passage in passages for directive in passage.directives]
            text = content(passages, self.rows)
            steps.append(self._built(number, sub.label, sub.title, text, sub.index + 1, directives))
        for step in steps:
            self._declare(step)
        return tuple(steps)

    def _headless(self, number: int, letter: str, branch: BranchDraft) -> tuple[Step, ...]:
        """The only sub-step of a branch without headings, labelled by position; none if the branch is empty."""
        text = content([branch.lead], self.rows)
        if not text and not branch.lead.directives:
            return ()
        step = self._built(
            number, f"{number}{letter}", f"Branch {letter}", text, branch.index + 1, branch.lead.directives
        )
        self._declare(step)
        return (step,)

    def _built(self, number: int, label: str, title: str, text: str, line: int, directives: list[Directive]) -> Step:
        if not directives:
            return Step(number, label, title, text, line)
        uses: dict[str, object] = {}
        for directive in directives:
            if directive.use is not None:
                uses[directive.kind] = directive.use
            elif directive.flaw == "elicit_type":
                message = f'Invalid elicit type: "{directive.said}"'
                self.warnings.append(Problem(message, directive.line, "Use input, confirm or select.", "W5"))
            elif directive.flaw == "prompt_scheme":
                message = f'Unknown prompt scheme: "{directive.said}"'
                fix = f"Use {', '.join(f'{scheme}:' for scheme in SCHEMES)} or a bare name."
                self.warnings.append(Problem(message, directive.line, fix, "prompt_scheme"))
            elif directive.flaw == "elicit_default":
                self._bad_default(directive)
            elif directive.flaw in ("elicit_form", "approve"):
                kind = "@approve" if directive.flaw == "approve" else "@elicit"
                self.errors.append(Problem(f"{kind}: {directive.said}", directive.line, directive.fix, directive.flaw))
        return Step(
            number, label, title, text, line,
            prompt=cast("PromptUse | None", uses.get("prompt")),
            output=cast("Output | None", uses.get("output")),
            elicitation=cast("Elicitation | None", uses.get("elicit")),
            tool=cast("ToolUse | None", uses.get("tool")),
            approval=cast("Approval | None", uses.get("approve")),
        )  # fmt: skip

    def _bad_default(self, directive: Directive) -> None:
        message = f'Invalid elicit default: "{directive.said}"'
        fix = "Use yes or no for a confirm, and one of the options, spelled the same way, for a select."
        self.errors.append(Problem(message, directive.line, fix, "elicit_default"))

    def _declare(self, step: Step) -> None:
        if step.output is not None:
            self.outputs.add(step.output.name)
        if step.elicitation is not None:
            self.outputs.update(answer_names(step))


def answer_names(step: Step) -> tuple[str, ...]:
    """The names under which the answer to a step's question is stored."""
    fields = step.elicitation.fields if step.elicitation is not None else ()
    return tuple(dict.fromkeys((f"__elicit_step_{step.number}", f"__elicit_step_{step.label}", *fields)))

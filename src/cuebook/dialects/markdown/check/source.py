"""A playbook in the form that the checks use: its lines, and each step and sub-step with its lines."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cuebook.dialects.markdown.model import Approval, Book, Elicitation, Output, PromptUse, ToolUse
from cuebook.dialects.markdown.parse.branches import BranchDraft, Passage, StepDraft, content, draft, letters
from cuebook.dialects.markdown.parse.directives import Directive
from cuebook.dialects.markdown.parse.sections import Outline, fences
from cuebook.dialects.markdown.run.placeholders import Placeholder, placeholders


class Unit(msgspec.Struct):
    """A step, or a sub-step in one of its branches."""

    label: str
    number: int
    line: int
    passages: list[Passage]
    content: str
    parent: Unit | None = None
    branch: int = 0
    """The index of its branch in the parent step."""
    branches: list[BranchDraft] = []
    inside: list[list[Unit]] = []
    """The sub-steps of each branch."""
    output: Output | None = None
    elicitation: Elicitation | None = None
    prompt: PromptUse | None = None
    tool: ToolUse | None = None
    approval: Approval | None = None

    def directives(self) -> Iterator[Directive]:
        for passage in self.passages:
            yield from passage.directives

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The names of the variables that store the answer to its question."""
        if self.elicitation is None:
            return ()
        names = (f"__elicit_step_{self.number}", f"__elicit_step_{self.label}", *self.elicitation.fields)
        return tuple(dict.fromkeys(names))

    def excludes(self, other: Unit) -> bool:
        """Whether only one of the two can run."""
        return self.parent is not None and self.parent is other.parent and self.branch != other.branch

    @property
    def branches_on_itself(self) -> bool:
        does = self.content or self.prompt or self.elicitation or self.tool
        name = self.output.name if self.output is not None and does else None
        return any(branch.condition is not None and branch.condition[0] == name for branch in self.branches)


class Material(msgspec.Struct, frozen=True):
    outline: Outline
    drafts: list[StepDraft]
    units: list[Unit]
    """The steps in order, each with its sub-steps."""
    book: Book | None
    """None if the playbook is invalid; checks that need its declarations are then skipped."""
    fences: list[tuple[int, int]]
    """The rows at which each code fence opens and closes."""

    @property
    def rows(self) -> list[str]:
        return self.outline.rows

    def all_units(self) -> Iterator[Unit]:
        for unit in self.units:
            yield unit
            for branch in unit.inside:
                yield from branch

    def column(self, index: int) -> int:
        """The column at which the text of a row begins."""
        row = self.rows[index]
        return len(row) - len(row.lstrip()) + 1


class Place(msgspec.Struct, frozen=True):
    placeholder: Placeholder
    line: int
    column: int


def material(outline: Outline, book: Book | None) -> Material:
    drafts = [draft(outline, section) for section in outline.sections if section.kind == "step"]
    return Material(outline, drafts, [_unit(one, outline.rows) for one in drafts], book, fences(outline.rows))


def placed(rows: list[str], start: int, end: int) -> Iterator[Place]:
    """The placeholders in a range of rows, with line and column."""
    text = "\n".join(rows[start:end])
    line, line_start = start + 1, 0
    position = 0
    for found in placeholders(text):
        breaks = text.count("\n", position, found.start)
        if breaks:
            line += breaks
            line_start = text.rindex("\n", position, found.start) + 1
        position = found.start
        yield Place(found, line, found.start - line_start + 1)


def _unit(draft: StepDraft, rows: list[str]) -> Unit:
    section = draft.section
    text = content(draft.outside, rows)
    unit = Unit(str(section.number), section.number, section.heading + 1, draft.outside, text, branches=draft.branches)
    unit.inside = [_inside(unit, position, branch, rows) for position, branch in enumerate(draft.branches)]
    _use(unit)
    return unit


def _inside(parent: Unit, position: int, branch: BranchDraft, rows: list[str]) -> list[Unit]:
    number, units = parent.number, []
    if not branch.substeps and (branch.lead.directives or branch.lead.text(rows)):
        label = f"{number}{letters(position)}"
        text = content([branch.lead], rows)
        units = [Unit(label, number, branch.index + 1, [branch.lead], text, parent, position)]
    for sub in branch.substeps:
        passages = [sub.passage] if units else [branch.lead, sub.passage]
        units.append(Unit(sub.label, number, sub.index + 1, passages, content(passages, rows), parent, position))
    for unit in units:
        _use(unit)
    return units


def _use(unit: Unit) -> None:
    for directive in unit.directives():
        match directive.use:
            case Output():
                unit.output = directive.use
            case Elicitation():
                unit.elicitation = directive.use
            case PromptUse():
                unit.prompt = directive.use
            case ToolUse():
                unit.tool = directive.use
            case Approval():
                unit.approval = directive.use

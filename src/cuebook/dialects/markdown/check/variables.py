"""Checks variables: undeclared names, names used before they are set, and unused declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain, islice

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.check.branches import named_in_markers
from cuebook.dialects.markdown.check.codes import found
from cuebook.dialects.markdown.check.source import Material, Unit, placed
from cuebook.dialects.markdown.model import ARTIFACT_TYPES, Book
from cuebook.dialects.markdown.parse.branches import BranchDraft
from cuebook.dialects.markdown.parse.declarations import read_artifact_type
from cuebook.dialects.markdown.run.placeholders import placeholders

_BRACED = re.compile(r"\{\{([^{}\n]{1,80})\}\}")
_WORD = re.compile(r"\w+", re.ASCII)


def variables(material: Material) -> Iterator[Finding]:
    if material.book is None:
        return
    flow = _Flow(material, material.book)
    for unit in material.units:
        yield from flow.step(unit)
    yield from flow.artifact()
    yield from flow.outputs()
    yield from flow.unused()


def _set_by(unit: Unit) -> tuple[str, ...]:
    return (*unit.answer_names, *((unit.output.name,) if unit.output is not None else ()))


class _Sight:
    """The names already set: `far` by earlier steps, `near` within the same step. `far` is large and shared."""

    def __init__(self, far: set[str], near: Iterable[str] = ()) -> None:
        self.far = far
        self.near = set(near)

    def __contains__(self, name: str) -> bool:
        return name in self.far or name in self.near


class _Flow:
    """Goes through the steps in execution order and tracks which names are set."""

    def __init__(self, material: Material, book: Book) -> None:
        self.material = material
        self.book = book
        self.inputs = {declared.name: declared for declared in book.inputs}
        self.setters: dict[str, list[Unit]] = {}
        self.used = named_in_markers(material)
        self.set = set(self.inputs)
        if any(unit.approval is not None and unit.approval.rule.changes for unit in material.all_units()):
            self.set |= {"__changes_feedback", "__changes_by", "__changes_count"}
        self.suggested: dict[str, str] = {}
        for unit in material.all_units():
            for name in _set_by(unit):
                self.setters.setdefault(name, []).append(unit)

    def step(self, unit: Unit) -> Iterator[Finding]:
        yield from self._unit(unit, _Sight(self.set))
        self.set.update(unit.answer_names)
        own = {unit.output.name} if unit.output is not None else set()
        for branch in unit.branches:
            if branch.condition is not None:
                name, at = branch.condition[0], (branch.index + 1, self.material.column(branch.index))
                message = f'Undeclared branch variable: "{name}"'
                yield from self._reference(name, _Sight(self.set, own), unit, message, *at)
                yield from self._compared(branch)
        inside: set[str] = set()
        at_hand = own if unit.branches_on_itself else set()
        for substeps in unit.inside:
            sight = _Sight(self.set, at_hand)
            for sub in substeps:
                yield from self._unit(sub, sight)
                sight.near.update(_set_by(sub))
            inside |= sight.near
        self.set |= inside | own

    def _unit(self, unit: Unit, sight: _Sight) -> Iterator[Finding]:
        for kind, use in (
            ("tool", unit.tool),
            ("elicit", unit.elicitation),
            ("prompt", unit.prompt),
            ("approve", unit.approval),
        ):
            if use is not None:
                yield from self._directive(unit, kind, use.line, sight)
        if unit.approval is not None:
            at = (unit.approval.line, self.material.column(unit.approval.line - 1))
            for name in unit.approval.show:
                yield from self._reference(
                    name, sight, unit, f"Step {unit.label} shows undeclared variable '{name}'", *at
                )
        sight = _Sight(sight.far, {*sight.near, *unit.answer_names})
        for passage in unit.passages:
            for start, end in passage.kept:
                for place in placed(self.material.rows, start, end):
                    name, default = place.placeholder.name, place.placeholder.default
                    message = f'Step {unit.label} references undeclared variable "{{{{{name}}}}}"'
                    yield from self._reference(name, sight, unit, message, place.line, place.column, default)
                yield from self._nearly(start, end)

    def _directive(self, unit: Unit, kind: str, line: int, sight: _Sight) -> Iterator[Finding]:
        what = "@tool argument" if kind == "tool" else f"@{kind}"
        for place in placed(self.material.rows, line - 1, line):
            name, default = place.placeholder.name, place.placeholder.default
            message = f'Step {unit.label} {what} references undeclared variable "{{{{{name}}}}}"'
            yield from self._reference(name, sight, unit, message, line, place.column, default)

    def _reference(
        self, name: str, sight: _Sight, unit: Unit, message: str, line: int, column: int, default: str | None = None
    ) -> Iterator[Finding]:
        self.used.add(name)
        if name in sight or default is not None:
            return
        setters = self.setters.get(name)
        if setters:
            yield found("used_before_set", _early(name, unit, setters), line, column, "Set it in an earlier step.")
            return
        yield found("unknown_variable", message, line, column, self._suggestion(name))

    def _compared(self, branch: BranchDraft) -> Iterator[Finding]:
        """Placeholders in conditions, which are compared literally."""
        index = branch.index
        for place in placed(self.material.rows, index, index + 1):
            self.used.add(place.placeholder.name)
            message = f"{{{{{place.placeholder.name}}}}} in a condition is not replaced."
            yield found("placeholder", message, index + 1, place.column, "Compare with a literal string.")

    def _suggestion(self, name: str) -> str:
        # Searching for similar names is slow, so only the first unknown names get a suggestion.
        if name not in self.suggested and len(self.suggested) < 50:
            names = list(islice(chain(self.inputs, self.setters), 200))
            self.suggested[name] = next(iter(get_close_matches(name, names, n=1)), "")
        close = self.suggested.get(name)
        return f"Did you mean '{close}'?" if close else f"Declare it in INPUTS, or set it with @output({name})."

    def _nearly(self, start: int, end: int) -> Iterator[Finding]:
        for index in range(start, end):
            row = self.material.rows[index]
            if "{{" not in row:
                continue
            for braced in _BRACED.finditer(row):
                inner = braced[1].strip()
                word = _WORD.match(inner)
                known = word is not None and (word[0] in self.inputs or word[0] in self.setters)
                if word is None or not known or next(placeholders(braced[0]), None) is not None:
                    continue
                self.used.add(word[0])
                message = f"'{braced[0]}' is not a valid placeholder and is not replaced."
                yield found("placeholder", message, index + 1, braced.start() + 1, f"Write {{{{{word[0]}}}}}.")

    # --- the whole document -------------------------------------------------------------------------------

    def artifact(self) -> Iterator[Finding]:
        if not self.book.artifact_type.startswith("{{"):
            return
        index, column = self._artifact_place()
        for placeholder in placeholders(self.book.artifact_type):
            name = placeholder.name
            message = f'Artifact type references undeclared variable "{{{{{name}}}}}"'
            unit = self.material.units[-1]
            yield from self._reference(name, _Sight(self.set), unit, message, index + 1, column, placeholder.default)
            declared = self.inputs.get(name)
            wrong = [o for o in declared.options if o.lower() not in ARTIFACT_TYPES] if declared is not None else []
            if wrong:
                message = f"'{name}' may be {', '.join(wrong)}, which is not an artifact type."
                yield found("artifact_type", message, index + 1, column, f"Use {', '.join(ARTIFACT_TYPES)}.")

    def _artifact_place(self) -> tuple[int, int]:
        rows = self.material.rows
        sections = [section for section in self.material.outline.sections if section.kind == "artifacts"]
        for section in reversed(sections):
            for index in range(section.start, section.end):
                if read_artifact_type(rows[index].strip()) is not None:
                    return index, rows[index].find("{{") + 1
        return 0, 1

    def outputs(self) -> Iterator[Finding]:
        last: dict[str, Unit] = {}
        """The last step that set each name, before the current step."""
        for step in self.material.units:
            inside: dict[str, Unit] = {}
            for substeps in step.inside:
                branch: dict[str, Unit] = {}
                for sub in substeps:
                    yield from self._output(sub, branch, last)
                inside |= branch
            yield from self._output(step, inside, last)
            last |= inside

    def _output(self, unit: Unit, near: dict[str, Unit], far: dict[str, Unit]) -> Iterator[Finding]:
        output = unit.output
        if output is None:
            return
        line, column = output.line, self.material.column(output.line - 1)
        if output.name in self.inputs:
            message = f'@output variable "{output.name}" in step {unit.label} shadows an input name'
            yield found(
                "shadowed_input", message, line, column, "Rename the output: the input's value is used everywhere."
            )
        earlier = near.get(output.name) or far.get(output.name)
        if earlier is not None:
            message = f"'{output.name}' replaces the value that step {earlier.label} sets."
            yield found("duplicate_output", message, line, column, "Rename it if both are needed.")
        near[output.name] = unit

    def unused(self) -> Iterator[Finding]:
        for declared in self.book.inputs:
            if declared.name not in self.used:
                column = self.material.column(declared.line - 1)
                message = f"The input '{declared.name}' is never used."
                yield found("unused_input", message, declared.line, column, f"Use {{{{{declared.name}}}}} in a step.")
        for name, units in self.setters.items():
            output = next((one.output for one in units if one.output is not None and one.output.name == name), None)
            if output is not None and name not in self.used and name not in self.inputs:
                column = self.material.column(output.line - 1)
                message = f"The name of the output '{output.name}' is never used."
                fix = "Later steps see the whole output of the step anyway."
                yield found("unused_output", message, output.line, column, fix)


def _early(name: str, unit: Unit, setters: list[Unit]) -> str:
    labels = ", ".join(dict.fromkeys(one.label for one in setters[:3]))
    if all(one.excludes(unit) for one in setters[:100]):
        return f"Step {unit.label} uses '{name}', which is set only in another branch (step {labels})."
    return f"Step {unit.label} uses '{name}' before it is set (by step {labels})."

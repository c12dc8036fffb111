"""Branches: markers that are none, blocks that do not close, labels, and alternatives that are never chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.branches import BranchDraft, StepDraft
from cuebook.dialects.markdown.checks.material import Material, Unit
from cuebook.dialects.markdown.findings import found, shown
from cuebook.dialects.markdown.model import DeclaredInput

_MARKER = re.compile(r"`{3,}\s*(if|elif|elseif|elsif|else\s+if|else|endif|end\s+if)\b(.*)", re.ASCII | re.IGNORECASE)
_COMPARED = re.compile(r"(\w+)\b(?:\s*(==|!=|=|\bis\s+not\b|\bis\b)(.*))?", re.ASCII | re.IGNORECASE)
_QUOTES = "'\"“”‘’ "
_NUMBER = re.compile(r"0*(\d+)[a-z]", re.ASCII)


def branches(material: Material) -> Iterator[Finding]:
    declared = {one.name: one for one in material.book.inputs} if material.book is not None else {}
    domains = _Domains(material, declared)
    for draft, unit in zip(material.drafts, material.units, strict=True):
        yield from _markers(draft, material, declared)
        if draft.branches:
            yield from _labels(draft, unit)
            yield from _leads(draft, material)
            if material.book is not None:
                yield from _reach(unit, domains)


# --- markers ------------------------------------------------------------------------------------------------


def named_in_markers(material: Material) -> set[str]:
    """The names in lines that were meant as branch markers."""
    names: set[str] = set()
    for draft in material.drafts:
        for odd in draft.oddities:
            near = _MARKER.fullmatch(material.rows[odd.index].strip()) if odd.kind == "unread" else None
            compared = _COMPARED.fullmatch(near[2].strip("` \t")) if near is not None else None
            if compared is not None:
                names.add(compared[1])
    return names


def _markers(draft: StepDraft, material: Material, declared: Mapping[str, DeclaredInput]) -> Iterator[Finding]:
    meant = False  # an `if` that is none has opened a block in the author's mind, so what belongs to it is not stray
    ended = False
    for odd in draft.oddities:
        text = material.rows[odd.index].strip()
        at = (odd.index + 1, material.column(odd.index))
        match odd.kind:
            case "unread":
                near = _MARKER.fullmatch(text)
                if near is None:
                    continue
                word = " ".join(near[1].lower().split())
                meant = meant or word == "if"
                ended = ended or word in ("endif", "end if")
                message = f"'{shown(text)}' is no branch marker: it goes to the model, with all that follows."
                yield found("branch_marker", message, *at, _marker_fix(word, near[2], declared))
            case "stray_marker" if not meant:
                message = f"'{shown(text)}' belongs to no block: it goes to the model as text."
                yield found("stray_marker", message, *at, 'Open the block with ```if name == "value"```.')
            case "stray_marker":
                meant = text != "```endif```"
            case "nested_if":
                message = "A block inside a block is read as one more alternative of the outer one."
                yield found("nested_if", message, *at, "Close the outer block first, or branch in a step of its own.")
            case "second_block":
                message = "A step has one block: this one is read as more alternatives of the first."
                yield found("second_block", message, *at, "Move it into a step of its own.")
            case "missing_endif" if not ended:
                message = "The block is not closed; it ends with the step."
                yield found("missing_endif", message, *at, "Write ```endif``` where it ends.")
            case "substep_outside":
                message = f"'{shown(text)}' stands outside a branch, so it is text."
                fix = "Make it a step ('## STEP ...'), or put it between ```if ...``` and ```endif```."
                yield found("substep_outside", message, *at, fix)


def _marker_fix(word: str, rest: str, declared: Mapping[str, DeclaredInput]) -> str:
    if word == "else":
        return "Write ```else```."
    if word in ("endif", "end if"):
        return "Write ```endif```."
    compared = _COMPARED.fullmatch(rest.strip("` \t"))
    exact = "if" if word == "if" else "elif"
    if compared is None:
        return f'Write ```{exact} name == "value"```.'
    name, operator, value = compared.groups()
    if operator is None:
        one = declared.get(name)
        value = "true" if one is not None and one.type == "boolean" else "value"
        if one is not None and one.options:
            value = one.options[0]
    sign = "!=" if operator and (operator == "!=" or "not" in operator.lower()) else "=="
    return f'Write ```{exact} {name} {sign} "{shown(value.strip().strip(_QUOTES))}"```.'


# --- labels -------------------------------------------------------------------------------------------------


def _labels(draft: StepDraft, unit: Unit) -> Iterator[Finding]:
    seen: Counter[str] = Counter()
    number = str(draft.section.number)
    total = 0
    for branch in draft.branches:
        total += max(1, len(branch.substeps))
        for sub in branch.substeps:
            seen[sub.label] += 1
            own = _NUMBER.fullmatch(sub.label)
            if own is not None and own[1] != number:
                message = f"Sub-step {sub.label} stands in step {number}."
                fix = f"Label it {number}{sub.label[-1]}."
                yield found("substep_label", message, sub.index + 1, 1, fix)
            elif seen[sub.label] == 2:
                message = f"Two sub-steps of step {number} are labelled {sub.label}."
                yield found("substep_label", message, sub.index + 1, 1, "Give each a letter of its own.")
    if total > 26:
        message = f"Step {unit.label} has {total} sub-steps, and there are 26 letters to label them."
        yield found("many_branches", message, unit.line, 1, "Divide it into several steps.")


def _leads(draft: StepDraft, material: Material) -> Iterator[Finding]:
    for position, branch in enumerate(draft.branches):
        text = branch.lead.text(material.rows)
        at = (branch.index + 1, material.column(branch.index))
        if branch.substeps and text:
            message = f"The text before sub-step {branch.substeps[0].label} is put before that sub-step's own."
            fix = "Move it below the heading, or before the block to have it in every branch."
            yield found("text_before_substep", message, *at, fix)
        elif not branch.substeps and not text and not branch.lead.directives:
            message = f"Branch {position + 1} of step {draft.section.number} is empty."
            yield found("empty_branch", message, *at, "Say what it shall do, or take it out: no match skips the step.")


# --- which branches can be chosen ---------------------------------------------------------------------------


class _Facts(msgspec.Struct):
    """What is known of a variable when all conditions before have failed."""

    excluded: set[str] = set()
    fixed: str | None = None

    def allow(self, operator: str, value: str, domain: tuple[str, ...]) -> bool:
        if self.fixed is not None:
            return (value == self.fixed) == (operator == "==")
        if operator == "==":
            return value not in self.excluded
        return not domain or any(one not in self.excluded and one != value for one in domain)

    def fail(self, operator: str, value: str) -> bool:
        """Takes in that a condition failed; False where nothing is left."""
        if operator == "==":
            self.excluded.add(value)
            return self.fixed != value
        possible = value not in self.excluded and self.fixed in (None, value)
        self.fixed = value
        return possible


def _reach(unit: Unit, domains: _Domains) -> Iterator[Finding]:
    facts: dict[str, _Facts] = {}
    alive, closed = True, ""
    for branch in unit.branches:
        line = branch.index + 1
        if not alive:
            fix = "Put it before, or take it out."
            yield found("unreachable_branch", f"This branch is never chosen: {closed}.", line, 1, fix)
            continue
        if branch.condition is None:
            alive, closed = False, f"the else of line {line} takes whatever is left"
            continue
        variable, operator, value = branch.condition
        known = facts.setdefault(variable, _Facts())
        domain = domains.of(variable)
        if domain and value not in domain:
            yield _unknown_option(branch, domain)
        elif not known.allow(operator, value, domain):
            message = f'This branch is never chosen: with {variable} {operator} "{shown(value)}", one before it is.'
            yield found("unreachable_branch", message, line, 1, "Correct the condition, or take the branch out.")
        if not known.fail(operator, value):
            alive, closed = False, "the conditions before it leave nothing over"


def _unknown_option(branch: BranchDraft, domain: tuple[str, ...]) -> Finding:
    assert branch.condition is not None
    variable, operator, value = branch.condition
    never = "is never" if operator == "==" else "is always unequal to"
    message = f"'{variable}' {never} \"{shown(value)}\"."
    return found("unknown_option", message, branch.index + 1, 1, f"It is one of {shown(', '.join(domain))}.")


class _Domains:
    """The values that a variable can have, where they are known."""

    def __init__(self, material: Material, declared: Mapping[str, DeclaredInput]) -> None:
        self._declared = declared
        self._outputs: dict[str, list[tuple[str, ...]]] = {}
        for unit in material.all_units():
            answers = _answers(unit)
            if unit.output is not None:
                self._outputs.setdefault(unit.output.name, []).append(unit.output.options or _kept(unit, answers))
            if unit.elicitation is not None:
                self._outputs.setdefault(f"__elicit_step_{unit.label}", []).append(answers)

    def of(self, variable: str) -> tuple[str, ...]:
        declared = self._declared.get(variable)
        if declared is not None:
            return ("true", "false") if declared.type == "boolean" else declared.options
        known = self._outputs.get(variable, [])
        return known[0] if len(set(known)) == 1 else ()


def _answers(unit: Unit) -> tuple[str, ...]:
    asked = unit.elicitation
    if asked is None:
        return ()
    return ("yes", "no") if asked.type == "confirm" else asked.options if asked.type == "select" else ()


def _kept(unit: Unit, answers: tuple[str, ...]) -> tuple[str, ...]:
    """The output of a step that only asks is the answer."""
    only_asks = not (unit.content or unit.prompt or unit.tool or unit.branches)
    return answers if only_asks and unit.output is not None and not unit.output.extract else ()

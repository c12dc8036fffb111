"""Checks branches: malformed markers, unclosed blocks, labels, and unreachable alternatives."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile

import msgspec

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.check.codes import found, shown
from cuebook.dialects.markdown.check.source import Material, Unit
from cuebook.dialects.markdown.model import DeclaredInput
from cuebook.dialects.markdown.parse.branches import StepDraft
from cuebook.dialects.markdown.run.placeholders import placeholders

_MARKER = re.compile(r"`{3,}\s*(if|elif|elseif|elsif|else\s+if|else|endif|end\s+if)\b(.*)", re.ASCII | re.IGNORECASE)
_BARE = re.compile(r'(if|elif)\s+(\w+\s*(?:==|!=)\s*"[^"]*")|(else|endif)', re.ASCII)
_INLINE = re.compile(r"`{1,2}([^`]+)`{1,2}")
_COMPARED = re.compile(r"(\w+)\b(?:\s*(==|!=|=|\bis\s+not\b|\bis\b)(.*))?", re.ASCII | re.IGNORECASE)
_QUOTES = "'\"“”‘’ "
_NUMBER = re.compile(r"0*(\d+)[a-z]", re.ASCII)
_ENDS = ("endif", "end if")


def branches(material: Material) -> Iterator[Finding]:
    declared = {one.name: one for one in material.book.inputs} if material.book is not None else {}
    domains = _Domains(material, declared)
    for draft, unit in zip(material.drafts, material.units, strict=True):
        yield from _markers(draft, material, declared)
        if draft.branches:
            yield from _labels(draft, unit)
            yield from _leads(draft, material)
            if material.book is not None:
                yield from _reach(unit, domains, material)


# --- markers ------------------------------------------------------------------------------------------------


def named_in_markers(material: Material) -> set[str]:
    """The names in lines that are probably meant as branch markers."""
    names: set[str] = set()
    for draft in material.drafts:
        for _, rest in _near(draft, material).values():
            compared = _COMPARED.fullmatch(rest)
            if compared is not None:
                names.add(compared[1])
    return names


def _near(draft: StepDraft, material: Material) -> dict[int, tuple[str, str]]:
    """The rows that are probably meant as branch markers, each with its keyword and the text after it."""
    found: dict[int, tuple[str, str]] = {}
    for odd in draft.oddities:
        near = _MARKER.fullmatch(material.rows[odd.index].strip()) if odd.kind == "unread" else None
        if near is not None:
            found[odd.index] = (" ".join(near[1].lower().split()), near[2].strip("` \t"))
    for index, text in _in_code(draft, material):
        bare = _BARE.fullmatch(text)
        if bare is not None:
            found[index] = (bare[1] or bare[3], bare[2] or "")
    return found


def _in_code(draft: StepDraft, material: Material) -> Iterator[tuple[int, str]]:
    """Lines that consist of inline code, or are the only line in a code fence without a language."""
    rows, start, end = material.rows, draft.section.start, draft.section.end
    for index in range(start, end):
        inline = _INLINE.fullmatch(rows[index].strip()) if "`" in rows[index] else None
        if inline is not None:
            yield index, inline[1].strip()
    first = bisect_left(material.fences, (start, 0))
    for opened, closed in takewhile(lambda fence: fence[0] < end, islice(material.fences, first, None)):
        inside = [index for index in range(opened + 1, closed) if rows[index]] if closed - opened < 10 else []
        if len(inside) == 1 and not rows[opened].strip(" \t`~"):
            yield inside[0], rows[inside[0]].strip()


def _markers(draft: StepDraft, material: Material, declared: Mapping[str, DeclaredInput]) -> Iterator[Finding]:
    meant = False  # a malformed `if` was meant to open a block, so the markers after it are not stray
    near = _near(draft, material)
    ended = any(word in _ENDS for word, _ in near.values())
    odd = [(odd.index, odd.kind) for odd in draft.oddities if odd.kind != "unread"]
    for index, kind in sorted([*odd, *((index, "near") for index in near)]):
        text = material.rows[index].strip()
        at = (index + 1, material.column(index))
        match kind:
            case "near":
                word, rest = near[index]
                meant = meant or word == "if"
                if not text.startswith("```") and not meant and not draft.branches and word in ("else", "endif"):
                    continue  # a word in code, in a step without branches
                message = (
                    f"'{shown(text)}' is not a valid branch marker: it is sent to the model, with everything after it."
                )
                yield found("branch_marker", message, *at, _marker_fix(word, rest, declared))
            case "stray_marker" if not meant:
                message = f"'{shown(text)}' is outside a branch block, so it is sent to the model as text."
                yield found("stray_marker", message, *at, 'Open the block with ```if name == "value"```.')
            case "stray_marker":
                meant = text != "```endif```"
            case "nested_if":
                message = "A nested branch block is treated as another alternative of the outer block."
                yield found("nested_if", message, *at, "Close the outer block first, or branch in a separate step.")
            case "second_block":
                message = "A second branch block in a step is treated as more alternatives of the first."
                yield found("second_block", message, *at, "Move it into a separate step.")
            case "missing_endif" if not ended:
                message = "The branch block is not closed; it ends with the step."
                yield found("missing_endif", message, *at, "Add ```endif``` where it ends.")
            case "substep_outside":
                message = f"'{shown(text)}' is outside a branch, so it is plain text."
                fix = "Make it a step ('## STEP ...'), or put it between ```if ...``` and ```endif```."
                yield found("substep_outside", message, *at, fix)


def _marker_fix(word: str, rest: str, declared: Mapping[str, DeclaredInput]) -> str:
    if word == "else":
        return "Write ```else```."
    if word in _ENDS:
        return "Write ```endif```."
    exact = "if" if word == "if" else "elif"
    form = f'```{exact} name == "value"```'
    if _several(rest):
        return f"A marker can contain only one comparison with one string: write {form}, or add another step that branches."
    compared = _COMPARED.fullmatch(rest)
    if compared is None:
        return f"Write {form}."
    name, operator, value = compared.groups()
    if operator is None:
        one = declared.get(name)
        value = "true" if one is not None and one.type == "boolean" else "value"
        if one is not None and one.options:
            value = one.options[0]
    sign = "!=" if operator and (operator == "!=" or "not" in operator.lower()) else "=="
    value = value.strip().strip(_QUOTES)
    if '"' in value:
        return f"A string in a condition cannot contain quotes: write {form}."
    return f'Write ```{exact} {name} {sign} "{shown(value)}"```.'


def _several(rest: str) -> bool:
    """Whether the condition combines several comparisons, as in other languages."""
    if "&&" in rest or "||" in rest or rest.count("==") + rest.count("!=") > 1:
        return True
    return (" and " in rest or " or " in rest) and rest.count("=") > 1


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
                message = f"Sub-step {sub.label} is in step {number}."
                fix = f"Label it {number}{sub.label[-1]}."
                yield found("substep_label", message, sub.index + 1, 1, fix)
            elif seen[sub.label] == 2:
                message = f"Two sub-steps of step {number} are labelled {sub.label}."
                yield found("substep_label", message, sub.index + 1, 1, "Use a different letter for each.")
    if total > 26:
        message = f"Step {unit.label} has {total} sub-steps, but there are only 26 letters to label them."
        yield found("many_branches", message, unit.line, 1, "Split it into several steps.")


def _leads(draft: StepDraft, material: Material) -> Iterator[Finding]:
    for position, branch in enumerate(draft.branches):
        text = branch.lead.text(material.rows)
        at = (branch.index + 1, material.column(branch.index))
        if branch.substeps and text:
            message = f"The text before sub-step {branch.substeps[0].label} becomes part of that sub-step."
            fix = "Move it below the heading, or before the block to add it to every branch."
            yield found("text_before_substep", message, *at, fix)
        elif not branch.substeps and not text and not branch.lead.directives:
            message = f"Branch {position + 1} of step {draft.section.number} is empty."
            yield found(
                "empty_branch",
                message,
                *at,
                "Add instructions, or remove the branch: if no branch matches, the step is skipped.",
            )


# --- unreachable branches -----------------------------------------------------------------------------------


class _Left(msgspec.Struct):
    """The values that a variable may still have after all earlier conditions failed."""

    among: frozenset[str] | None
    """None means any value."""
    without: set[str] = set()
    """Values that earlier conditions have ruled out."""

    def has(self, value: str) -> bool:
        return (self.among is None or value in self.among) and value not in self.without

    def allows(self, operator: str, value: str) -> bool:
        if operator == "==":
            return self.has(value)
        return self.among is None or len(self.among) - len(self.without) > self.has(value)

    def fail(self, operator: str, value: str) -> bool:
        """Records that a condition failed. Returns False if no value is left."""
        if operator == "!=":
            self.among, self.without = frozenset([value] if self.has(value) else []), set()
        elif self.has(value):
            self.without.add(value)
        return self.among is None or len(self.among) > len(self.without)


def _reach(unit: Unit, domains: _Domains, material: Material) -> Iterator[Finding]:
    left: dict[str, _Left] = {}
    alive, closed = True, ""
    for branch in unit.branches:
        at = (branch.index + 1, material.column(branch.index))
        if not alive:
            fix = "Move it up, or remove it."
            yield found("unreachable_branch", f"This branch is never chosen: {closed}.", *at, fix)
            continue
        if branch.condition is None:
            alive, closed = False, f"the else on line {at[0]} covers all other cases"
            continue
        variable, operator, value = branch.condition
        domain = domains.of(variable)
        if domain is not None and value not in domain.values:
            yield found("unknown_option", domain.denied(variable, operator, value), *at, domain.named)
            continue
        known = left.setdefault(variable, _Left(domain.values if domain is not None and domain.closed else None))
        if not known.allows(operator, value):
            message = (
                f'This branch is never chosen: if {variable} {operator} "{shown(value)}", an earlier branch is chosen.'
            )
            yield found("unreachable_branch", message, *at, "Correct the condition, or remove the branch.")
        if not known.fail(operator, value):
            alive, closed = False, "the earlier conditions cover all cases"


class _Domain(msgspec.Struct, frozen=True):
    """The values that are declared for a variable."""

    options: tuple[str, ...]
    values: frozenset[str]
    closed: bool
    """Whether no other value is possible. A reply that matches no option is kept unchanged."""

    @property
    def named(self) -> str:
        return f"Use one of: {shown(', '.join(self.options))}."

    def denied(self, variable: str, operator: str, value: str) -> str:
        if not self.closed:
            return f"\"{shown(value)}\" is not an option of '{variable}'."
        never = "is never" if operator == "==" else "always differs from"
        return f"'{variable}' {never} \"{shown(value)}\"."


class _Domains:
    """The known values of each variable."""

    def __init__(self, material: Material, declared: Mapping[str, DeclaredInput]) -> None:
        self._outputs: dict[str, set[tuple[tuple[str, ...], bool]]] = {}
        self._known = {one.name: _of_input(one) for one in declared.values()}
        for unit in material.all_units():
            answers = _answers(unit)
            if unit.output is not None:
                options = unit.output.options
                self._add(unit.output.name, options or _kept(unit, answers), closed=not options)
            for name in unit.answer_names:
                self._add(name, answers, closed=True)

    def _add(self, name: str, options: tuple[str, ...], *, closed: bool) -> None:
        self._outputs.setdefault(name, set()).add((options, closed))

    def of(self, variable: str) -> _Domain | None:
        if variable not in self._known:
            self._known[variable] = self._of_output(variable)
        return self._known[variable]

    def _of_output(self, name: str) -> _Domain | None:
        several = self._outputs.get(name, set())
        options, closed = next(iter(several)) if len(several) == 1 else ((), False)
        # A variable that no step has set is empty.
        return _Domain(options, frozenset([*options, ""]), closed) if options else None


def _of_input(declared: DeclaredInput) -> _Domain | None:
    options = ("true", "false") if declared.type == "boolean" else declared.options
    return _Domain(options, frozenset(options), True) if options else None


def _answers(unit: Unit) -> tuple[str, ...]:
    asked = unit.elicitation
    if asked is None:
        return ()
    if asked.type == "form":
        return ()
    options = ("yes", "no") if asked.type == "confirm" else asked.options if asked.type == "select" else ()
    # The values of placeholders are unknown before a run.
    return () if any(True for option in options for _ in placeholders(option)) else options


def _kept(unit: Unit, answers: tuple[str, ...]) -> tuple[str, ...]:
    """The answers, if the step only asks a question and its output is the answer."""
    only_asks = not (unit.content or unit.prompt or unit.tool or unit.branches)
    return answers if only_asks and unit.output is not None and not unit.output.extract else ()

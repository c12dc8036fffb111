"""Checks headings and sections: malformed headings, headings inside code fences, and declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.check.codes import found, shown
from cuebook.dialects.markdown.check.source import Material, placed
from cuebook.dialects.markdown.inputs import Unfit, fitting
from cuebook.dialects.markdown.model import ARTIFACT_TYPES, Book, DeclaredInput
from cuebook.dialects.markdown.parse.declarations import INPUT_TYPES, read_artifact_type, written_type
from cuebook.dialects.markdown.parse.sections import TITLE, Section

_HEADING = re.compile(r"\s*(#{1,6})(.*)")
_STEP = re.compile(r"(STEPS?)[\s*_]*(\d+)\s*([a-zA-Z]*)(\W*)(.*)", re.ASCII | re.IGNORECASE)
_UNNUMBERED = re.compile(r"(STEP)(?:[\s*_]+([a-zA-Z]+))?[\s*_]*:\W*(.+)", re.ASCII | re.IGNORECASE)
_COUNTED = re.compile(r"[a-z]|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten", re.IGNORECASE)
_EMPHASIS = " \t*_"
_DECLARING = re.compile(
    r"\s*(#{1,6})\s*(SYSTEM(?:\s+PROMPTS?)?|INPUTS?|ARTIFACTS?|OUTPUTS?)\s*(?::\s*)?#*", re.ASCII | re.IGNORECASE
)
_REMARK = "Leave it if it is a note for readers."
_EXPECTED = {"S": "## SYSTEM", "I": "## INPUTS", "A": "## ARTIFACTS", "O": "## ARTIFACTS"}


def headings(material: Material) -> Iterator[Finding]:
    rows = material.rows
    known = {section.heading for section in material.outline.sections if section.kind != "other"}
    known |= {sub.index for draft in material.drafts for branch in draft.branches for sub in branch.substeps}
    known |= {odd.index for draft in material.drafts for odd in draft.oddities if odd.kind == "substep_outside"}
    known.add(_title(material))
    in_steps = _rows_of_steps(material)
    blocks = _rows_of_blocks(material)
    for index, row in enumerate(rows):
        if "#" not in row or index in known or row.lstrip()[:1] != "#":
            continue
        near = _near_step(row, index in blocks) or _near_section(row, index in in_steps)
        if near is not None:
            code, fix = near
            message = f"'{shown(row)}' is not a valid {'step' if code == 'step_heading' else 'section'} heading."
            yield found(code, message, index + 1, material.column(index), fix)
            known.add(index)
    for section in material.outline.sections:
        if section.kind == "other" and section.heading not in known:
            yield _ignored(section, rows, in_steps)
    if rows[0] == "---" and material.book is not None:
        yield found("front_matter", "Front matter is ignored.", 1, 1, "Remove it, or keep it for other tools.")


def _title(material: Material) -> int:
    for index in range(material.outline.preamble.end):
        if TITLE.fullmatch(material.rows[index]):
            return index
    return -1


def _near_step(row: str, in_block: bool) -> tuple[str, str] | None:
    heading = _HEADING.fullmatch(row)
    if heading is None:
        return None
    marks, text = heading[1], heading[2].strip(_EMPHASIS)
    wanted = _numbered(text, in_block) or _unnumbered(text, in_block)
    # Prose has headings such as "### Step 1". Only one in capitals or inside a branch block is meant as a step.
    if wanted is None or (len(marks) > 2 and not text.startswith("STEP") and not in_block):
        return None
    return "step_heading", wanted


def _numbered(text: str, in_block: bool) -> str | None:
    near = _STEP.fullmatch(text)
    if near is None:
        return None
    word, number, letter, between, title = near.groups()
    if word[-1] in "sS" and ":" not in between:
        return None  # a heading about several steps
    if letter and (len(letter) > 1 or not title):
        letter, title = "", f"{letter}{' ' if title else ''}{title}"
    heading = f"### STEP {number}{letter.lower()}" if letter or in_block else f"## STEP {number}"
    if in_block and not letter:
        heading += "a"
    return f"Write it as '{heading}: {shown(title) or 'Title'}'."


def _unnumbered(text: str, in_block: bool) -> str | None:
    near = _UNNUMBERED.fullmatch(text)
    if near is None:
        return None
    word, instead, title = near.groups()
    if instead and word != "STEP" and not _COUNTED.fullmatch(instead):
        return None  # a sentence that begins with "Step"
    return f"Number it, as in '{'### STEP 1a' if in_block else '## STEP 1'}: {shown(title)}'."


def _near_section(row: str, in_step: bool) -> tuple[str, str] | None:
    near = _DECLARING.fullmatch(row)
    if near is None or (len(near[1]) > 2 and in_step):
        return None
    return "section_heading", f"Write it as '{_EXPECTED[near[2][0].upper()]}'."


def _ignored(section: Section, rows: list[str], in_steps: set[int]) -> Finding:
    fix = "If it belongs to the step above, use three '#'." if section.heading - 1 in in_steps else _REMARK
    return found(
        "ignored_section", f"The section '{shown(rows[section.heading])}' is ignored.", section.heading + 1, 1, fix
    )


def _rows_of_steps(material: Material) -> set[int]:
    return {i for draft in material.drafts for i in range(draft.section.start, draft.section.end)}


def _rows_of_blocks(material: Material) -> set[int]:
    """The rows from the first marker of each step to its end. In these, a heading is probably meant as a sub-step."""
    blocks = (draft for draft in material.drafts if draft.branches)
    return {i for draft in blocks for i in range(draft.branches[0].index, draft.section.end)}


# --- code fences ------------------------------------------------------------------------------------------


def in_fences(material: Material) -> Iterator[Finding]:
    """Lines inside a code fence that take effect. The format defines this, but few authors expect it."""
    sections = {section.heading for section in material.outline.sections}
    effective = sorted(sections | _effective_marks(material))
    position = 0
    for opened, closed in material.fences:
        while position < len(effective) and effective[position] <= opened:
            position += 1
        while position < len(effective) and effective[position] < closed:
            index = effective[position]
            position += 1
            what = shown(material.rows[index])
            message = f"'{what}' takes effect although it is inside the code fence that begins on line {opened + 1}."
            fix = (
                "Indent the heading to keep it as text."
                if index in sections
                else "Put a word before it to keep it as text."
            )
            yield found("inside_fence", message, index + 1, material.column(index), fix)
            if index in sections:
                break  # one finding for each fence that contains sections is enough


def _effective_marks(material: Material) -> set[int]:
    marks = {index for draft in material.drafts for index in draft.section.marks}
    for draft in material.drafts:
        marks -= {odd.index for odd in draft.oddities if odd.kind in ("unread", "stray_marker", "substep_outside")}
        marks -= {d.line - 1 for passage in draft.passages() for d in passage.directives if d.is_text}
    return marks


# --- declarations -----------------------------------------------------------------------------------------


def declarations(material: Material) -> Iterator[Finding]:
    last: dict[str, Section] = {}
    for section in material.outline.sections:
        if section.kind in ("system", "artifacts"):
            if section.kind in last:
                yield _repeated(last[section.kind], material.rows)
            last[section.kind] = section
        if section.kind == "artifacts":
            yield from _artifact_line(section, material)
        if section.kind in ("system", "inputs", "artifacts"):
            yield from _misplaced(section, material)
    if "system" in last:
        yield from _system(last["system"], material)
    if material.book is not None:
        yield from _inputs(material.book, material.rows)


def _repeated(section: Section, rows: list[str]) -> Finding:
    message = f"'{rows[section.heading]}' appears again below, and the later section replaces this one."
    return found("repeated_section", message, section.heading + 1, 1, "Merge them.")


def _artifact_line(section: Section, material: Material) -> Iterator[Finding]:
    lines = [material.rows[index].strip() for index in range(section.start, section.end)]
    if not any(read_artifact_type(line) for line in lines):
        fix = f"Write 'type: markdown' below it, or one of {', '.join(ARTIFACT_TYPES[1:])}."
        yield found("artifact_line", "The section does not specify a type.", section.heading + 1, 1, fix)


def _misplaced(section: Section, material: Material) -> Iterator[Finding]:
    for index in section.marks:
        text = material.rows[index].strip()
        if text.startswith("@"):
            message = f"{text.partition('(')[0]} has no effect outside a step."
            yield found("misplaced_directive", message, index + 1, material.column(index), "Move it into a step.")


def _system(section: Section, material: Material) -> Iterator[Finding]:
    for place in placed(material.rows, section.start, section.end):
        message = f"{{{{{place.placeholder.name}}}}} in SYSTEM is not replaced."
        yield found("system_placeholder", message, place.line, place.column, "Use it in a step.")


_SENSITIVE = re.compile(r"(?:^|[,;]\s*)sensi\w*\s*(?=$|[,;:])", re.IGNORECASE)


def _inputs(book: Book, rows: list[str]) -> Iterator[Finding]:
    for declared in book.inputs:
        row = rows[declared.line - 1]
        column = row.index("(") + 1
        kind = written_type(row.strip())
        if not declared.sensitive and _SENSITIVE.search(f"{kind}: {declared.default or ''}"):
            message = f"'{declared.name}' is not sensitive: the mark must follow the type."
            default = f": {_SENSITIVE.sub('', declared.default).strip()}" if declared.default else ""
            fix = f"Write - `{declared.name}` (string, sensitive{default})."
            yield found("sensitive_mark", message, declared.line, column, fix)
        elif kind.lower() not in INPUT_TYPES:
            message = f"'{shown(kind)}' is not an input type, so '{declared.name}' is a string."
            yield found("input_type", message, declared.line, column, "Use string, text, number, boolean or enum.")
        if declared.type == "enum" and not declared.options:
            fix = f"List them: - `{declared.name}` (enum: one, two)."
            yield found("enum_options", f"The enum '{declared.name}' has no options.", declared.line, column, fix)
        elif declared.default is not None:
            yield from _default(declared, column)


def _default(declared: DeclaredInput, column: int) -> Iterator[Finding]:
    try:
        fitting(declared, declared.default)
    except Unfit as why:
        message = f"Invalid default: {declared.name} {why}."
        yield found("input_default", message, declared.line, column, "Correct it.")

"""Checks a Markdown playbook without running it, and also reports mistakes that the format silently ignores."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.findings import Finding, Problem
from cuebook.dialects.markdown.check.branches import branches
from cuebook.dialects.markdown.check.codes import CODES, found, sarif
from cuebook.dialects.markdown.check.directives import directives
from cuebook.dialects.markdown.check.headings import declarations, headings, in_fences
from cuebook.dialects.markdown.check.source import Material, material
from cuebook.dialects.markdown.check.variables import variables
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import FRONT_MATTER, Parsed, read
from cuebook.dialects.markdown.parse.sections import outline

__all__ = ["CODES", "Finding", "check", "sarif"]

_CHECKS = (headings, in_fences, declarations, directives, branches, variables)

_PARSED = {
    "F1": "no_title",
    "F2": "no_steps",
    "F3": "duplicate_input",
    "F4": "too_large",
    "F5": "empty_document",
    "not_text": "not_text",
    "elicit_default": "elicit_default",
    "elicit_form": "elicit_form",
    "approve": "approve",
    "W1": "step_number",
    "W2": "input_line",
    "W3": "artifact_type",
    "W5": "elicit_type",
}
"""The finding code for each parser problem. W4 is left out, because `variables` reports it in more detail."""

_FIXES = {
    "step_number": "Number the steps 1, 2, 3. They run in document order regardless of their numbers.",
    "artifact_type": "Use one of them.",
}
"""Fixes for problems that the parser reports without a fix."""


def check(text: str, name: str, *, book: Book | None = None) -> list[Finding]:
    """All findings, ordered by line, including the problems that the parser reports.

    `book` is the document if the text was already parsed.
    """
    parsed = read(text) if book is None else Parsed(book, book.warnings)
    problems = [problem for problem in (*parsed.errors, *parsed.warnings) if problem.code in _PARSED]
    if any(problem.code in ("F4", "F5", "not_text") for problem in problems):
        return [_from(problem, None) for problem in problems]
    if text.startswith(FRONT_MATTER) and _is_skill(text):
        return [_from(problem, None) for problem in problems]
    looked_at = material(outline(text), parsed.definition)
    findings = [_from(problem, looked_at) for problem in problems]
    findings += _all(looked_at)
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.column or 0, finding.code))


def _is_skill(text: str) -> bool:
    from cuebook.dialects.markdown.parse.skill import is_skill

    return is_skill(text)


def _all(material: Material) -> Iterator[Finding]:
    for one in _CHECKS:
        yield from one(material)


def _from(problem: Problem, material: Material | None) -> Finding:
    code = _PARSED[problem.code]
    column = material.column(problem.line - 1) if material is not None and problem.line else 1
    return found(code, problem.message, problem.line, column, problem.fix or _FIXES[code])

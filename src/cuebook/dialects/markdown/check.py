"""Finds what looks like a mistake in a Markdown playbook: all that the format passes over in silence, and what it says.

It reads the text, and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.checks.branches import branches
from cuebook.dialects.markdown.checks.directives import directives
from cuebook.dialects.markdown.checks.headings import declarations, headings, in_fences
from cuebook.dialects.markdown.checks.material import Material, material
from cuebook.dialects.markdown.checks.variables import variables
from cuebook.dialects.markdown.findings import CODES, found, sarif
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import Parsed, read
from cuebook.dialects.markdown.sections import outline
from cuebook.dialects.registry import Problem

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
    "W1": "step_number",
    "W2": "input_line",
    "W3": "artifact_type",
    "W5": "elicit_type",
}
"""What the parser's own problems are called here. W4 is missing: the check of variables says more of it."""

_FIXES = {
    "step_number": "Number the steps 1, 2, 3: they run as they stand, whatever their numbers.",
    "artifact_type": "Use one of them.",
}
"""Where the parser has none of its own."""


def check(text: str, name: str, *, book: Book | None = None) -> list[Finding]:
    """Everything that is wrong or odd, in the order of the lines; what `parse` says is among it.

    `book` saves reading the text once more. A text that is no playbook gives its errors as findings.
    """
    parsed = read(text) if book is None else Parsed(book, book.warnings)
    problems = [problem for problem in (*parsed.errors, *parsed.warnings) if problem.code in _PARSED]
    if any(problem.code in ("F4", "F5", "not_text") for problem in problems):
        return [_from(problem, None) for problem in problems]
    looked_at = material(outline(text), parsed.definition)
    findings = [_from(problem, looked_at) for problem in problems]
    findings += _all(looked_at)
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.column or 0, finding.code))


def _all(material: Material) -> Iterator[Finding]:
    for one in _CHECKS:
        yield from one(material)


def _from(problem: Problem, material: Material | None) -> Finding:
    code = _PARSED[problem.code]
    column = material.column(problem.line - 1) if material is not None and problem.line else 1
    return found(code, problem.message, problem.line, column, problem.fix or _FIXES[code])

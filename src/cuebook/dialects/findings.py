"""The findings of a check, their SARIF form, and the error that lists all problems of an invalid playbook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from cuebook.formats.shape import Problem
from cuebook.kernel.errors import BadInput, with_fix

__all__ = ["Codes", "Finding", "InvalidPlaybook", "Problem", "Severity", "log_of"]

Severity = Literal["error", "warning", "note"]
Codes = Mapping[str, tuple[Severity, str]]
"""The severity and meaning of each code. A code never changes its meaning."""


class Finding(msgspec.Struct, frozen=True):
    code: str
    severity: Severity
    message: str
    line: int | None = None
    column: int | None = None
    """In characters, starting at 1."""
    fix: str = ""


def log_of(findings: Iterable[Finding], place: str, codes: Codes) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log. `place` is a relative path or a `file:///` URI."""
    findings = list(findings)
    # A percent sign or a colon in a file name would be interpreted as URI syntax.
    uri = place if place.startswith("file:///") else quote(place, safe="/", errors="surrogateescape")
    used = sorted({finding.code for finding in findings})
    driver = {"name": "cuebook", "rules": [_rule(code, codes) for code in used]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, used.index(finding.code), uri) for finding in findings],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(code: str, codes: Codes) -> dict[str, Any]:
    severity, meaning = codes[code]
    return {"id": code, "shortDescription": {"text": meaning}, "defaultConfiguration": {"level": severity}}


def _result(finding: Finding, rule: int, uri: str) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if finding.line:
        place["region"] = {"startLine": finding.line} | ({"startColumn": finding.column} if finding.column else {})
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": with_fix(finding.message, finding.fix)},
        "locations": [{"physicalLocation": place}],
    }


# --- problems -----------------------------------------------------------------------------------------------


class InvalidPlaybook(BadInput):
    """The error for a playbook that cannot be run, with all its problems."""

    code = "invalid_playbook"

    def __init__(self, name: str, problems: Sequence[Problem], *, codes: bool = False) -> None:
        """With `codes`, the message includes the code of each problem, for formats that define them."""
        self.problems = tuple(problems)
        super().__init__("\n".join(_line(name, problem, codes) for problem in problems))


def _line(name: str, problem: Problem, codes: bool) -> str:
    where = f"{name}:{problem.line}" if problem.line else name
    code = f" [{problem.code}]" if codes else ""
    return f"{where}: {with_fix(problem.message, problem.fix)}{code}"

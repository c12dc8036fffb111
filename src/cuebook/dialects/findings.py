"""What a checker finds in a playbook, and findings as SARIF. Knows no dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from cuebook.kernel.errors import told

Severity = Literal["error", "warning", "note"]
Codes = Mapping[str, tuple[Severity, str]]
"""The codes of a dialect, each with its severity and meaning. A code is never given another meaning."""


class Finding(msgspec.Struct, frozen=True):
    code: str
    severity: Severity
    message: str
    line: int | None = None
    column: int | None = None
    """In characters, from 1."""
    fix: str = ""


def log_of(findings: Iterable[Finding], place: str, codes: Codes) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log. `place` is a relative path, or a URI that begins with `file:///`."""
    findings = list(findings)
    # A percent sign or a colon in a file's name would be read as a part of the URI.
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
        "message": {"text": told(finding.message, finding.fix)},
        "locations": [{"physicalLocation": place}],
    }

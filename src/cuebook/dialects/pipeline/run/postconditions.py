"""Checks what must be true after a step has succeeded, against evidence from the step itself. Pure.

Missing evidence is neither success nor failure: the user has to check.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cuebook.dialects.inputs import alike
from cuebook.dialects.pipeline.model import (
    Assertion,
    CommandHolds,
    DomContains,
    ExitCode,
    FileHolds,
    HttpStatus,
    JsonPath,
    OutputContains,
    Postcondition,
)
from cuebook.dialects.pipeline.run.results import Result
from cuebook.kernel.outcomes import CommandResult, Failed

FAILED = "postcondition_failed"
UNSEEN = "postcondition_unseen"
"""Failure code if evidence is missing and the user did not accept the result."""

REDACTED = "[REDACTED]"


class Evidence(msgspec.Struct, frozen=True):
    """The evidence from a step; None if there is none of that kind."""

    status: int | None = None
    html: str | None = None
    flaw: str = ""
    """Why the page is incomplete; empty if it is complete."""
    json: Any = msgspec.UNSET
    elements: dict[str, str | None] = {}
    """The text of the elements of a browser's page, by selector; None for one that the page does not have."""
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    probes: dict[int, CommandResult | str] = {}
    """What was seen for each assertion that looks at the world, or why nothing was."""


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one assertion."""

    kind: str
    status: Literal["passed", "failed", "missing"]
    message: str = ""
    code: str = ""
    expected: Any = None
    observed: Any = None


class Report(msgspec.Struct, frozen=True):
    assertions: tuple[Checked, ...]
    metadata: dict[str, Any] = {}

    @property
    def verdict(self) -> Literal["passed", "failed", "missing"]:
        found = {one.status for one in self.assertions}
        return "failed" if "failed" in found else "missing" if "missing" in found else "passed"

    @property
    def words(self) -> str:
        """Why the postcondition did not pass."""
        return "; ".join(f"{one.kind}: {one.message}" for one in self.assertions if one.status != "passed")

    def plain(self) -> dict[str, Any]:
        """The report as a plain value, with masked strings."""
        made = {"verdict": self.verdict, "assertions": [msgspec.to_builtins(one) for one in self.assertions]}
        return {**made, "metadata": self.metadata} if self.metadata else made

    def failed(self) -> Failed:
        return Failed(FAILED, f"postcondition failed: {self.words}", "Check what the step actually did.")


def evidence_of(result: Result, probes: dict[int, CommandResult | str] | None = None) -> Evidence:
    return Evidence(
        result.facts.status,
        str(result.text) if result.html else None,
        _flaw(result),
        result.json() if result.has_json() else msgspec.UNSET,
        result.page.elements if result.page is not None else {},
        result.facts.exit_code,
        str(result.text),
        result.facts.stderr,
        probes or {},
    )


def _flaw(result: Result) -> str:
    if result.facts.truncated:
        return "cut at the limit"
    return "not valid UTF-8" if result.facts.replaced else ""


def check(postcondition: Postcondition, evidence: Evidence) -> Report:
    return Report(
        tuple(_checked(one, number, evidence) for number, one in enumerate(postcondition.assertions)),
        postcondition.metadata,
    )


def _checked(assertion: Assertion, number: int, evidence: Evidence) -> Checked:
    match assertion:
        case ExitCode():
            return _exit_code(assertion, evidence)
        case OutputContains():
            return _output(assertion, evidence)
        case FileHolds() | CommandHolds():
            return _probed(assertion, evidence.probes.get(number, "it was not looked at"))
        case HttpStatus():
            return _status(assertion, evidence)
        case DomContains():
            return _page(assertion, evidence)
        case JsonPath():
            return _json(assertion, evidence)


def _status(wanted: HttpStatus, evidence: Evidence) -> Checked:
    kind = "http_status"
    if evidence.status is None:
        return Checked(kind, "missing", "the step provides no HTTP status")
    if evidence.status == wanted.equals:
        return Checked(kind, "passed", observed=evidence.status)
    message = f"expected status {wanted.equals}, observed {evidence.status}"
    return Checked(kind, "failed", message, "http_status_mismatch", wanted.equals, evidence.status)


def _exit_code(wanted: ExitCode, evidence: Evidence) -> Checked:
    kind = "exit_code"
    if evidence.exit_code is None:
        return Checked(kind, "missing", "the step provides no exit code")
    if evidence.exit_code == wanted.equals:
        return Checked(kind, "passed", observed=evidence.exit_code)
    message = f"expected exit code {wanted.equals}, observed {evidence.exit_code}"
    return Checked(kind, "failed", message, "exit_code_mismatch", wanted.equals, evidence.exit_code)


def _output(wanted: OutputContains, evidence: Evidence) -> Checked:
    kind = "output_contains"
    if str(wanted.text) in (evidence.stdout if wanted.stream == "stdout" else evidence.stderr):
        return Checked(kind, "passed")
    if wanted.stream == "stdout" and evidence.flaw:
        return Checked(kind, "missing", f"the text is not in the available output, which is {evidence.flaw}")
    return Checked(kind, "failed", f"{wanted.stream} does not contain the text", "output_text_missing", REDACTED)


def _probed(wanted: FileHolds | CommandHolds, seen: CommandResult | str) -> Checked:
    kind = str(wanted.__struct_config__.tag)
    if isinstance(seen, str):
        return Checked(kind, "missing", seen)
    code = seen.exit_code
    if isinstance(wanted, CommandHolds):
        if code != 0:
            return Checked(kind, "failed", f"the command ended with exit code {code}", "command_failed", 0, code)
        if str(wanted.contains) not in str(seen.stdout):
            return Checked(kind, "failed", "its output does not contain the text", "command_output", REDACTED)
        return Checked(kind, "passed", observed=code)
    if code not in (0, 1) and not (wanted.contains and code == 2):
        return Checked(kind, "missing", f"the file could not be looked at (exit code {code})")
    if (code == 0) == wanted.exists:
        return Checked(kind, "passed")
    if wanted.contains:
        return Checked(kind, "failed", "the file does not exist or does not contain the text", "file_text_missing")
    return Checked(kind, "failed", f"the file {'does not exist' if wanted.exists else 'exists'}", "file_mismatch")


def _page(wanted: DomContains, evidence: Evidence) -> Checked:
    """Searches a whole response for text, or the elements of a browser's page."""
    kind = "dom_contains"
    seen = evidence.elements.get(wanted.selector or "body", msgspec.UNSET)
    if seen is not msgspec.UNSET:
        return _contained(wanted, seen, "")
    if evidence.html is None or wanted.selector:
        what = f"elements ({wanted.selector})" if wanted.selector else "page"
        return Checked(kind, "missing", f"the step provides no {what}")
    return _contained(wanted, evidence.html, evidence.flaw)


def _contained(wanted: DomContains, page: str | None, flaw: str) -> Checked:
    kind, text = "dom_contains", str(wanted.text)
    if page is None:
        return Checked(kind, "failed", f"the page has no element {wanted.selector}", "dom_element_missing", REDACTED)
    if wanted.case_insensitive:
        page, text = page.casefold(), text.casefold()
    if text in page:
        return Checked(kind, "passed")
    if flaw:
        return Checked(kind, "missing", f"the text is not in the available part of the page, which is {flaw}")
    return Checked(kind, "failed", "the page does not contain the text", "dom_text_missing", REDACTED)


def _json(wanted: JsonPath, evidence: Evidence) -> Checked:
    kind = "json_path"
    if evidence.json is msgspec.UNSET:
        return Checked(kind, "missing", "the step provides no JSON")
    expected = _masked(wanted.equals)
    value: Any = evidence.json
    for part in wanted.path:
        if isinstance(part, int):
            there = isinstance(value, list) and part < len(value)
        else:
            there = isinstance(value, dict) and part in value
        if not there:
            return Checked(kind, "failed", f"{_written(wanted)} does not exist", "json_path_missing", expected)
        value = value[part]
    if alike(value, wanted.equals):
        return Checked(kind, "passed", observed=_masked(value))
    message = f"{_written(wanted)} has a different value"
    return Checked(kind, "failed", message, "json_path_predicate_failed", expected, _masked(value))


def _written(wanted: JsonPath) -> str:
    return wanted.written or "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wanted.path)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return REDACTED
    if isinstance(value, dict):
        return {name: _masked(one) for name, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list | tuple) else value

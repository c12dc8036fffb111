"""Finds errors and oddities in a program: everything that `parse` rejects or warns about, faults in its listings, and
surprises.

It reads the text, and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cuebook.dialects.children import CODES as CHILDREN
from cuebook.dialects.findings import Codes, Finding, InvalidPlaybook, Problem, Severity, log_of
from cuebook.dialects.program.check.listing import CODES as LINTED
from cuebook.dialects.program.check.listing import lint
from cuebook.dialects.program.check.names import CODES as USED
from cuebook.dialects.program.check.names import used
from cuebook.dialects.program.check.unsupported import CODES as UNSUPPORTED
from cuebook.dialects.program.check.unsupported import surprising, unsupported
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.model import Agent, Playbook, ProgramText
from cuebook.dialects.program.parse import read as parsed
from cuebook.dialects.program.parse.imports import Read, Resolved, resolved
from cuebook.dialects.program.parse.lists import trigger_code

__all__ = ["CODES", "Finding", "check", "sarif", "unfit", "whole"]

ERRORS = {
    "TOO_LARGE": "The program is too large.",
    "IMPORT": "A file cannot be imported.",
    "FRONTMATTER": "The front matter is not valid YAML, or not a mapping.",
    "NO_AGENT": "The program has no agent heading.",
    "NO_NAME": "An agent or a playbook has no name.",
    "TWICE": "Two agents, playbooks or triggers have the same name.",
    "OPEN_FENCE": "A code block is not closed.",
    "METADATA": "Metadata is not valid YAML, or appears twice.",
    "REMOTE": "The configuration of a remote agent is missing or invalid.",
    "SIGNATURE": "The parameters of a playbook cannot be parsed.",
    "EXECUTION_MODE": "A playbook has an unknown execution mode.",
    "PYTHON": "A Python block is not valid Python.",
    "DECORATOR": "An argument of a decorator is not a literal.",
    "PUBLIC_JSON": "The public.json block is not a list of this agent's playbooks.",
    "UNKNOWN_TRIGGER": "A trigger has an unknown code.",
}

WARNINGS = {
    "STRAY_TEXT": "Text before the first agent is ignored.",
    "SECTION_LEVEL": "A section heading has the wrong level.",
    "UNKNOWN_SECTION": "An unknown section is treated as text.",
    "UNNUMBERED_STEP": "An item among numbered steps has no number.",
    "NO_BEGINNING": "Nothing runs when the program starts.",
    "OPEN_METADATA": "Metadata does not end with ---, so only part of it is read.",
}

CODES: Codes = {
    **CHILDREN,
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **LINTED,
    **USED,
    **UNSUPPORTED,
}


def check(text: str, name: str, *, read: Read | None = None) -> list[Finding]:
    """All findings, in line order. `read` returns the files that the program imports."""
    try:
        source = resolved(text, name, read) if read is not None else Resolved(text)
    except InvalidPlaybook as error:
        return [_finding(problem, "error") for problem in error.problems]
    found = parsed(source.text, name)
    findings = [_finding(problem, "error") for problem in found.errors]
    findings += [_finding(problem, "warning") for problem in found.warnings]
    if found.program is not None:
        findings += _of_program(found.program)
    return sorted((_located(finding, source) for finding in findings), key=lambda one: (one.line or 0, one.code))


def whole(text: str, name: str, read: Read) -> str:
    """Return the text with its imports. Raise `InvalidPlaybook`, which names the files with errors."""
    source = resolved(text, name, read)
    if source.origins:
        found = parsed(source.text, name)
        errors = found.errors if found.program is None else unfit(found.program)
        if errors:
            raise InvalidPlaybook(name, [source.located(problem) for problem in errors], codes=True)
    return source.text


def unfit(program: ProgramText) -> tuple[Problem, ...]:
    """The errors in listings and triggers that keep a program from running, although it can be parsed."""
    found = (
        one
        for agent in program.agents.values()
        for one in (*_of_listings(agent), *unsupported(program, agent))
        if one.severity == "error"
    )
    return tuple(Problem(one.message, one.line, one.fix, one.code) for one in found)


def sarif(findings: Iterable[Finding], uri: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log."""
    return log_of(findings, uri, CODES)


def _finding(problem: Problem, severity: Severity) -> Finding:
    return Finding(problem.code, severity, problem.message, problem.line, fix=problem.fix)


def _located(finding: Finding, source: Resolved) -> Finding:
    line, where = source.place(finding.line)
    return msgspec.structs.replace(finding, line=line, message=f"{where}{finding.message}")


# --- findings beyond the parser -----------------------------------------------------------------------------


def _of_program(program: ProgramText) -> Iterator[Finding]:
    standby = any(agent.metadata.get("startup_mode") == "standby" for agent in program.agents.values())
    if not program.beginning and not standby:
        fix = "Add the trigger '- T1:BGN At the beginning' to a playbook."
        yield _new_finding("NO_BEGINNING", "No playbook runs when the program starts.", None, fix)
    for agent in program.agents.values():
        yield from _of_listings(agent)
        yield from used(program, agent)
        yield from unsupported(program, agent)
        yield from surprising(program, agent)


def _of_listings(agent: Agent) -> Iterator[Finding]:
    for playbook in agent.playbooks.values():
        yield from _triggers(playbook)
        if playbook.steps and not playbook.uncompiled:
            yield from (_named(playbook, finding) for finding in lint(Listing.of(playbook)))


def _triggers(playbook: Playbook) -> Iterator[Finding]:
    for trigger in playbook.triggers:
        code = trigger_code(trigger.text)
        if code:
            fix = "The codes are BGN, CND and EVT."
            yield _new_finding(
                "UNKNOWN_TRIGGER", f"{playbook.name}: {trigger.id} has the unknown code {code}.", trigger.line, fix
            )


def _named(playbook: Playbook, finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, message=f"{playbook.name}: {finding.message}")


def _new_finding(code: str, message: str, line: int | None, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line, fix=fix)

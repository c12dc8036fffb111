"""Finds what is wrong or odd in a program: all that `parse` refuses or warns of, what its listings lack, and what may surprise.

It reads the text, and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cuebook.dialects.findings import Codes, Finding, Severity, log_of
from cuebook.dialects.program.imports import Read, Resolved, resolved
from cuebook.dialects.program.linting import CODES as LINTED
from cuebook.dialects.program.linting import lint
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.lists import trigger_code
from cuebook.dialects.program.model import Agent, Playbook, ProgramText
from cuebook.dialects.program.parse import read as parsed
from cuebook.dialects.program.unsupported import CODES as UNSUPPORTED
from cuebook.dialects.program.unsupported import surprising, unsupported
from cuebook.dialects.program.usage import CODES as USED
from cuebook.dialects.program.usage import used
from cuebook.dialects.registry import InvalidPlaybook, Problem

__all__ = ["CODES", "Finding", "check", "sarif", "unfit", "whole"]

ERRORS = {
    "TOO_LARGE": "The program is too large.",
    "IMPORT": "A file cannot be imported.",
    "FRONTMATTER": "The front matter is no YAML, or no table.",
    "NO_AGENT": "There is no heading of an agent.",
    "NO_NAME": "An agent or a playbook has no name.",
    "TWICE": "Two agents, playbooks or triggers have one name.",
    "OPEN_FENCE": "A block of code never ends.",
    "METADATA": "Metadata is no YAML, or there twice.",
    "REMOTE": "Nothing, or nothing that fits, says how a remote agent is reached.",
    "SIGNATURE": "The parameters of a playbook cannot be read.",
    "EXECUTION_MODE": "A playbook is to run in a way that does not exist.",
    "PYTHON": "A Python block is no Python.",
    "DECORATOR": "What a decorator says is not written out.",
    "PUBLIC_JSON": "The block public.json is no list of this agent's playbooks.",
    "UNKNOWN_TRIGGER": "A trigger has a code that does not exist.",
}

WARNINGS = {
    "STRAY_TEXT": "Text stands before the first agent, where nobody reads it.",
    "SECTION_LEVEL": "A section has a heading of another level.",
    "UNKNOWN_SECTION": "A section that means nothing counts as a part of the text.",
    "UNNUMBERED_STEP": "An item among numbered steps has no number.",
    "NO_BEGINNING": "Nothing runs when the program starts.",
    "OPEN_METADATA": "Metadata has no --- behind it, so that only a part of it counts.",
}

CODES: Codes = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **LINTED,
    **USED,
    **UNSUPPORTED,
}


def check(text: str, name: str, *, read: Read | None = None) -> list[Finding]:
    """Everything that is wrong or odd, in the order of the lines. `read` gives the files that the program imports."""
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
    """The text with what it imports; `InvalidPlaybook` names the files in which something is wrong."""
    source = resolved(text, name, read)
    if source.origins:
        found = parsed(source.text, name)
        errors = found.errors if found.program is None else unfit(found.program)
        if errors:
            raise InvalidPlaybook(name, [source.located(problem) for problem in errors], codes=True)
    return source.text


def unfit(program: ProgramText) -> tuple[Problem, ...]:
    """What keeps a program from being run that can be read: the errors in its listings and triggers."""
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


# --- what may surprise --------------------------------------------------------------------------------------


def _of_program(program: ProgramText) -> Iterator[Finding]:
    standby = any(agent.metadata.get("startup_mode") == "standby" for agent in program.agents.values())
    if not program.beginning and not standby:
        fix = "Give a playbook the trigger '- T1:BGN At the beginning'."
        yield _odd("NO_BEGINNING", "No playbook runs when the program starts.", None, fix)
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
            fix = "There are BGN, CND and EVT."
            yield _odd("UNKNOWN_TRIGGER", f"{playbook.name}: {trigger.id} has the code {code}.", trigger.line, fix)


def _named(playbook: Playbook, finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, message=f"{playbook.name}: {finding.message}")


def _odd(code: str, message: str, line: int | None, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line, fix=fix)

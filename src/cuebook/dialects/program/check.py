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
from cuebook.dialects.program.listing import Listing, call_named
from cuebook.dialects.program.model import Agent, Playbook, ProgramText
from cuebook.dialects.program.parse import read as parsed
from cuebook.dialects.program.scope import BUILT_IN
from cuebook.dialects.registry import InvalidPlaybook, Problem
from cuebook.dialects.wording import meant

__all__ = ["CODES", "Finding", "check", "sarif", "whole"]

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
}

WARNINGS = {
    "STRAY_TEXT": "Text stands before the first agent, where nobody reads it.",
    "SECTION_LEVEL": "A section has the heading of a playbook.",
    "UNKNOWN_SECTION": "A section that means nothing counts as a part of the text.",
    "UNNUMBERED_STEP": "An item among numbered steps has no number.",
    "NO_BEGINNING": "Nothing runs when the program starts.",
    "UNKNOWN_PLAYBOOK": "A line calls a playbook that does not exist.",
    "PRIVATE_PLAYBOOK": "A line calls a playbook of another agent that is not public.",
    "UNKNOWN_NOTE": "A line applies a note that does not exist.",
}

NOTES = {
    "NOT_COMPILED": "The steps of a playbook have no numbers: it cannot be run as it is.",
}

CODES: Codes = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
    **LINTED,
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
        errors = parsed(source.text, name).errors
        if errors:
            raise InvalidPlaybook(name, [source.located(problem) for problem in errors], codes=True)
    return source.text


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
        for playbook in agent.playbooks.values():
            if playbook.uncompiled:
                fix = "Number them as in '- 01:QUE Say(user, ...)' to run it."
                words = f"The steps of '{playbook.name}' are not compiled."
                yield _odd("NOT_COMPILED", words, playbook.line, fix)
            elif playbook.steps:
                yield from (_named(playbook, finding) for finding in lint(Listing.of(playbook)))
                yield from _lines(program, agent, playbook)


def _named(playbook: Playbook, finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, message=f"{playbook.name}: {finding.message}")


def _odd(code: str, message: str, line: int | None, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line, fix=fix)


def _lines(program: ProgramText, agent: Agent, playbook: Playbook) -> Iterator[Finding]:
    notes = {note.id for note in playbook.notes}
    for line in playbook.steps:
        called = call_named(line)
        if called:
            yield from _call(program, agent, called, line.line)
        words = line.text.split()
        if line.code == "CHK" and words and _is_note(words[0]) and words[0].rstrip(",.;:") not in notes:
            known = ", ".join(sorted(notes)) or "none"
            yield _odd("UNKNOWN_NOTE", f"There is no note {words[0]}.", line.line, f"There are: {known}.")


def _is_note(word: str) -> bool:
    return word[:1] == "N" and word[1:].rstrip(",.;:").isdigit()


def _call(program: ProgramText, agent: Agent, called: str, line: int) -> Iterator[Finding]:
    owner, _, name = called.rpartition(".")
    if name in BUILT_IN or called in agent.playbooks or owner in ("self", agent.name):
        return
    if owner and owner not in program.agents:
        return  # a variable that holds an agent, perhaps
    of = [program.agents[owner]] if owner else list(program.agents.values())
    if any(one.remote is not None for one in of):
        return  # what it offers is known when it is reached
    if not any(name in one.playbooks for one in of):
        known = sorted({playbook for one in of for playbook in one.playbooks})
        yield _odd("UNKNOWN_PLAYBOOK", f"There is no playbook '{called}'.", line, meant(name, known))
    elif not any(name in one.playbooks and one.playbooks[name].public for one in of):
        fix = "Write public: true below its heading."
        yield _odd("PRIVATE_PLAYBOOK", f"'{called}' is of another agent, and is not public.", line, fix)

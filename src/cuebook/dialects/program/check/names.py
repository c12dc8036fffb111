"""Checks the names in the lines of a program: playbooks and their arguments, agents, notes, types and variables.

These findings do not keep a program from running: a model may know what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from cuebook.dialects.findings import Codes, Finding
from cuebook.dialects.program.listing import call_named, yield_of
from cuebook.dialects.program.machine.decide import has_words
from cuebook.dialects.program.model import Agent, ListingLine, Playbook, ProgramText
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, NotComputable, coerced, evaluate, type_name
from cuebook.dialects.program.values.expressions import ExpressionError, call_of, expression_of, refs_of
from cuebook.dialects.program.verify.scope import BUILT_IN, RESULT, SUMMARY, unbound
from cuebook.dialects.program.verify.verdicts import Signature
from cuebook.formats.suggestions import meant

CODES: Codes = {
    "UNKNOWN_PLAYBOOK": ("warning", "A line calls a playbook that does not exist."),
    "PRIVATE_PLAYBOOK": ("warning", "A line calls a playbook of another agent that is not public."),
    "UNKNOWN_AGENT": ("warning", "A line mentions an agent that does not exist."),
    "UNKNOWN_NOTE": ("warning", "A line applies a note that does not exist."),
    "UNKNOWN_TYPE": ("warning", "A type is unknown, so values are not checked."),
    "UNKNOWN_VARIABLE": ("warning", "A line returns a variable that nothing else mentions."),
    "UNFIT_ARGUMENTS": ("warning", "The arguments of a call do not match the playbook's parameters."),
    "UNFIT_RETURN": ("warning", "A line returns a value of the wrong type."),
    "OPEN_CALL": ("warning", "The parentheses of a call are not closed."),
}

_VARIABLE = re.compile(r"\$(?P<name>[^\W\d]\w*+)")
_TYPED = re.compile(r"\$(?P<name>[^\W\d]\w*+):(?P<type>[^\W\d]\w*+(?:\[[\w, ]*+\])?+)")
_ASSIGNED = re.compile(r"\$\w++\s*+(?::\s*+[\w.\[\], ]++)?\s*+=\s*+")
_FOR = re.compile(r"for\s++(?P<who>[^\W\d]\w*+)\s*+\.?+", re.IGNORECASE)
_NOT_CHECKED = frozenset({"any", "void", "object", "literal", "date", "datetime", "time"})
_TYPES = "str, int, float, bool, list and dict"


def used(program: ProgramText, agent: Agent) -> Iterator[Finding]:
    """Findings in the lines of an agent's listings."""
    mentioned = frozenset(_mentioned(agent))
    for playbook in agent.playbooks.values():
        if playbook.steps:
            yield from _types(playbook)
            yield from _lines(program, agent, playbook, mentioned)


def _lines(program: ProgramText, agent: Agent, playbook: Playbook, mentioned: Set[str]) -> Iterator[Finding]:
    notes = {note.id for note in playbook.notes}
    for line in playbook.steps:
        if call_named(line):
            yield from _call(program, agent, line)
        if line.code == "CHK":
            yield from _note(line, notes)
        if line.code == "YLD":
            yield from _waited(program, line)
        if line.code == "RET":
            yield from _returned(playbook, line, mentioned)


def _finding(code: str, message: str, line: int, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line, fix=fix)


# --- notes, types, agents -----------------------------------------------------------------------------------


def _note(line: ListingLine, notes: set[str]) -> Iterator[Finding]:
    word = (line.text.split() or [""])[0].rstrip(",.;:")
    if word[:1] == "N" and word[1:].isdigit() and word not in notes:
        known = ", ".join(sorted(notes)) or "none"
        yield _finding("UNKNOWN_NOTE", f"There is no note {word}.", line.line, f"Known notes: {known}.")


def _types(playbook: Playbook) -> Iterator[Finding]:
    written = [(f"${param.name}", param.type, playbook.line) for param in playbook.params]
    written.append((f"the result of {playbook.name}", playbook.returns, playbook.line))
    for line in playbook.steps:
        written += [(f"${one['name']}", one["type"], line.line) for one in _TYPED.finditer(line.text)]
    for what, type, number in written:
        if not _known_type(type):
            fix = f"Use {_TYPES}; other types are not checked."
            yield _finding("UNKNOWN_TYPE", f"The type {type} of {what} is unknown.", number, fix)


def _known_type(type: str) -> bool:
    parts = re.split(r"\|(?![^\[]*\])", type)
    return all(
        not part or type_name(part) or part.split("[", 1)[0].lower() in _NOT_CHECKED
        for part in (one.strip() for one in parts)
    ) or bool(type_name(type))


def _waited(program: ProgramText, line: ListingLine) -> Iterator[Finding]:
    found, named = yield_of(line), _FOR.fullmatch(line.text.strip())
    if found is not None and found.target is None and named is not None and named["who"] not in program.agents:
        fix = "Write 'for user', 'for call', 'for return', 'for exit', or the name of an agent."
        yield _finding("UNKNOWN_AGENT", f"There is no agent named '{named['who']}'.", line.line, fix)


# --- calls --------------------------------------------------------------------------------------------------


def _call(program: ProgramText, agent: Agent, line: ListingLine) -> Iterator[Finding]:
    called = call_named(line)
    owner, _, name = called.rpartition(".")
    if line.text.count("(") > line.text.count(")"):
        yield _finding("OPEN_CALL", f"The call to {called} is not closed.", line.line, "Add the missing ).")
        return
    if name in BUILT_IN and called not in agent.playbooks:
        return
    if owner and owner != "self" and owner not in program.agents:
        fix = meant(owner, program.agents)
        yield _finding("UNKNOWN_AGENT", f"There is no agent named '{owner}'.", line.line, fix)
        return
    of = _owners(program, agent, called)
    if any(one.remote is not None for one in of):
        return  # its playbooks are known once it is connected
    able = [one for one in of if name in one.playbooks]
    if not able:
        known = sorted({playbook for one in of for playbook in one.playbooks})
        yield _finding("UNKNOWN_PLAYBOOK", f"There is no playbook '{called}'.", line.line, meant(name, known))
    elif not any(one is agent or one.playbooks[name].public for one in able):
        fix = "Write public: true below its heading."
        yield _finding("PRIVATE_PLAYBOOK", f"'{called}' belongs to another agent and is not public.", line.line, fix)
    else:
        yield from _arguments(able[0].playbooks[name], line)


def _owners(program: ProgramText, agent: Agent, called: str) -> list[Agent]:
    """The agents whose playbook a line may call."""
    owner, _, name = called.rpartition(".")
    if owner == "self" or (not owner and name in agent.playbooks):
        return [agent]
    return [program.agents[owner]] if owner else list(program.agents.values())


def _arguments(playbook: Playbook, line: ListingLine) -> Iterator[Finding]:
    text = line.text.strip()
    assigned = _ASSIGNED.match(text)
    try:
        call = call_of(text, assigned.end() if assigned else 0)
    except ExpressionError:
        return  # a description of a call
    wrong = unbound(Signature(playbook.params, playbook.open), Call(call.name, call.args, call.named))
    if wrong:
        takes = ", ".join(param.name for param in playbook.params) or "nothing"
        yield _finding("UNFIT_ARGUMENTS", f"{playbook.name} {wrong}.", line.line, f"It takes: {takes}.")


# --- returns ------------------------------------------------------------------------------------------------


def _returned(playbook: Playbook, line: ListingLine, mentioned: Set[str]) -> Iterator[Finding]:
    try:
        value = expression_of(line.text.strip())
    except ExpressionError:
        return  # words for a model, or empty
    names = [name for name in dict.fromkeys(refs_of(value)) if name not in (RESULT, SUMMARY)]
    for name in names:
        if name not in mentioned:
            fix = "Set it in an earlier line, as in EXE $name:int = 3."
            yield _finding("UNKNOWN_VARIABLE", f"${name} is never set.", line.line, fix)
    if any(refs_of(value)) or has_words(value):
        return
    try:
        plain = evaluate(value, {})
    except NotComputable:
        return
    try:
        coerced(plain, playbook.returns)
    except DoesNotCoerce:
        fix = f"Return a value of that type, or change the type after the -> in line {playbook.line}."
        words = f"{playbook.name} returns {playbook.returns}, got {plain!r:.40}."
        yield _finding("UNFIT_RETURN", words, line.line, fix)


def _mentioned(agent: Agent) -> Iterator[str]:
    """The variables mentioned outside returns. The playbooks of an agent share them."""
    texts = [agent.description]
    for playbook in agent.playbooks.values():
        yield from (param.name for param in playbook.params)
        texts += [playbook.description, *(line.text for line in playbook.steps if line.code != "RET")]
        texts += [*(one.text for one in playbook.triggers), *(one.text for one in playbook.notes)]
    for text in texts:
        yield from (found["name"] for found in _VARIABLE.finditer(text))

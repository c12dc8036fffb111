"""Finds features of the format that this runtime lacks. Each is an error with its line, so such a program does not
start.

It also warns about surprises: variables that a playbook shares with itself when it calls itself, and placeholders that
are never filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cuebook.dialects.findings import Codes, Finding
from cuebook.dialects.program.listing import Listing, yield_of
from cuebook.dialects.program.machine.decide import SPEAKING, spelled
from cuebook.dialects.program.model import Agent, ListingLine, Playbook, ProgramText
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.shared_variables import named_in, touched_by
from cuebook.dialects.program.values.evaluate import FUNCTIONS
from cuebook.dialects.program.values.expressions import CallOf, Literal, Words, refs_of
from cuebook.dialects.program.values.placeholders import Placeholder, placeholders
from cuebook.dialects.program.verify.scope import BUILT_IN
from cuebook.kernel.effects import AGENTS

CODES: Codes = {
    "NOT_COMPILED": ("error", "The steps of a playbook have no numbers, so it cannot be run."),
    "CODING_AGENT": ("error", "The lines of a program cannot be executed by a coding agent."),
    "MEETING": ("error", "Meetings are not supported."),
    "CREATE_AGENT": ("error", "Creating agents is not supported."),
    "HUMAN_AGENT": ("error", "Talking to a person other than the user is not supported."),
    "AGENT_DIALOGUE": ("error", "Agents that wait for each other's messages are not supported."),
    "PYTHON_STATE": ("error", "Reading or setting an agent's variables from Python is not supported."),
    "SHARED_VARIABLES": ("warning", "A playbook that calls itself shares its variables with that call."),
    "UNKNOWN_PLACEHOLDER": ("warning", "A placeholder is never filled in."),
}

_CREATES = re.compile(r"\bCreateAgent\s*\(")
_MEETS = re.compile(r"\bInviteToMeeting\s*\(")
_FOR = re.compile(r"for\s++(?:agent\s++)?+(?P<who>[^\W\d]\w*+)", re.IGNORECASE)
_BRACKETS = re.compile(r"(?<!\{)\{(?P<source>\$[^{}\n]{1,200})\}")
_STATE_OF = frozenset({"agent", "self"})


def unsupported(program: ProgramText, agent: Agent) -> Iterator[Finding]:
    """The errors of one agent."""
    humans = [one for one in program.agents.values() if one.kind == "human"]
    if agent.kind == "human" and agent is not humans[0]:
        words = f"'{agent.name}' is a second person, but a program can talk to only one."
        yield _found("HUMAN_AGENT", words, agent.line, "Remove it: the user is the person who runs the program.")
    model = agent.metadata.get("model")
    if isinstance(model, str) and model.startswith(AGENTS):
        words = f"'{agent.name}' uses {model}, a coding agent: it acts before its reply could be verified."
        yield _found("CODING_AGENT", words, agent.line, "Use a model, or a graph or a Markdown playbook for the agent.")
    for playbook in agent.playbooks.values():
        if playbook.uncompiled:
            words = f"The steps of '{playbook.name}' are not compiled."
            fix = "Number them as in '- 01:QUE Say(user, ...)' to run it."
            yield _found("NOT_COMPILED", words, playbook.line, fix)
        if playbook.metadata.get("meeting") is True:
            fix = "Have the agents call each other's public playbooks instead."
            yield _found("MEETING", f"'{playbook.name}' is a meeting.", playbook.line, fix)
        for line in playbook.steps:
            yield from _line(program, agent, line)
    yield from _python(agent)


def surprising(program: ProgramText, agent: Agent) -> Iterator[Finding]:
    """The warnings about one agent."""
    for playbook in agent.playbooks.values():
        shared = _shared(agent, playbook)
        if shared:
            names = ", ".join(f"${name}" for name in shared)
            words = f"'{playbook.name}' calls itself, and all calls share {names}."
            fix = "Only parameters are local to a call: use parameters instead, and return the result."
            yield _found("SHARED_VARIABLES", words, playbook.line, fix)
        for source in _unfilled(program, agent, playbook.description):
            fix = "Use a variable, a calculation with variables, or a call to a playbook."
            yield _found("UNKNOWN_PLACEHOLDER", f"'{{{source}}}' is never filled in.", playbook.line, fix)


def _found(code: str, message: str, line: int, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line or None, fix=fix)


# --- lines --------------------------------------------------------------------------------------------------


def _line(program: ProgramText, agent: Agent, line: ListingLine) -> Iterator[Finding]:
    if _CREATES.search(line.text):
        fix = "Declare the agent in the program: declared agents can be called from the start."
        yield _found("CREATE_AGENT", f"{line.number} creates an agent.", line.line, fix)
    to, waited = _spoken_to(line), yield_of(line)
    meets = _MEETS.search(line.text) or to.lower().split(" ")[0] == "meeting"
    if meets or (waited is not None and waited.target == "meeting"):
        fix = "Have the agents call each other's public playbooks instead."
        yield _found("MEETING", f"{line.number} is about a meeting.", line.line, fix)
    awaited = waited_for(program, line)
    for name in dict.fromkeys((to, awaited)):
        if name in program.agents and program.agents[name].kind == "human":
            words = f"{line.number} is for '{name}', but a program can talk only to the user."
            yield _found("HUMAN_AGENT", words, line.line, "Write user instead of the name.")
    if awaited and _waits(program, agent) and any(_waits(program, one) for one in _others(program, agent, awaited)):
        words = f"{line.number} waits for an agent that itself waits for an agent."
        fix = "Call a public playbook of the other agent, and return what it needs."
        yield _found("AGENT_DIALOGUE", words, line.line, fix)


def _spoken_to(line: ListingLine) -> str:
    found = spelled(line)
    if found is None or found.call is None or found.name.rpartition(".")[2] not in SPEAKING:
        return ""
    to = Call("Say", found.call.args, found.call.named).said_to
    text = to.text if isinstance(to, Words) else to.value if isinstance(to, Literal) else ""
    return text.strip() if isinstance(text, str) else ""


def waited_for(program: ProgramText, line: ListingLine) -> str:
    """The agent whose message a line waits for; `agent` if it names no agent; empty if it does not wait for a
    message."""
    found = yield_of(line)
    if found is None or found.target not in (None, "agent"):
        return ""
    named = _FOR.search(line.text)
    if named is not None and named["who"] in program.agents:
        return named["who"]
    return "agent" if found.target == "agent" else ""


def _others(program: ProgramText, agent: Agent, awaited: str) -> list[Agent]:
    named = program.agents.get(awaited)
    return [one for one in ([named] if named is not None else program.agents.values()) if one is not agent]


def _waits(program: ProgramText, agent: Agent) -> bool:
    return any(waited_for(program, line) for one in agent.playbooks.values() for line in one.steps)


# --- Python -------------------------------------------------------------------------------------------------


def _python(agent: Agent) -> Iterator[Finding]:
    try:
        tree = ast.parse(agent.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(of), "state") if of in _STATE_OF and of not in bound:
                fix = "Pass the values to the function as arguments, and return the results."
                words = f"Python cannot access an agent's variables: '{of}.state' does not exist."
                yield _found("PYTHON_STATE", words, node.lineno, fix)
            case ast.Call(ast.Name("CreateAgent")):
                fix = "Declare the agent in the program: declared agents can be called from the start."
                yield _found("CREATE_AGENT", "Python code creates an agent.", node.lineno, fix)
            case ast.Call(ast.Name("InviteToMeeting")):
                fix = "Have the agents call each other's public playbooks instead."
                yield _found("MEETING", "Python code invites agents to a meeting.", node.lineno, fix)


# --- surprises ----------------------------------------------------------------------------------------------


def _shared(agent: Agent, playbook: Playbook) -> list[str]:
    """The variables that a playbook sets and that a direct or indirect call to itself also sets."""
    seen: set[str] = set()
    waiting = [playbook.name]
    while waiting:
        for name in named_in(agent, agent.playbooks[waiting.pop()]):
            name = name.removeprefix(f"{agent.name}.")
            if name in agent.playbooks and name not in seen:
                seen.add(name)
                waiting.append(name)
    if playbook.kind != "listing" or playbook.name not in seen:
        return []
    return sorted(name for _, name in touched_by(agent, playbook, Listing.of(playbook)).sets)


def _unfilled(program: ProgramText, agent: Agent, description: str) -> Iterator[str]:
    found = placeholders(description)
    yield from (one.source for one in found if not _is_filled(program, agent, one))
    read = {one.start for one in found}
    yield from (one["source"] for one in _BRACKETS.finditer(description) if one.start() not in read)


def _is_filled(program: ProgramText, agent: Agent, one: Placeholder) -> bool:
    """Whether the program provides a value to fill in."""
    if isinstance(one.value, CallOf):
        name = one.value.name
        known = {*agent.playbooks, *BUILT_IN, *FUNCTIONS, *(f"{agent.name}.{own}" for own in agent.playbooks)}
        return name in known or any(
            name in (other, f"{owner.name}.{other}") for owner in program.agents.values() for other in owner.playbooks
        )
    return "$" in one.source or not any(refs_of(one.value)) or one.source.isidentifier()

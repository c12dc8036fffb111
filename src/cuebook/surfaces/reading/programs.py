"""Programs at the commands that read playbooks: telling them apart, and what `summary` and `parse` say of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.program.model import Agent, ProgramText
from cuebook.dialects.program.shape import Shaped, shape_of
from cuebook.dialects.registry import InvalidPlaybook, Problem
from cuebook.performers.beside import reader
from cuebook.surfaces.reading.workflows import input_words
from cuebook.surfaces.wording import counted, short


def program_of(text: str, name: str) -> ProgramText | None:
    """The program with what it imports; None for a text that is none."""
    if not PROGRAM.recognises(text, name):
        return None
    return PROGRAM.parse(registry.whole(text, name, reader(name)), name)


# --- summary --------------------------------------------------------------------------------------------


def summary_of(program: ProgramText) -> dict[str, Any]:
    shaped = shape_of(program)
    return {
        "dialect": PROGRAM.name,
        "title": program.title,
        "compiled": program.compiled,
        "inputs": [{"name": one.name, "type": one.type, "required": one.required} for one in program.inputs],
        "begins": [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning],
        "agents": [_agent(agent) for agent in program.agents.values()],
        "playbooks": [_playbook(one) for one in shaped],
        "models": list(dict.fromkeys(_models(program))),
        "python": [one.id for one in shaped if one.playbook.kind == "python"],
    }


def _agent(agent: Agent) -> dict[str, Any]:
    remote = agent.remote
    return {
        "name": agent.name,
        "kind": agent.kind,
        "description": agent.description.strip(),
        "playbooks": list(agent.playbooks),
        "remote": None if remote is None else {"type": remote.type, "at": remote.url or " ".join(remote.command)},
    }


def _playbook(one: Shaped) -> dict[str, Any]:
    playbook = one.playbook
    return {
        "id": one.id,
        "kind": playbook.kind,
        "signature": one.signature,
        "description": playbook.description.strip(),
        "public": playbook.public,
        "triggers": [{"id": trigger.id, "kind": trigger.kind, "text": trigger.text} for trigger in playbook.triggers],
        "lines": len(one.lines),
        "lines_for_a_model": sum(line.asks for line in one.lines),
        "waits_for_user": one.waits,
        "calls": list(one.calls),
    }


def _models(program: ProgramText) -> Iterator[str]:
    for agent in program.agents.values():
        name = agent.metadata.get("model")
        if isinstance(name, str):
            yield name


def summary_lines(program: ProgramText) -> Iterator[str]:
    yield program.title
    if not program.compiled:
        yield "not compiled: its steps are in words, and it cannot be run as it is"
    for declared in program.inputs:
        yield f"input     {input_words(declared)}"
    for agent, playbook in program.beginning:
        yield f"begins    {agent.name}.{playbook.name}"
    shaped = shape_of(program)
    for agent in program.agents.values():
        about = f": {short(agent.description)}" if agent.description.strip() else ""
        yield f"agent     {agent.name}{_where(agent)}{about}"
        for one in shaped:
            if one.agent.name == agent.name:
                yield f"  {one.signature}: {'; '.join(_doings(one))}"
                yield from (
                    f"    {trigger.id}:{trigger.kind} {short(trigger.text)}" for trigger in one.playbook.triggers
                )
    if models := list(dict.fromkeys(_models(program))):
        yield f"models    {', '.join(models)}"


def _where(agent: Agent) -> str:
    remote = agent.remote
    return "" if remote is None else f" (elsewhere: {remote.url or ' '.join(remote.command)})"


def _doings(one: Shaped) -> Iterator[str]:
    """What can be told of a playbook, in a few words each."""
    playbook = one.playbook
    if playbook.kind == "listing":
        yield counted(len(one.lines), "line") if one.lines else counted(len(playbook.uncompiled), "step") + " in words"
        asks = sum(line.asks for line in one.lines)
        if one.lines:
            yield f"{asks} of them for a model" if asks else "none of them for a model"
    else:
        yield {"react": "a model works it out", "raw": "asks a model once", "python": "Python"}[playbook.kind]
    if one.waits:
        yield "waits for the user"
    if one.calls:
        yield f"calls {', '.join(name.removeprefix(f'{one.agent.name}.') for name in one.calls)}"
    if playbook.public:
        yield "public"


# --- parse ----------------------------------------------------------------------------------------------


def parsed_object(text: str, name: str) -> dict[str, Any]:
    """The whole of it as JSON, or what keeps it from being one."""
    try:
        program = program_of(text, name)
    except InvalidPlaybook as error:
        return {"valid": False, "definition": None, "warnings": [], "errors": _problems(error.problems)}
    assert program is not None
    definition = msgspec.to_builtins(program)
    for name in ("warnings", "called"):  # what is told apart, and what belongs to a run
        definition.pop(name, None)
    return {"valid": True, "definition": definition, "warnings": _problems(program.warnings), "errors": []}


def _problems(several: tuple[Problem, ...]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) for one in several]


def outline(program: ProgramText) -> Iterator[str]:
    """Agents, playbooks, triggers, lines and notes, as they were read."""
    yield program.title
    for agent in program.agents.values():
        yield f"agent {agent.name}{_where(agent)} (line {agent.line})"
        for playbook in agent.playbooks.values():
            yield f"  {playbook.kind} {playbook.name} (line {playbook.line})"
            yield from (f"    {trigger.id}:{trigger.kind} {trigger.text}" for trigger in playbook.triggers)
            yield from (f"    {'  ' * one.number.count('.')}{one.number}:{one.title}" for one in playbook.steps)
            yield from (f"    {step}" for step in playbook.uncompiled)
            yield from (f"    {note.id} {note.text}" for note in playbook.notes)
    for problem in program.warnings:
        yield f"warning: {f'line {problem.line}: ' if problem.line else ''}{problem.message}"

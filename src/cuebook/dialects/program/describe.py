"""Describes a program before it runs: its summary, and the outline that `cuebook parse` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.dialects.presentation.summary import Alternative, Item, Need, Part, Row, Summary, listed
from cuebook.dialects.program.dialect import CALL
from cuebook.dialects.program.model import Agent, Playbook, ProgramText
from cuebook.dialects.program.static_view import KINDS, StaticPlaybook, static_playbooks
from cuebook.formats.words import counted, short

# --- summary --------------------------------------------------------------------------------------------


def summary(program: ProgramText) -> Summary:
    playbooks = static_playbooks(program)
    models = list(dict.fromkeys(_models(program)))
    begins = [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning]
    words = "not compiled: its steps are in plain words, so it cannot be run"
    return Summary(
        title=program.title,
        inputs=program.inputs,
        rows=(
            *(() if program.compiled else (Row("", words),)),
            *(Row("begins", name) for name in begins),
            *(_row(agent, playbooks) for agent in program.agents.values()),
            *listed(models=models),
        ),
        data={
            "compiled": program.compiled,
            "begins": begins,
            "agents": [_agent(agent) for agent in program.agents.values()],
            "playbooks": [_playbook(one) for one in playbooks],
            "models": models,
            "python": [one.id for one in playbooks if one.playbook.kind == "python"],
        },
        needs=tuple(_needs(program, playbooks)),
        parts_title="Agents and playbooks",
        parts=tuple(_part(agent, playbooks) for agent in program.agents.values()),
        alternatives=(
            Alternative(
                CALL.name,
                "Call one playbook instead",
                "Only this playbook runs. Write its arguments in the call, as in `Rate(x=3)`.",
                "Playbook(argument=1)",
                "Run this call",
                tuple(_call(one.playbook) for one in playbooks),
            ),
        ),
    )


def _row(agent: Agent, playbooks: Sequence[StaticPlaybook]) -> Row:
    about = f": {short(agent.description)}" if agent.description.strip() else ""
    details: list[str] = []
    for one in playbooks:
        if one.agent.name == agent.name:
            details.append(f"  {one.signature}: {'; '.join(_doings(one))}")
            details += (f"    {trigger.id}:{trigger.kind} {short(trigger.text)}" for trigger in one.playbook.triggers)
    return Row("agent", f"{agent.name}{_where(agent)}{about}", tuple(details))


def _part(agent: Agent, playbooks: Sequence[StaticPlaybook]) -> Part:
    tag = "remote" if agent.remote is not None else agent.kind if agent.kind != "ai" else ""
    items = tuple(_item(one) for one in playbooks if one.agent is agent)
    return Part(agent.name, tag, agent.description, items)


def _item(one: StaticPlaybook) -> Item:
    playbook = one.playbook
    tags = [
        *(["public"] if playbook.public else []),
        KINDS.get(playbook.kind) or counted(len(one.lines), "line"),
        *(["asks a model"] if one.asks and one.lines else []),
        *(["asks you"] if one.waits else []),
    ]
    notes = [*([playbook.heading] if playbook.heading else []), *(f"{one.id} {one.text}" for one in playbook.triggers)]
    return Item(one.signature, tuple(tags), tuple(notes), begins=playbook.begins)


def _call(playbook: Playbook) -> str:
    return f"{playbook.name}({', '.join(f'{param.name}=' for param in playbook.params)})"


def _needs(program: ProgramText, playbooks: Sequence[StaticPlaybook]) -> Iterator[Need]:
    yield Need("model", "any")
    for agent in program.agents.values():
        if agent.remote is not None:
            yield from (Need("playbook", name) for name in agent.remote.playbooks)
            if not agent.remote.playbooks:
                yield Need("host", agent.remote.url or " ".join(agent.remote.command))
            if agent.remote.auth is not None:
                yield Need("secret", agent.remote.auth.handle)
    if any(agent.python for agent in program.agents.values()):
        yield Need("python", "its own functions")
    if any(one.waits for one in playbooks):
        yield Need("you", "talks with you")


def _agent(agent: Agent) -> dict[str, Any]:
    remote = agent.remote
    return {
        "name": agent.name,
        "kind": agent.kind,
        "description": agent.description.strip(),
        "playbooks": list(agent.playbooks),
        "remote": None if remote is None else {"type": remote.type, "at": remote.at},
    }


def _playbook(one: StaticPlaybook) -> dict[str, Any]:
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


def _where(agent: Agent) -> str:
    remote = agent.remote
    return "" if remote is None else f" (remote: {remote.at})"


def _doings(one: StaticPlaybook) -> Iterator[str]:
    """What a playbook does, as short phrases."""
    playbook = one.playbook
    if playbook.kind == "listing":
        yield (
            counted(len(one.lines), "line")
            if one.lines
            else counted(len(playbook.uncompiled), "step") + " in plain words"
        )
        asks = sum(line.asks for line in one.lines)
        if one.lines:
            yield f"{asks} of them for a model" if asks else "none of them for a model"
    else:
        yield KINDS[playbook.kind]
    if one.waits:
        yield "waits for the user"
    if one.calls:
        yield f"calls {', '.join(name.removeprefix(f'{one.agent.name}.') for name in one.calls)}"
    if playbook.public:
        yield "public"


# --- parse ----------------------------------------------------------------------------------------------


def syntax_tree(program: ProgramText) -> dict[str, Any]:
    """Everything in the text, without warnings and run settings."""
    tree: dict[str, Any] = msgspec.to_builtins(program)
    return {name: value for name, value in tree.items() if name not in ("warnings", "called")}


def outline(program: ProgramText) -> Iterator[str]:
    """Agents, playbooks, triggers, lines and notes, as parsed."""
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

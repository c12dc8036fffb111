"""Previews a program run: which playbooks run at the start, what each does and calls, and which limits apply. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from cuebook.dialects.presentation.preview import Act, Limits, Preview, Step, declared_inputs, known_inputs
from cuebook.dialects.program.inputs import accept
from cuebook.dialects.program.machine.machine import MOST_LINES, MOST_TURNS
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.static_view import StaticLine, StaticPlaybook, static_playbooks
from cuebook.dialects.program.verify.corrections import MOST_RETRIES
from cuebook.kernel.effects import AskModel

_KINDS = {"react": "a model works it out", "raw": "asks the model once", "python": "runs Python"}


def preview(program: ProgramText, given: Mapping[str, Any]) -> Preview:
    inputs, wrong = known_inputs(accept, program, given)
    notes = [*wrong]
    playbooks = _in_reach(program)
    begins = [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning]
    if not begins:
        notes.append("No playbook runs when the program starts: choose one with --call.")
    notes += _remote_agents(program)
    if any(one.playbook.kind == "python" for one in playbooks):
        notes.append("Its Python runs in a sandbox and can reach other playbooks only by calling them.")
    return Preview(
        title=program.title,
        inputs=inputs,
        declared=declared_inputs(program),
        heading=f"its playbooks, starting with {', '.join(begins)}" if begins else "its playbooks",
        steps=tuple(map(_step, playbooks)),
        steps_key="playbooks",
        acts=list(_acts(playbooks)),
        unforeseeable="what each line does is known only when it is executed",
        notes=tuple(notes),
        hosts=_hosts(program),
        limits=_limits(playbooks),
        details={"begins": begins},
    )


def _in_reach(program: ProgramText) -> list[StaticPlaybook]:
    """The playbooks that run at the start or that triggers may start, and everything they call; all playbooks if none does."""
    every = {one.id: one for one in static_playbooks(program)}
    waiting = [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning]
    waiting += [id for id, one in every.items() if any(trigger.kind != "BGN" for trigger in one.playbook.triggers)]
    found: set[str] = set()
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += every[id].calls
    return [one for id, one in every.items() if id in found or not program.beginning]


def _remote_agents(program: ProgramText) -> Iterator[str]:
    for agent in program.agents.values():
        if agent.remote is not None:
            if agent.remote.playbooks:
                yield f"The agent {agent.name} runs playbooks on this machine: {', '.join(agent.remote.playbooks)}."
                continue
            where = agent.remote.url or " ".join(agent.remote.command)
            yield f"The agent {agent.name} is remote ({where}): its playbooks are listed when a run starts."


def _hosts(program: ProgramText) -> dict[str, str]:
    """The hosts of remote agents."""
    places = {agent.name: agent.remote.url for agent in program.agents.values() if agent.remote is not None}
    return {host: f"agent {name}" for name, url in places.items() if (host := urlsplit(url).hostname)}


def _acts(playbooks: list[StaticPlaybook]) -> Iterator[Act]:
    """The lines that call a model. The prompt is known only at run time."""
    for one in playbooks:
        model = one.agent.metadata.get("model")
        ask = AskModel("", model=model if isinstance(model, str) and "/" in model else None)
        for line in one.lines:
            if line.asks:
                yield Act(label=f"{one.playbook.name}:{line.line.number}", title=line.line.title, effect=ask)
        if not one.lines and one.asks:
            yield Act(label=one.playbook.name, title=one.playbook.heading, effect=ask)


def _step(one: StaticPlaybook) -> Step:
    does = [_KINDS[one.playbook.kind]] if one.playbook.kind in _KINDS else []
    does += ["waits for the user"] if one.waits and not one.lines else []
    return Step(
        label=f"{one.agent.name}.{one.signature}",
        does=tuple(does),
        also=tuple(f"begins {_lower(trigger.text)}" for trigger in one.playbook.triggers if trigger.kind != "BGN"),
        steps=_nested(one.lines),
        details={
            "playbook": one.id,
            "kind": one.playbook.kind,
            "calls": list(one.calls),
            "lines": [
                {
                    "line": line.line.number,
                    "text": line.line.title,
                    "asks_model": line.asks,
                    "waits_for_user": line.waits,
                    "calls": list(line.calls),
                }
                for line in one.lines
            ],
        },
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _nested(lines: Sequence[StaticLine]) -> tuple[Step, ...]:
    """The lines, each with the lines nested below it."""
    made: list[Step] = []
    start = 0
    while start < len(lines):
        line, end = lines[start], start + 1
        while end < len(lines) and lines[end].line.number.startswith(f"{line.line.number}."):
            end += 1
        does = ["asks the model"] if line.asks else []
        does += ["waits for the user"] if line.waits else []
        within = _nested(lines[start + 1 : end])
        made.append(Step(label=line.line.number, title=line.line.title, does=tuple(does), steps=within))
        start = end
    return tuple(made)


def _limits(playbooks: list[StaticPlaybook]) -> Limits:
    asks = any(one.asks for one in playbooks)
    asked = sum(line.asks for one in playbooks for line in one.lines)
    first = "no line needs a model, unless a value is missing or a condition cannot be computed"
    if asks:
        lines = f"{asked:,} line{'' if asked == 1 else 's'}"
        first = f"{lines} for a model; how often it is called depends on the conversation"
    return Limits(
        None if asks else 0,
        (
            first,
            f"at most {MOST_TURNS:,} model turns and {MOST_LINES:,} lines without outside input",
            f"a refused reply is requested again at most {MOST_RETRIES} times",
        ),
        {"turns_without_news": MOST_TURNS, "lines_without_news": MOST_LINES, "retries": MOST_RETRIES},
    )

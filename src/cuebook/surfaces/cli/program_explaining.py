"""`cuebook explain` of a program: what begins, what each playbook does and calls, what it touches, and what bounds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from cuebook.dialects.program.check import unfit
from cuebook.dialects.program.machine import MOST_LINES, MOST_TURNS
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.retry import MOST_RETRIES
from cuebook.dialects.program.shape import Shaped, shape_of
from cuebook.dialects.registry import InvalidPlaybook
from cuebook.kernel.effects import AskModel
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Budget
from cuebook.surfaces import wording
from cuebook.surfaces.cli import explaining, live, session
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.rehearsing import Shown
from cuebook.surfaces.cli.touching import Reached, reached
from cuebook.surfaces.wiring import Wiring


class Explained(msgspec.Struct, frozen=True):
    program: ProgramText
    inputs: Mapping[str, Any]
    model: str
    problem: str
    """Why the model cannot be asked as things stand."""
    shaped: list[Shaped]
    """What a run may come to."""
    reached: Reached
    budget: Budget
    notes: list[str]

    @property
    def asks(self) -> bool:
        return any(one.asks for one in self.shaped)


def explain(given: Given, playbook: Playbook) -> int:
    problems = unfit(playbook.document)
    if problems:
        raise InvalidPlaybook(playbook.path, problems, codes=True)
    explained = asyncio.run(_explained(given, playbook, session.wiring_of(given)))
    return explaining.told(given, _object, _lines, explained)


async def _explained(given: Given, playbook: Playbook, wiring: Wiring) -> Explained:
    program: ProgramText = playbook.document
    notes: list[str] = []
    wanted = gathered(given, program, playbook.dialect)
    try:
        inputs = playbook.dialect.accept(program, wanted)
    except BadInput as error:
        notes.append(error.message)
        inputs = dict(wanted)
    shaped = _in_reach(program)
    if not program.beginning:
        notes.append("Nothing begins with the program: name a playbook by --call.")
    notes += _of_agents(program)
    if any(one.playbook.kind == "python" for one in shaped):
        notes.append("Its Python runs in a sandbox, and reaches other playbooks only by calling them.")
    _, problem = explaining.terms_of(wiring)
    found = await reached(_shown(shaped), wiring, await explaining.policy_of_today(wiring))
    found = msgspec.structs.replace(found, hosts={**found.hosts, **_hosts(program)})
    return Explained(program, inputs, wiring.model, problem, shaped, found, wiring.config.budget, notes)


def _in_reach(program: ProgramText) -> list[Shaped]:
    """What begins, what triggers may set off, and all that those call; everything where nothing begins."""
    every = {one.id: one for one in shape_of(program)}
    waiting = [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning]
    waiting += [id for id, one in every.items() if any(trigger.kind != "BGN" for trigger in one.playbook.triggers)]
    found: set[str] = set()
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += every[id].calls
    return [one for id, one in every.items() if id in found or not program.beginning]


def _of_agents(program: ProgramText) -> Iterator[str]:
    for agent in program.agents.values():
        if agent.remote is not None:
            where = agent.remote.url or " ".join(agent.remote.command)
            yield f"The agent {agent.name} lives elsewhere ({where}): what it can do is asked when a run begins."


def _shown(shaped: list[Shaped]) -> Iterator[Shown]:
    """Where a model is asked, as effects."""
    for one in shaped:
        model = one.agent.metadata.get("model")
        named = model if isinstance(model, str) and "/" in model else None
        for line in one.lines:
            if line.asks:
                yield Shown(
                    0, f"{one.playbook.name}:{line.line.number}", line.line.title, {}, AskModel("", model=named)
                )
        if not one.lines and one.asks:
            yield Shown(0, one.playbook.name, one.playbook.heading, {}, AskModel("", model=named))


def _hosts(program: ProgramText) -> dict[str, str]:
    """Where agents live that are elsewhere."""
    places = {agent.name: agent.remote.url for agent in program.agents.values() if agent.remote is not None}
    return {host: f"agent {name}" for name, url in places.items() if (host := urlsplit(url).hostname)}


# --- as an object ---------------------------------------------------------------------------------------


def _object(explained: Explained) -> dict[str, Any]:
    program = explained.program
    return {
        "title": program.title,
        "inputs": dict(explained.inputs),
        "model": {"name": explained.model, "problem": explained.problem or None},
        "begins": [f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning],
        "playbooks": [_playbook_object(one) for one in explained.shaped],
        "touches": explaining.touched_objects(explained.reached),
        "hosts": [{"host": host, "for": what} for host, what in explained.reached.hosts.items()],
        "notes": [*explained.reached.problems, *explained.notes],
        "bound": {
            "calls": 0 if not explained.asks else None,
            "turns_without_news": MOST_TURNS,
            "lines_without_news": MOST_LINES,
            "retries": MOST_RETRIES,
            "cost": 0.0 if not explained.asks else None,
        },
    }


def _playbook_object(one: Shaped) -> dict[str, Any]:
    return {
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
    }


# --- in words -------------------------------------------------------------------------------------------


def _lines(explained: Explained) -> Iterator[str]:
    program = explained.program
    yield program.title
    for name, value in explained.inputs.items():
        yield f"  {name} = {wording.short(value if isinstance(value, str) else live.json_text(value))}"
    if explained.asks:
        yield f"  model {explained.model}" + (f" (cannot be asked: {explained.problem})" if explained.problem else "")
    begins = ", ".join(f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning)
    yield f"\nwhat it goes through{f', from {begins} on' if begins else ''} (* a model is asked, > it waits for the user):"
    for one in explained.shaped:
        yield from _playbook_lines(one)
    yield "\nwhat it touches, and what the policy says:"
    yield from explaining.touched_lines(explained.reached, explained.notes)
    yield "\nwhat bounds it:"
    yield from _bound_lines(explained)


def _playbook_lines(one: Shaped) -> Iterator[str]:
    kinds = {"react": ": a model works it out", "raw": ": asks a model once", "python": ": Python"}
    waits = ", waits for the user" if one.waits and not one.lines else ""
    yield f"  {one.agent.name}.{one.signature}{kinds.get(one.playbook.kind, '')}{waits}"
    for trigger in one.playbook.triggers:
        if trigger.kind != "BGN":
            yield f"      when {wording.short(trigger.text)}"
    for line in one.lines:
        mark = f"{'*' if line.asks else ' '}{'>' if line.waits else ' '}"
        inside = "  " * line.line.number.count(".")
        yield f"   {mark} {inside}{line.line.number}:{wording.short(line.line.title)}"


def _bound_lines(explained: Explained) -> Iterator[str]:
    if not explained.asks:
        yield "  no line needs a model, unless a value is missing or a condition cannot be computed"
    else:
        asked = sum(line.asks for one in explained.shaped for line in one.lines)
        yield f"  {wording.counted(asked, 'line')} for a model; how often it is asked depends on the conversation"
    yield f"  at most {MOST_TURNS:,} turns of a model and {MOST_LINES:,} lines before something comes in from outside"
    yield f"  a reply that is refused is asked again {MOST_RETRIES} times at most"
    money = explained.budget.money
    if money is not None:
        yield f"  the budget of {wording.money(money)} may pause the run"
    else:
        yield "  --budget-money and --budget-tokens pause a run before it uses more"

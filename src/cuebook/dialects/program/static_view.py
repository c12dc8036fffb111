"""Static analysis of a program: which line calls a playbook, asks a model or waits for the user.
Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import msgspec

from cuebook.dialects.program.catalogue import Callee, Catalogue
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.decide import foreseen
from cuebook.dialects.program.model import Agent, ListingLine, Playbook, ProgramText

KINDS = {"react": "a model works it out", "raw": "asks a model once", "python": "Python"}
"""Descriptions of playbooks without a listing, by kind."""
WAITING = "WaitForMessage"
_NAMED = re.compile(r"(?<![\w.$])[^\W\d][\w.]*+(?=\()")


class StaticLine(msgspec.Struct, frozen=True):
    line: ListingLine
    calls: tuple[str, ...]
    """The playbooks that it names, each as `Agent.Playbook`."""
    asks: bool
    """Whether it calls a model, judging by the text of the line."""
    waits: bool
    """Whether it waits for the user."""
    yields: bool
    """Whether it waits for anything."""


class StaticPlaybook(msgspec.Struct, frozen=True):
    """A playbook with the analysis of its lines."""

    agent: Agent
    playbook: Playbook
    lines: tuple[StaticLine, ...]
    calls: tuple[str, ...]
    """All playbooks that it names, in its lines, its description or its Python."""
    waits: bool = False
    """Whether it waits for the user."""

    @property
    def id(self) -> str:
        return f"{self.agent.name}.{self.playbook.name}"

    @property
    def asks(self) -> bool:
        return self.playbook.kind in ("react", "raw") or any(line.asks for line in self.lines)

    @property
    def signature(self) -> str:
        params = ", ".join(f"${one.name}{f':{one.type}' if one.type else ''}" for one in self.playbook.params)
        return f"{self.playbook.name}({params}){f' -> {self.playbook.returns}' if self.playbook.returns else ''}"


def static_playbooks(program: ProgramText) -> list[StaticPlaybook]:
    """Every playbook, in document order."""
    catalogue = Catalogue(program)
    return [
        _static(catalogue, agent, playbook)
        for agent in program.agents.values()
        for playbook in agent.playbooks.values()
    ]


def may_ask(program: ProgramText) -> frozenset[str]:
    """The labels of steps in which the user may be asked something: by the step, a model, or a called playbook."""
    found: set[str] = set()
    for static in static_playbooks(program):
        name, kind = static.playbook.name, static.playbook.kind
        if kind == "react" or (kind == "python" and any(WAITING in one for one in static.agent.python)):
            found.add(name)
        found |= {f"{name}:{one.line.number}" for one in static.lines if one.asks or one.yields}
    return frozenset(found)


def _static(catalogue: Catalogue, agent: Agent, playbook: Playbook) -> StaticPlaybook:
    callees = catalogue.view(agent.name).callees
    listing = Listing.of(playbook)
    lines = tuple(
        StaticLine(
            line,
            tuple(_called(line.text, callees)),
            not foreseen(listing, index),
            found is not None and found.target == "user",
            found is not None,
        )
        for index, (line, found) in enumerate(zip(listing.lines, listing.yields, strict=True))
    )
    python = list(_called_in_python(playbook)) if playbook.kind == "python" else []
    named = [name for line in lines for name in line.calls]
    named += _resolved(python, callees) if playbook.kind == "python" else _called(playbook.description, callees)
    waits = WAITING in python or any(line.waits for line in lines)
    return StaticPlaybook(agent, playbook, lines, tuple(dict.fromkeys(named)), waits)


def _called(text: str, callees: dict[str, Callee]) -> Iterator[str]:
    return _resolved((found[0] for found in _NAMED.finditer(text)), callees)


def _resolved(names: Iterable[str], callees: dict[str, Callee]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if name in callees:
            yield f"{callees[name].agent.name}.{callees[name].playbook.name}"


def _called_in_python(playbook: Playbook) -> Iterator[str]:
    """The names that a Python playbook's own function calls. The source is parsed, never executed."""
    for node in ast.walk(ast.parse(playbook.source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == playbook.name:
            yield from (ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call))

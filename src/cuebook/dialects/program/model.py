"""A natural-language program as values: agents, playbooks, their triggers, steps and notes. Frozen, with lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.registry import Input, Problem
from cuebook.kernel.effects import SecretUse
from cuebook.kernel.events import PlannedStep

Code = Literal["EXE", "TNK", "QUE", "CND", "CHK", "RET", "JMP", "YLD"]
CODES: tuple[Code, ...] = ("EXE", "TNK", "QUE", "CND", "CHK", "RET", "JMP", "YLD")

TriggerKind = Literal["BGN", "CND", "EVT"]


class Param(msgspec.Struct, frozen=True):
    name: str
    """Without the `$`."""
    type: str = ""
    default: Any = None
    has_default: bool = False

    @property
    def wanted(self) -> str:
        """The type of what is given for it: that of its default, where it declares none."""
        return self.type or ("" if self.default is None else type(self.default).__name__)


class ListingLine(msgspec.Struct, frozen=True):
    """One step of a compiled playbook."""

    number: str
    """As in `02.01`."""
    code: Code
    text: str = ""
    line: int = 0
    """Where it stands in the file."""

    @property
    def title(self) -> str:
        """As in `EXE $x = 1`."""
        return f"{self.code} {self.text}".rstrip()


class Trigger(msgspec.Struct, frozen=True):
    id: str
    """As in `T1`."""
    kind: TriggerKind
    text: str = ""
    line: int = 0


class Note(msgspec.Struct, frozen=True):
    id: str
    """As in `N1`."""
    text: str
    line: int = 0


class Playbook(msgspec.Struct, frozen=True, dict=True):
    """Something that can be called: a listing, a task for a model, or a Python function."""

    name: str
    kind: Literal["listing", "react", "raw", "python"]
    params: tuple[Param, ...] = ()
    returns: str = ""
    description: str = ""
    metadata: dict[str, Any] = {}
    triggers: tuple[Trigger, ...] = ()
    steps: tuple[ListingLine, ...] = ()
    notes: tuple[Note, ...] = ()
    source: str = ""
    """The text of the Python block that defines it."""
    open: bool = False
    """Whether it takes arguments besides its parameters."""
    uncompiled: tuple[str, ...] = ()
    """The steps of a source that was not compiled, as they were written."""
    line: int = 0

    @property
    def public(self) -> bool:
        return self.metadata.get("public") is True

    @property
    def heading(self) -> str:
        """The first line of what it says of itself."""
        return self.description.split("\n", 1)[0]

    def planned(self) -> Iterator[PlannedStep]:
        """Its lines, or itself where it has none."""
        if self.kind != "listing":
            yield PlannedStep(self.name, self.heading)
        for line in self.steps:
            yield PlannedStep(f"{self.name}:{line.number}", line.title, "." in line.number)

    @property
    def begins(self) -> bool:
        """Whether it runs when the program starts."""
        return any(trigger.kind == "BGN" for trigger in self.triggers)


class Remote(msgspec.Struct, frozen=True):
    """Where an agent lives that is not in this program."""

    type: Literal["mcp", "cuebook"]
    url: str = ""
    command: tuple[str, ...] = ()
    transport: str = ""
    timeout: float = 30.0
    """Seconds for one call."""
    auth: SecretUse | None = None
    """The header that says who asks."""


class Agent(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["ai", "human", "mcp"] = "ai"
    description: str = ""
    metadata: dict[str, Any] = {}
    playbooks: dict[str, Playbook] = {}
    python: tuple[str, ...] = ()
    """Its Python blocks, as they were written."""
    remote: Remote | None = None
    line: int = 0
    python_lines: tuple[int, ...] = ()
    """The lines of the fences before them."""

    @property
    def source(self) -> str:
        """Its Python blocks as one text, whose lines have the numbers that they have in the program."""
        text, lines = "", 0
        for number, block in zip(self.python_lines, self.python, strict=True):
            text += "\n" * max(1, number - lines) + block
            lines = text.count("\n")
        return text


class ProgramText(msgspec.Struct, frozen=True, dict=True):
    """Implements `registry.Document`."""

    name: str
    agents: dict[str, Agent]
    compiled: bool = True
    frontmatter: dict[str, Any] = {}
    warnings: tuple[Problem, ...] = ()
    called: str = ""
    """What a run calls instead of what begins with the program."""

    @property
    def title(self) -> str:
        return str(self.frontmatter.get("title") or self.name)

    @property
    def description(self) -> str:
        return str(self.frontmatter.get("description") or "").strip()

    @cached_property
    def beginning(self) -> tuple[tuple[Agent, Playbook], ...]:
        """What runs when the program starts, in the order in which it stands there."""
        if self.called:
            return ()
        return tuple(
            (agent, playbook)
            for agent in self.agents.values()
            for playbook in agent.playbooks.values()
            if playbook.begins
        )

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """What the playbooks take that run when the program starts: the inputs of a run, each name once."""
        found: dict[str, Param] = {}
        for _, playbook in self.beginning:
            for param in playbook.params:
                found.setdefault(param.name, param)
        return tuple(found.values())

    @property
    def stays_open(self) -> bool:
        """A conversation has no end of its own: unless somebody says how long, a question waits for as long as it takes."""
        return True

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(_input(param) for param in self.params)

    @cached_property
    def plan(self) -> tuple[PlannedStep, ...]:
        """The lines of what runs when the program starts. Those below a condition are listed when a run comes to them."""
        return tuple(step for _, playbook in self.beginning for step in playbook.planned())

    def walk(self) -> Iterator[PlannedStep]:
        """Every step that a run may come to."""
        for agent in self.agents.values():
            for playbook in agent.playbooks.values():
                yield from playbook.planned()


_INPUT_TYPES = {"int": "number", "float": "number", "bool": "boolean"}


def _input(param: Param) -> Input:
    default = None if param.default is None else str(param.default)
    return Input(param.name, _INPUT_TYPES.get(param.wanted, "string"), not param.has_default, default)

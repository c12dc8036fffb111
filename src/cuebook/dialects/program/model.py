"""A natural-language program as frozen values with line numbers: agents, playbooks, triggers, steps and notes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.dialect import Document, Input
from cuebook.dialects.findings import Problem
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
    def value_type(self) -> str:
        """The declared type or, without one, the type of the default."""
        return self.type or ("" if self.default is None else type(self.default).__name__)


class ListingLine(msgspec.Struct, frozen=True):
    """One step of a compiled playbook."""

    number: str
    """As in `02.01`."""
    code: Code
    text: str = ""
    line: int = 0
    """The line number in the file."""

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
    """Whether it accepts arguments beyond its parameters."""
    uncompiled: tuple[str, ...] = ()
    """The steps of a source that was not compiled, as written."""
    line: int = 0

    @property
    def public(self) -> bool:
        return self.metadata.get("public") is True

    @property
    def heading(self) -> str:
        """The first line of its description."""
        return self.description.split("\n", 1)[0]

    def planned(self) -> Iterator[PlannedStep]:
        """Its lines, or the playbook itself if it has none."""
        if self.kind != "listing":
            yield PlannedStep(self.name, self.heading)
        for line in self.steps:
            yield PlannedStep(f"{self.name}:{line.number}", line.title, "." in line.number)

    @property
    def begins(self) -> bool:
        """Whether it runs when the program starts."""
        return any(trigger.kind == "BGN" for trigger in self.triggers)


class Remote(msgspec.Struct, frozen=True):
    """The connection to a remote agent."""

    type: Literal["mcp", "cuebook", "playbook"]
    url: str = ""
    command: tuple[str, ...] = ()
    transport: str = ""
    timeout: float = 30.0
    """Seconds for one call."""
    auth: SecretUse | None = None
    """The header that authenticates the caller."""
    playbooks: tuple[str, ...] = ()
    """Of the type `playbook`: the playbooks on this machine that it runs as children."""

    @property
    def at(self) -> str:
        """Where it is, in words."""
        return self.url or " ".join(self.command) or ", ".join(self.playbooks)


class Agent(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["ai", "human", "mcp"] = "ai"
    description: str = ""
    metadata: dict[str, Any] = {}
    playbooks: dict[str, Playbook] = {}
    python: tuple[str, ...] = ()
    """Its Python blocks, as written."""
    remote: Remote | None = None
    line: int = 0
    python_lines: tuple[int, ...] = ()
    """The line numbers of their opening fences."""

    @property
    def source(self) -> str:
        """Its Python blocks as one string, with the same line numbers as in the program."""
        text, lines = "", 0
        for number, block in zip(self.python_lines, self.python, strict=True):
            text += "\n" * max(1, number - lines) + block
            lines = text.count("\n")
        return text


class ProgramText(Document, msgspec.Struct, frozen=True, dict=True):
    """A parsed program."""

    name: str
    agents: dict[str, Agent]
    compiled: bool = True
    frontmatter: dict[str, Any] = {}
    warnings: tuple[Problem, ...] = ()
    called: str = ""
    """The call that a run makes instead of the playbooks that run when the program starts."""

    @property
    def title(self) -> str:
        return str(self.frontmatter.get("title") or self.name)

    @property
    def description(self) -> str:
        return str(self.frontmatter.get("description") or "").strip()

    @cached_property
    def beginning(self) -> tuple[tuple[Agent, Playbook], ...]:
        """The playbooks that run when the program starts, in document order."""
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
        """The parameters of the playbooks that run when the program starts, each name once. They are the inputs of a
        run."""
        found: dict[str, Param] = {}
        for _, playbook in self.beginning:
            for param in playbook.params:
                found.setdefault(param.name, param)
        return tuple(found.values())

    @property
    def stays_open(self) -> bool:
        """A conversation has no natural end: a question waits indefinitely, unless a limit is set."""
        return True

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(_input(param) for param in self.params)

    @cached_property
    def plan(self) -> tuple[PlannedStep, ...]:
        """The lines of the playbooks that run when the program starts. Lines below a condition are listed when a run
        reaches them."""
        return tuple(step for _, playbook in self.beginning for step in playbook.planned())

    @cached_property
    def every_step(self) -> tuple[PlannedStep, ...]:
        playbooks = [playbook for agent in self.agents.values() for playbook in agent.playbooks.values()]
        return tuple({step.label: step for playbook in playbooks for step in playbook.planned()}.values())


_INPUT_TYPES = {"int": "number", "float": "number", "bool": "boolean"}


def _input(param: Param) -> Input:
    default = None if param.default is None else str(param.default)
    return Input(param.name, _INPUT_TYPES.get(param.value_type, "string"), not param.has_default, default)

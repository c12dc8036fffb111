"""A natural-language program as values: agents, playbooks, their triggers, steps and notes. Frozen, with lines. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.registry import Input, Problem
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


class ListingLine(msgspec.Struct, frozen=True):
    """One step of a compiled playbook."""

    number: str
    """As in `02.01`."""
    code: Code
    text: str = ""
    line: int = 0
    """Where it stands in the file."""


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
    uncompiled: tuple[str, ...] = ()
    """The steps of a source that was not compiled, as they were written."""
    line: int = 0

    @property
    def public(self) -> bool:
        return self.metadata.get("public") is True


class Remote(msgspec.Struct, frozen=True):
    """Where an agent lives that is not in this program."""

    type: Literal["mcp", "cuebook"]
    url: str = ""
    command: tuple[str, ...] = ()
    transport: str = ""
    timeout: float = 30.0
    auth: dict[str, Any] = {}


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


class ProgramText(msgspec.Struct, frozen=True, dict=True):
    """Implements `registry.Document`."""

    name: str
    agents: dict[str, Agent]
    compiled: bool = True
    frontmatter: dict[str, Any] = {}
    warnings: tuple[Problem, ...] = ()

    @property
    def title(self) -> str:
        return str(self.frontmatter.get("title") or self.name)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return ()

    @cached_property
    def plan(self) -> tuple[PlannedStep, ...]:
        return ()

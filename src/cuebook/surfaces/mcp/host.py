"""What serves assistants, and who is at the other end of a connection."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.gate.people import Role
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service import Principal, Service
from cuebook.surfaces.driving import Drivers
from cuebook.surfaces.histories import Histories
from cuebook.surfaces.library import Library
from cuebook.surfaces.wiring import Wiring

Stand = Literal["moves", "rests", "left", "elsewhere"]
"""Whether a run goes on by itself, waits for somebody or has ended, or was left by whoever drove it: then it goes on when it
is resumed here, or, elsewhere, in the folder or by the program that it belongs to.
"""
LEFT: tuple[Stand, ...] = ("left", "elsewhere")

_LONGEST_NAME = 60
_MOST_TOLD = 1000


class Caller(msgspec.Struct, frozen=True):
    """Who is at the other end: the assistant, and the person whose assistant it is."""

    principal: Principal
    """On whose behalf tools act."""
    person: Principal
    """Whoever answers what the client asks in place."""
    address: str
    """Of the web app, for links."""
    decides: bool = False
    """Whether the assistant may be given the tool that decides approvals."""
    approves_here: bool = True
    """Whether the person is asked for approvals in place."""
    each: bool = False
    """Whether each playbook is a tool of its own."""

    def may(self, role: Role) -> bool:
        return self.principal.may(role)

    @property
    def may_decide(self) -> bool:
        return self.decides and self.may("approver")

    @property
    def person_may_decide(self) -> bool:
        return self.approves_here and self.person.may("approver")

    def key(self, run: str) -> tuple[str, str, str]:
        """Under which it is kept what this caller was told of a run."""
        return self.principal.tenant, self.principal.name, run

    def link(self, run: str, wait: str = "") -> str:
        return f"{self.address}/runs/{run}{f'#wait-{wait}' if wait else ''}"


def client_of(ctx: Any) -> str:
    """The program at the other end, as it calls itself; it is kept with what people answer and decide by it."""
    params = ctx.session.client_params
    if params is None:
        return "an MCP client"
    told = "".join(letter for letter in params.client_info.name if letter.isprintable())
    return f"{told[:_LONGEST_NAME].strip()} (MCP)"


class Told(OrderedDict[tuple[str, str, str], str]):
    """The last so many. Who is forgotten is told at once, and remembered again."""

    def __setitem__(self, key: tuple[str, str, str], state: str) -> None:
        super().__setitem__(key, state)
        self.move_to_end(key)
        if len(self) > _MOST_TOLD:
            self.popitem(last=False)


def told_state(row: RunRow, waits: Iterable[WaitRow]) -> str:
    """What a run stands at, in a word that changes with it."""
    return " ".join([row.status, repr(row.updated), *sorted(wait.id for wait in waits)])


@dataclass(frozen=True)
class Host:
    """What is configured, what runs, and who asks."""

    wiring: Wiring
    service: Service
    library: Library
    drivers: Drivers
    caller: Callable[[Any], Caller]
    """Who sent a request, from the SDK's context of it."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to end: whoever follows a run is let go, and the run is taken up again later."""
    told: Told = field(default_factory=Told)
    """How each run stood when a caller was last told of it: whoever looks again and waits, waits for something else."""

    @cached_property
    def histories(self) -> Histories:
        """Which runs are of which playbook."""
        return Histories(self.service, self.library)

    def may_raise(self, caller: Caller, row: RunRow, limit: str) -> bool:
        """Whether a limit of a run is the assistant's own, and none that a person has set."""
        return row.owner == caller.principal.name and getattr(self.wiring.config.budget, limit, None) is None

"""What serves assistants, and who is at the other end of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cuebook.gate.people import Role
from cuebook.service import Principal, Service
from cuebook.surfaces.driving import Drivers
from cuebook.surfaces.library import Library
from cuebook.surfaces.wiring import Wiring


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

    def may(self, role: Role) -> bool:
        return self.principal.may(role)

    @property
    def may_decide(self) -> bool:
        return self.decides and self.may("approver")

    @property
    def person_may_decide(self) -> bool:
        return self.approves_here and self.person.may("approver")

    def link(self, run: str, wait: str = "") -> str:
        return f"{self.address}/runs/{run}{f'#wait-{wait}' if wait else ''}"


@dataclass(frozen=True)
class Host:
    """What is configured, what runs, and who asks."""

    wiring: Wiring
    service: Service
    library: Library
    drivers: Drivers
    caller: Callable[[Any], Caller]
    """Who sent a request, from the SDK's context of it."""
    offers_playbooks: bool = False
    """Whether each playbook is a tool of its own."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to end: whoever follows a run is let go, and the run is taken up again later."""

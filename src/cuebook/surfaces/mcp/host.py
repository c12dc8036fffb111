"""The host of the MCP server, and the caller at the other end of a connection."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from cuebook.gate.roles import Role
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.playbooks.history import Histories
from cuebook.service.playbooks.library import Library
from cuebook.service.service import Principal, Service
from cuebook.service.worker import Worker
from cuebook.wiring.wiring import Wiring

Activity = Literal["running", "resting", "interrupted", "elsewhere"]
"""What a run is doing: it continues on its own (running), is waiting for a person or has ended (resting), or is not driven by
any process. An interrupted run continues when it is resumed here; a run that belongs elsewhere must be resumed in its own
folder or program.
"""
NOT_DRIVEN: tuple[Activity, ...] = ("interrupted", "elsewhere")

_LONGEST_NAME = 60
_MOST_REPORTED = 1000


class Caller(msgspec.Struct, frozen=True):
    """The other end of a connection: the assistant, and the person it works for."""

    principal: Principal
    """The principal that tools act for."""
    person: Principal
    """The person who answers questions directly in the client."""
    address: str
    """URL of the web app, for links."""
    decides: bool = False
    """Whether the assistant is offered the tool that decides on approvals."""
    approves_here: bool = True
    """Whether the person is asked for approvals directly in the client."""
    each: bool = False
    """Whether each playbook is offered as a tool."""

    alone: bool = False
    """Whether this server has no other caller, as over stdio."""

    def may(self, role: Role) -> bool:
        return self.principal.may(role)

    @property
    def may_decide(self) -> bool:
        return self.decides and self.may("approver")

    @property
    def person_may_decide(self) -> bool:
        return self.approves_here and self.person.may("approver")

    def key(self, run: str) -> tuple[str, str, str]:
        """The key of the last report on a run to this caller."""
        return self.principal.tenant, self.principal.name, run

    def link(self, run: str, wait: str = "") -> str:
        return f"{self.address}/runs/{run}{f'#wait-{wait}' if wait else ''}"


def client_of(ctx: Any) -> str:
    """The client program's own name, recorded with the answers and decisions that people make in it."""
    params = ctx.session.client_params
    if params is None:
        return "an MCP client"
    name = "".join(letter for letter in params.client_info.name if letter.isprintable())
    return f"{name[:_LONGEST_NAME].strip()} (MCP)"


class LastReports(OrderedDict[tuple[str, str, str], str]):
    """The most recent reports. A caller whose report was dropped gets its next report at once."""

    def __setitem__(self, key: tuple[str, str, str], state: str) -> None:
        super().__setitem__(key, state)
        self.move_to_end(key)
        if len(self) > _MOST_REPORTED:
            self.popitem(last=False)


def state_key(row: RunRow, waits: Iterable[WaitRow]) -> str:
    """A string that changes whenever the state of a run changes."""
    return " ".join([row.status, repr(row.updated), *sorted(wait.id for wait in waits)])


@dataclass(frozen=True)
class Host:
    """Everything the server needs: configuration, service, library, worker and callers."""

    wiring: Wiring
    service: Service
    library: Library
    worker: Worker
    caller: Callable[[Any], Caller]
    """Finds the caller from the SDK's request context."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to stop: calls that follow a run return, and the run is resumed later."""
    last_reports: LastReports = field(default_factory=LastReports)
    """The state of each run in a caller's last report: a repeated call with `wait_seconds` waits for a change from it."""

    claims: WeakKeyDictionary[Any, dict[str, str]] = field(default_factory=WeakKeyDictionary)
    """The steps that each connection has taken: its claims by wait."""
    own_claims: dict[str, str] = field(default_factory=dict)
    """The same for the only caller, if there is no other."""

    def claims_of(self, caller: Caller, session: Any) -> dict[str, str]:
        return self.own_claims if caller.alone else self.claims.setdefault(session, {})

    @cached_property
    def histories(self) -> Histories:
        """The runs of each playbook."""
        return Histories(self.service, self.library)

    def may_raise(self, caller: Caller, row: RunRow, limit: str) -> bool:
        """Whether the assistant, rather than a person, set this limit of the run."""
        return row.owner == caller.principal.name and getattr(self.wiring.config.budget, limit, None) is None

"""The parts that every handler of the web app uses, and how endpoints are declared."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.access.identity import Identities
from cuebook.service.access.sign_ins import SignIns
from cuebook.service.contract.runtime import Runtime
from cuebook.service.insight.metrics import Metrics
from cuebook.service.nodes.connections import NodeConnections
from cuebook.service.notifications.notifier import Notifier
from cuebook.service.playbooks.history import Histories
from cuebook.service.playbooks.library import Library
from cuebook.service.readiness import Readiness
from cuebook.service.service import Principal, Service
from cuebook.service.triggers.administration import TriggerAdministration
from cuebook.service.worker import Worker
from cuebook.surfaces.web.auth.refusals import Refusals
from cuebook.surfaces.web.auth.sessions import Sessions
from cuebook.surfaces.web.pages.tiles import Faces
from cuebook.wiring.wiring import Wiring


class UsedStates(OrderedDict[str, None]):
    """The attempts to sign in that came back from the identity provider: none does twice."""

    def take(self, state: str) -> bool:
        if state in self:
            return False
        self[state] = None
        while len(self) > _REMEMBERED:
            self.popitem(last=False)
        return True


_REMEMBERED = 10_000

Kind = Literal["page", "form", "json", "stream", "static"]
Needs = Literal["anyone", "trigger", "metrics", "viewer", "runner", "approver", "admin"]
"""Who may use an endpoint: anyone, the holder of the playbook's own token or of the token for metrics, or a user with this role."""


@dataclass(frozen=True)
class Site:
    """One served app: its configuration, service, library, sessions and worker."""

    wiring: Wiring
    service: Service
    library: Library
    histories: Histories
    sessions: Sessions
    worker: Worker
    runtime: Runtime
    readiness: Readiness
    nodes: NodeConnections
    triggers: TriggerAdministration
    notifier: Notifier
    sign_ins: SignIns
    identities: Identities | None = None
    """The identity provider's people; None if none is configured."""
    used_states: UsedStates = field(default_factory=UsedStates)
    metrics: Metrics | None = None
    """None if they are not collected."""
    metrics_token: str = ""
    """A token that is good for nothing but reading the metrics; empty if there is none."""
    refusals: Refusals = field(default_factory=Refusals)
    """Requests to webhooks that were refused."""
    faces: Faces = field(default_factory=Faces)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to stop, which ends the streams."""


Handler = Callable[[Request, Site, Principal], Awaitable[Response]]


class Endpoint(NamedTuple):
    """An endpoint of the app: path and method, who may use it, and its handler."""

    path: str
    method: str
    handler: Handler
    needs: Needs
    kind: Kind

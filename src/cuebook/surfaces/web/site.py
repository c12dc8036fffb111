"""The parts that every handler of the web app uses, and how endpoints are declared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.contract.runtime import Runtime
from cuebook.service.node_connections import NodeConnections
from cuebook.service.playbooks.history import Histories
from cuebook.service.playbooks.library import Library
from cuebook.service.readiness import Readiness
from cuebook.service.service import Principal, Service
from cuebook.service.worker import Worker
from cuebook.surfaces.web.auth.sessions import Sessions
from cuebook.surfaces.web.pages.tiles import Faces
from cuebook.wiring.wiring import Wiring

Kind = Literal["page", "form", "json", "stream", "static"]
Needs = Literal["anyone", "trigger", "viewer", "runner", "approver", "admin"]
"""Who may use an endpoint: anyone, the holder of the playbook's own token, or a user with this role."""


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

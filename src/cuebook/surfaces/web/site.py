"""What every handler of the web app works with, and how ways through it are declared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from cuebook.runtime import Runtime
from cuebook.service import Principal, Service
from cuebook.surfaces.driving import Drivers
from cuebook.surfaces.histories import Histories
from cuebook.surfaces.library import Library
from cuebook.surfaces.web.feeds import Feeds
from cuebook.surfaces.web.sessions import Sessions
from cuebook.surfaces.web.tiles import Faces
from cuebook.surfaces.wiring import Wiring

Kind = Literal["page", "form", "json", "stream", "static"]
Needs = Literal["anyone", "trigger", "viewer", "runner", "approver", "admin"]
"""Who may come this way: anyone, whoever has the playbook's own token, or a person with this role."""


@dataclass(frozen=True)
class Site:
    """One served app: what is configured, what runs, and what is under way."""

    wiring: Wiring
    service: Service
    library: Library
    histories: Histories
    sessions: Sessions
    drivers: Drivers
    feeds: Feeds
    runtime: Runtime
    faces: Faces = field(default_factory=Faces)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to end: streams end then."""


Handler = Callable[[Request, Site, Principal], Awaitable[Response]]


class Way(NamedTuple):
    """A way into the app: what is asked, who may, and what answers."""

    path: str
    method: str
    handler: Handler
    needs: Needs
    kind: Kind

"""Logs sign-ins, refused requests and, if wanted, every request: without queries, bodies, cookies and tokens."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cuebook.gate.roles import Principal
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.web")

_LONGEST_PATH = 200


def signed_in(connection: HTTPConnection, user: str, how: str) -> None:
    log_event(log, "sign_in.accepted", by=user or Principal().name, how=how, client=_client(connection))


def sign_in_refused(connection: HTTPConnection, how: str) -> None:
    log_event(log, "sign_in.refused", logging.WARNING, how=how, client=_client(connection))


def signed_out(connection: HTTPConnection, who: Principal) -> None:
    log_event(log, "sign_out", by=who.name, client=_client(connection))


def forbidden(connection: HTTPConnection, who: Principal) -> None:
    """Logs a request for which a user lacks the role."""
    fields: dict[str, Any] = {"by": who.name, "path": _path(connection.scope), "client": _client(connection)}
    log_event(log, "request.forbidden", logging.WARNING, **fields)


class AccessLog:
    """Logs every request when its response is complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            who = scope.get("state", {}).get("who")
            log_event(
                log,
                "request",
                method=scope["method"],
                path=_path(scope),
                status=status,
                seconds=round(time.monotonic() - began, 4),
                by=who.name if isinstance(who, Principal) else "",
                client=_client(HTTPConnection(scope)),
            )


def _path(scope: Scope) -> str:
    return str(scope["path"])[:_LONGEST_PATH]


def _client(connection: HTTPConnection) -> str:
    return "" if connection.client is None else connection.client.host

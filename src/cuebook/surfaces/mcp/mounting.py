"""The server below `/mcp` of the web app: streamable HTTP, for whoever has a token. Nothing is imported before the first
request comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import BrokenResourceError, ClosedResourceError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from cuebook.service import Principal, Service
from cuebook.surfaces.driving import Drivers
from cuebook.surfaces.library import Library
from cuebook.surfaces.revocation import revoked
from cuebook.surfaces.wiring import Wiring

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Who = Callable[[Request], Awaitable[Principal | None]]
EACH = "tools"
"""With `?tools=each`, whoever comes is offered each playbook as a tool of its own."""
LARGEST_BODY = 1_900_000
"""Bytes of a message; a little less than what the web app lets through, so that it is this that is told."""


class Mounted:
    """Answers what comes to `/mcp`."""

    def __init__(
        self,
        wiring: Wiring,
        service: Service,
        library: Library,
        drivers: Drivers,
        who: Who,
        closing: asyncio.Event,
    ) -> None:
        self._parts = (wiring, service, library, drivers)
        self._who = who
        self._closing = closing
        self._manager: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        who = await self._who(request)
        if who is None:
            await _refused()(scope, receive, send)
            return
        manager = await self._opened()
        scope.setdefault("state", {})["mcp_who"] = who
        scope["user"] = _user(who)
        answer = _Once(send)
        work = [
            asyncio.create_task(manager.handle_request(scope, receive, answer)),
            asyncio.create_task(revoked(lambda: self._still(request, who))),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if work[0] in done:
                with suppress(ClosedResourceError, BrokenResourceError):  # the client has ended its session
                    work[0].result()
                return
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        await answer.end()

    async def _still(self, request: Request, who: Principal) -> bool:
        """Whether the token is still good, and for as much."""
        now = await self._who(request)
        return now is not None and (now.name, now.tenant) == (who.name, who.tenant) and now.roles >= who.roles

    async def close(self) -> None:
        """Ends every session. The event that says so is set by whoever closes."""
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def _opened(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._manager is None:
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                from cuebook.surfaces.mcp.host import Host
                from cuebook.surfaces.mcp.server import make_server

                logging.getLogger("mcp.server.streamable_http").addFilter(_is_news)
                host = Host(*self._parts, _caller_of, closing=self._closing)
                manager = StreamableHTTPSessionManager(make_server(host), max_request_body_size=LARGEST_BODY)
                ready = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(manager, ready))
                await ready.wait()
                self._manager = manager
            return self._manager

    async def _serve(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        """The sessions' own task: they may only be ended where they were begun."""
        async with manager.run():
            ready.set()
            await self._closing.wait()


class _Once:
    """Passes one response on. The SDK sends a second one where a client has gone in the middle of its own request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._over = False

    async def __call__(self, message: Message) -> None:
        if not self._over:
            self._begun = True
            self._over = message["type"] == "http.response.body" and not message.get("more_body", False)
            await self._send(message)

    async def end(self) -> None:
        """Cuts off what is under way."""
        if not self._begun:
            await self({"type": "http.response.start", "status": 401, "headers": []})
        await self({"type": "http.response.body"})


def _is_news(record: logging.LogRecord) -> bool:
    """That a client has gone is nothing to tell whoever reads the log: its runs go on."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ClosedResourceError | BrokenResourceError)


def _caller_of(ctx: Any) -> Any:
    """Who sent a request: the holder of its token, for the assistant and for the person alike."""
    from cuebook.surfaces.mcp.host import Caller, client_of

    request: Request = ctx.request
    holder: Principal = request.scope["state"]["mcp_who"]
    who = msgspec.structs.replace(holder, through=client_of(ctx))
    address = f"{request.url.scheme}://{request.headers.get('host', '')}"
    each = request.query_params.get(EACH) == "each"
    return Caller(principal=who, person=who, address=address, decides=True, each=each)


def _user(who: Principal) -> Any:
    """Whom a session belongs to: nobody else's token opens it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=f"{who.tenant}/{who.name}", scopes=[]))


def _refused() -> Response:
    told = {
        "type": "urn:cuebook:problem:bad_token",
        "title": "Unauthorized",
        "status": 401,
        "code": "bad_token",
        "detail": "This needs a token.",
        "fix": "`cuebook users add NAME --role runner` makes one for a new user, `cuebook users token NAME` for another; send it as `Authorization: Bearer ...`.",
    }
    return JSONResponse(told, 401, {"WWW-Authenticate": "Bearer"}, "application/problem+json")

"""The MCP server below `/mcp` of the web app: streamable HTTP, for users with a token. The SDK is imported with the first
request.
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

from cuebook.gate.roles import Origin
from cuebook.service.admin import revoked
from cuebook.service.playbooks.library import Library
from cuebook.service.service import Principal, Service
from cuebook.service.worker import Worker
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Who = Callable[[Request], Awaitable[Principal | None]]
EACH = "tools"
"""The query parameter of `?tools=each`, which offers each playbook as a tool."""
LARGEST_BODY = 1_900_000
"""Maximum size of a message in bytes; a little less than the web app's limit, so that the client gets the SDK's error."""


class Mounted:
    """Answers requests to `/mcp`."""

    def __init__(
        self,
        wiring: Wiring,
        service: Service,
        library: Library,
        worker: Worker,
        who: Who,
        closing: asyncio.Event,
        challenge: Callable[[Request], str] = lambda request: "Bearer",
    ) -> None:
        """`challenge` says, to a request without a valid token, where to get one."""
        self._parts = (wiring, service, library, worker)
        self._who = who
        self._closing = closing
        self._challenge = challenge
        self._manager: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        who = await self._who(request)
        if who is None:
            await _refused(self._challenge(request))(scope, receive, send)
            return
        manager = await self._open_manager()
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
        """Whether the token is still valid, with the same roles."""
        now = await self._who(request)
        return now is not None and (now.name, now.tenant) == (who.name, who.tenant) and now.roles >= who.roles

    async def close(self) -> None:
        """Wait until every session has ended; the caller sets the closing event first."""
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def _open_manager(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._manager is None:
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                from cuebook.surfaces.mcp.host import Host
                from cuebook.surfaces.mcp.server import make_server

                logging.getLogger("mcp.server.streamable_http").addFilter(_is_relevant)
                host = Host(*self._parts, _caller_of, closing=self._closing)
                manager = StreamableHTTPSessionManager(make_server(host), max_request_body_size=LARGEST_BODY)
                ready = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(manager, ready))
                await ready.wait()
                self._manager = manager
            return self._manager

    async def _serve(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        """Run the sessions in one task: they must end in the task that started them."""
        async with manager.run():
            ready.set()
            await self._closing.wait()


class _Once:
    """Passes on only one response. The SDK sends a second one if a client disconnects during its request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._over = False

    async def __call__(self, message: Message) -> None:
        if not self._over:
            self._begun = True
            self._over = message["type"] == "http.response.body" and not message.get("more_body", False)
            await self._send(message)

    async def end(self) -> None:
        """End the response, complete or not."""
        if not self._begun:
            await self({"type": "http.response.start", "status": 401, "headers": []})
        await self({"type": "http.response.body"})


def _is_relevant(record: logging.LogRecord) -> bool:
    """Whether a log record is worth logging. A disconnected client is not: its runs continue."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ClosedResourceError | BrokenResourceError)


def _caller_of(ctx: Any) -> Any:
    """The caller of a request: the holder of its token is both the principal and the person."""
    from cuebook.surfaces.mcp.host import Caller, client_of

    request: Request = ctx.request
    holder: Principal = request.scope["state"]["mcp_who"]
    host = request.client.host if request.client is not None else ""
    who = msgspec.structs.replace(holder, through=client_of(ctx), origin=Origin("mcp", host))
    address = f"{request.url.scheme}://{request.headers.get('host', '')}"
    each = request.query_params.get(EACH) == "each"
    return Caller(principal=who, person=who, address=address, decides=True, each=each)


def _user(who: Principal) -> Any:
    """The owner of a session: only this user's tokens can use it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=f"{who.tenant}/{who.name}", scopes=[]))


def _refused(challenge: str) -> Response:
    problem = {
        "type": "urn:cuebook:problem:bad_token",
        "title": "Unauthorized",
        "status": 401,
        "code": "bad_token",
        "detail": "This request needs a token.",
        "fix": "Create one with `cuebook users add NAME --role runner` (new user) or `cuebook users token NAME` (existing user), and send it as `Authorization: Bearer ...`.",
    }
    return JSONResponse(problem, 401, {"WWW-Authenticate": challenge}, "application/problem+json")

"""The WebSocket that nodes connect to. Everything is checked before the connection is upgraded, and errors are HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from cuebook.kernel.errors import CuebookError, Refused
from cuebook.performers.nodes import protocol
from cuebook.service.nodes.connections import NodeConnections
from cuebook.service.nodes.nodes import PairedAlready, TokenExpired, UnknownKey
from cuebook.surfaces.web import problems
from cuebook.surfaces.web.auth.sessions import bearer_of
from cuebook.surfaces.web.problems import Problem
from cuebook.system.network import is_loopback

ALIVE = "cuebook.alive"
"""The extension of a scope that says whether the other side answers a ping within some seconds."""
MOST_UNKNOWN = 32
"""How many connections may be without their first message."""
_STATUS: dict[type[Refused], int] = {UnknownKey: 401, TokenExpired: 401, PairedAlready: 409}


async def refuse(scope: Scope, send: Send, error: CuebookError | Problem) -> None:
    """Answers an upgrade with an error, as any other request."""
    request = Request({**scope, "type": "http", "method": "GET"})
    response = problems.problem(request, error)
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": bytes(response.body)})


def check_upgrade(scope: Scope) -> None:
    """Raises `Problem` for an upgrade by a browser, or of another address."""
    if "origin" in Headers(scope=scope):
        raise Problem(
            403,
            "foreign_origin",
            "Pages cannot open this connection.",
            fix="It is for nodes: `cuebook node --connect URL`.",
        )
    if scope["path"] != protocol.PATH:
        raise Problem(404, "not_found", "There is no WebSocket at this address.", fix=f"Nodes use {protocol.PATH}.")


class NodeSocket:
    """Accepts the connections of nodes."""

    def __init__(self, connections: NodeConnections) -> None:
        self._connections = connections
        self._unknown = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            bearer = bearer_of(HTTPConnection(scope))
            if not bearer:
                raise Problem(
                    401,
                    "unknown_key",
                    "A node sends its key or its pairing token.",
                    fix="Start it with --token, from `cuebook nodes add NAME`.",
                    WWW_Authenticate="Bearer",
                )
            if protocol.SUBPROTOCOL not in scope["subprotocols"]:
                raise Problem(
                    400,
                    "other_protocol",
                    f"This server speaks {protocol.SUBPROTOCOL}.",
                    fix="Install the same version of Cuebook on the node.",
                )
            candidate = await self._connections.nodes.admit(bearer)
            if self._unknown >= MOST_UNKNOWN:
                raise Problem(503, "too_many", "Too many nodes are connecting.", fix="Try again.", Retry_After="5")
        except Refused as error:
            await refuse(scope, send, Problem(_STATUS.get(type(error), 409), error.code, error.message, fix=error.fix))
            return
        except (CuebookError, Problem) as error:
            await refuse(scope, send, error)
            return
        socket = WebSocket(scope, receive, send)
        await socket.accept(protocol.SUBPROTOCOL)
        link = SocketLink(socket)
        try:
            await self._connections.serve(candidate, link, self._frames(socket), private=_is_private(scope))
        except WebSocketDisconnect:
            pass
        finally:
            await link.end()

    async def _frames(self, socket: WebSocket) -> AsyncIterator[str]:
        """The text frames of a node, until it disconnects."""
        self._unknown += 1
        counted = True
        try:
            while True:
                message = await socket.receive()
                if counted:
                    self._unknown, counted = self._unknown - 1, False
                if message["type"] == "websocket.disconnect":
                    return
                if message.get("text") is None:
                    raise protocol.BadMessage("Frames must be text.")
                yield message["text"]
        finally:
            if counted:
                self._unknown -= 1


class SocketLink:
    """A WebSocket as the hub uses it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._sending = asyncio.Lock()

    async def send(self, frame: str) -> None:
        await self._tried(lambda: self._socket.send_text(frame))

    async def close(self, code: int, reason: str) -> None:
        await self._tried(lambda: self._socket.close(code, reason))

    async def end(self) -> None:
        try:
            await self.close(1000, "")
        except ConnectionError:
            pass

    async def answers(self, seconds: float) -> bool:
        alive: Callable[[float], Awaitable[bool]] | None = self._socket.scope["extensions"].get(ALIVE)
        return alive is None or await alive(seconds)

    async def _tried(self, work: Callable[[], Awaitable[Any]]) -> None:
        async with self._sending:
            try:
                await work()
            except (WebSocketDisconnect, RuntimeError, OSError) as error:
                raise ConnectionError("The connection to the node was lost.") from error


def _is_private(scope: Scope) -> bool:
    """Whether no one on the way can read what is sent: it is encrypted, or does not leave this machine. A reverse proxy says
    so in `X-Forwarded-Proto` and `X-Forwarded-For`, which the server has put into the scope.
    """
    client = scope.get("client")
    return scope["scheme"] == "wss" or (client is not None and is_loopback(client[0]))

"""A server that nodes connect to, and whose messages a test writes."""

from __future__ import annotations

import asyncio
import http
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from cuebook.performers.nodes.protocol import (
    MAX_MESSAGE,
    PATH,
    SUBPROTOCOL,
    FromNode,
    Hello,
    Message,
    Welcome,
    digest,
    encode,
    from_node,
)

TOKEN = "a-pairing-token-of-the-tests"
_SECONDS = 60

T = TypeVar("T", bound=Message)


class Peer:
    """The server's side of one connection, after its `Hello`."""

    def __init__(self, socket: ServerConnection, hello: Hello, credential: str) -> None:
        self.socket = socket
        self.hello = hello
        self.credential = credential
        self.received: list[FromNode] = []

    async def send(self, *messages: Message) -> None:
        for message in messages:
            await self.socket.send(encode(message))

    async def receive(self, kind: type[T], fits: Callable[[T], bool] = lambda message: True) -> T:
        """The next message of a kind. Others before it stay in `received`."""
        async with asyncio.timeout(_SECONDS):
            while True:
                message = from_node(await self.socket.recv())
                self.received.append(message)
                if isinstance(message, kind) and fits(message):
                    return message

    async def closed(self) -> None:
        async with asyncio.timeout(_SECONDS):
            await self.socket.wait_closed()


class ScriptedServer:
    """Pairs and welcomes nodes like a real server, and leaves everything else to the test."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.tokens = {TOKEN}
        self.keys: set[str] = set()
        self.attempts: list[str] = []
        """The credentials of all connections, including those that were refused."""
        self.answer: Callable[[Request], Response | None] = lambda request: None
        """What is answered in place of a connection."""
        self.first: Callable[[ServerConnection], Any] | None = None
        """What happens in place of the welcome."""
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def peer(self) -> Peer:
        """The next connection."""
        async with asyncio.timeout(_SECONDS):
            return await self._peers.get()

    def _checked(self, socket: ServerConnection, request: Request) -> Response | None:
        credential = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.attempts.append(credential)
        answer = self.answer(request)
        if answer is not None:
            return answer
        if request.path != PATH:
            return response(404, {"code": "not_found", "detail": "Not found.", "fix": ""})
        if credential not in self.tokens and digest(credential) not in self.keys:
            return response(
                401, {"code": "unknown_key", "detail": "This server knows no node with this key.", "fix": "Pair it."}
            )
        return None

    async def _handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        credential = socket.request.headers["Authorization"].removeprefix("Bearer ")
        try:
            hello = from_node(await socket.recv())
            assert isinstance(hello, Hello)
            if credential in self.tokens:
                self.tokens.discard(credential)
                self.keys.add(hello.key)
            if self.first is not None:
                await self.first(socket)
                return
            await socket.send(encode(Welcome(node="laptop", server="test")))
            await self._peers.put(Peer(socket, hello, credential))
            await socket.wait_closed()
        except ConnectionClosed:
            pass

    async def start(self) -> None:
        self._server = await serve(
            self._handle,
            "127.0.0.1",
            self.port,
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            process_request=self._checked,
            ssl=self._tls,
            compression=None,
            max_size=2 * MAX_MESSAGE,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()


def response(status: int, body: dict[str, str], **headers: str) -> Response:
    data = json.dumps(body).encode()
    every = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    return Response(status, http.HTTPStatus(status).phrase, Headers(every), data)


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()

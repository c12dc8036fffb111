"""A node whose answers a test gives: it speaks the protocol and remembers requests, but does nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from cuebook.performers.nodes import protocol
from cuebook.performers.nodes.protocol import (
    Ask,
    Began,
    Call,
    Finished,
    Forget,
    FromServer,
    Goodbye,
    Hello,
    Known,
    Offered,
    OfferedAction,
    Outcome,
    Refused,
    Stop,
    Welcome,
)

Answer = Callable[[Call], Awaitable[Outcome | None]]

OFFERED = (
    Offered(
        name="command",
        actions=(
            OfferedAction(
                name="run",
                schema={
                    "type": "object",
                    "properties": {"argv": {"type": "array", "items": {"type": "string"}}, "token": {"type": "string"}},
                    "required": ["argv"],
                    "additionalProperties": False,
                },
            ),
        ),
    ),
    Offered(name="files", actions=(OfferedAction(name="read", reads_only=True),)),
)


async def echo(call: Call) -> Outcome | None:
    """Answers with the arguments."""
    return Finished(id=call.id, text=json.dumps(call.arguments, sort_keys=True), exit_code=0)


class ScriptedNode:
    """The program on another machine. Its ledger outlives its connections."""

    def __init__(
        self, address: str, credential: str, answer: Answer = echo, *, key: str = "", host: str = "far"
    ) -> None:
        self.address = address.replace("http", "ws", 1)
        self.credential = credential
        self.key = key or f"the key of a machine called {host}"
        self.host = host
        self.answer = answer
        self.offered = OFFERED
        self.calls: list[Call] = []
        self.asked: list[str] = []
        self.stopped: list[str] = []
        self.forgotten: list[str] = []
        self.names: list[str] = []
        self.goodbye: Goodbye | None = None
        self.ledger: dict[str, Outcome | None] = {}
        """The requests that began, with their outcomes."""
        self.interrupted: set[str] = set()
        self.connection: ClientConnection | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None
        self.welcomed = asyncio.Event()

    async def connect(self, **options: Any) -> None:
        """Connects, and listens until the connection ends. Raises what the handshake raises."""
        options = {"subprotocols": [protocol.SUBPROTOCOL], "proxy": None, **options}
        headers = {"Authorization": f"Bearer {self.credential}", **options.pop("more", {})}
        self.connection = await connect(f"{self.address}{protocol.PATH}", additional_headers=headers, **options)
        pairing = self.credential != self.key
        digest = protocol.digest(self.key) if pairing else ""
        await self.send(Hello(protocol=1, host=self.host, pid=7, key=digest, capabilities=self.offered))
        self._reading = asyncio.create_task(self._read(self.connection))

    async def join(self, **options: Any) -> ScriptedNode:
        """Connects and waits for the welcome; from then on, the key is used."""
        self.welcomed.clear()
        await self.connect(**options)
        async with asyncio.timeout(30):
            await self.welcomed.wait()
        self.credential = self.key
        return self

    async def cut(self) -> None:
        """Loses the connection, as when a cable is pulled."""
        assert self.connection is not None
        self.connection.transport.abort()
        await self.ended()

    async def ended(self) -> None:
        """Waits until the connection has ended."""
        async with asyncio.timeout(30):
            if self._reading is not None:
                await self._reading

    async def close(self) -> None:
        for task in self._working:
            task.cancel()
        if self.connection is not None:
            await self.connection.close()
            await self.ended()

    async def send(self, message: protocol.Message) -> None:
        assert self.connection is not None
        with suppress(ConnectionClosed):
            await self.connection.send(protocol.encode(message))

    async def _read(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for frame in connection:
                await self._hear(protocol.from_server(frame))

    async def _hear(self, message: FromServer) -> None:
        match message:
            case Welcome(node=name):
                self.names.append(name)
                self.welcomed.set()
            case Goodbye():
                self.goodbye = message
            case Call(id=id) if id in self.ledger:
                await self.send(self._known(id))
            case Call():
                self.calls.append(message)
                task = asyncio.create_task(self._perform(message))
                self._working.add(task)
                task.add_done_callback(self._working.discard)
            case Ask(id=id):
                self.asked.append(id)
                await self.send(self._known(id))
            case Stop(id=id):
                self.stopped.append(id)
                await self.send(Refused(id=id, code="cancelled", message="Stopped.", began=True))
            case Forget(ids=ids):
                self.forgotten += ids

    def _known(self, id: str) -> Known:
        if id in self.interrupted:
            return Known(id=id, state="interrupted")
        if id not in self.ledger:
            return Known(id=id, state="unknown")
        outcome = self.ledger[id]
        return Known(id=id, state="running" if outcome is None else "ended", outcome=outcome)

    async def _perform(self, call: Call) -> None:
        self.ledger[call.id] = None
        await self.send(Began(id=call.id))
        outcome = await self.answer(call)
        if outcome is None:
            return
        self.ledger[call.id] = outcome
        await self.send(outcome)


@asynccontextmanager
async def joined(node: ScriptedNode, **options: Any) -> AsyncIterator[ScriptedNode]:
    try:
        yield await node.join(**options)
    finally:
        await node.close()

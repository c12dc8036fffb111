"""The nodes that are connected to this process, and the requests that they are performing.

The hub knows neither HTTP nor the store. The side that accepts a connection has already checked who it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec

from cuebook.kernel.capabilities import any_node, node, of_tenant
from cuebook.performers.nodes import protocol
from cuebook.performers.nodes.protocol import Ask, Call, Closed, Forget, Goodbye, Hello, Known, Outcome, Stop, Welcome

log = logging.getLogger("cuebook")

MOST = 200
"""How many nodes may be connected to a process."""
_TO_ANSWER = 2.0
"""Seconds that a connection has to show that it is alive when another one wants its place."""


class Link(Protocol):
    """A connection to a node, in terms of frames."""

    async def send(self, frame: str) -> None:
        """Sends a frame. Raises `ConnectionError` if the connection is lost."""

    async def close(self, code: int, reason: str) -> None: ...

    async def answers(self, seconds: float) -> bool:
        """Whether the other side answers a ping within this time."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a connection is refused or ended."""

    code: Closed
    message: str
    fix: str = ""


class Connection:
    """One connected node."""

    def __init__(self, link: Link, name: str, tenant: str, key: str, hello: Hello, *, private: bool) -> None:
        """`key` is the digest of its key. `private` says whether what is sent cannot be read on the way."""
        self.link = link
        self.name = name
        self.tenant = tenant
        self.key = key
        self.hello = hello
        self.private = private
        self.since = time.time()
        self.ended: Refusal | None = None

    def offers(self, capability: str) -> protocol.Offered | None:
        return next((one for one in self.hello.capabilities if one.name == capability), None)

    @property
    def names(self) -> Iterator[str]:
        """What runs may need of it, by name."""
        yield of_tenant(node(self.name), self.tenant)
        for one in self.hello.capabilities:
            yield of_tenant(any_node(one.name), self.tenant)

    async def send(self, message: protocol.Message) -> None:
        await self.link.send(protocol.encode(message))

    async def end(self, why: Refusal) -> None:
        """Ends the connection and says why."""
        self.ended = self.ended or why
        try:
            await self.send(Goodbye(code=why.code, message=why.message, fix=why.fix))
            await self.link.close(protocol.CLOSE_CODES[why.code], why.code)
        except ConnectionError:
            pass


class Lost(Exception):
    """The pairing with the node was ended, or it did not come back in time."""

    def __init__(self, why: Refusal | None = None) -> None:
        super().__init__(why.message if why is not None else "")
        self.why = why


class Request:
    """A request to a node, from the moment it is sent until its outcome is known."""

    def __init__(self, call: Call, tenant: str, key: str, shown: Callable[[str], object]) -> None:
        self.call = call
        self.tenant = tenant
        self.key = key
        """The digest of the node's key: a request belongs to a machine, whatever its name."""
        self.shown = shown
        self.outcome: asyncio.Future[Outcome | Known] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome | Known) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def lose(self, why: Refusal) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(Lost(why))


class Hub:
    """All connected nodes of this process, by tenant and name."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, str], Connection] = {}
        self._requests: dict[str, Request] = {}
        self._joining = asyncio.Lock()
        self._arrived = asyncio.Event()
        self.changed: Callable[[], object] = lambda: None
        """Called when a node has connected."""
        self.closing = False
        """Whether this process stops. Nodes then go on with their requests, and the next process asks for the outcomes."""

    # --- connections ---

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections.values())

    def offered(self) -> frozenset[str]:
        """What runs may need of the connected nodes, by name."""
        return frozenset(name for one in self._connections.values() for name in one.names)

    def named(self, tenant: str, name: str) -> Connection | None:
        return self._connections.get((tenant, name))

    async def arrival(self, tenant: str, name: str, seconds: float) -> Connection | None:
        """The connection of a node, which may have been lost a moment ago; None if it does not come back in time."""
        try:
            async with asyncio.timeout(seconds):
                while (found := self.named(tenant, name)) is None:
                    await self._arrived.wait()
        except TimeoutError:
            return None
        return found

    def by_key(self, tenant: str, key: str) -> Connection | None:
        return next((one for one in self._connections.values() if (one.tenant, one.key) == (tenant, key)), None)

    async def join(self, connection: Connection) -> Refusal | None:
        """Adds a connection, unless its place is taken; returns the reason if so."""
        async with self._joining:
            before = self.by_key(connection.tenant, connection.key) or self.named(connection.tenant, connection.name)
            if before is not None and before.key != connection.key:
                await self.end(before, Refusal("renewed", f"Another machine was paired as '{connection.name}'."))
            elif before is not None:
                if await before.link.answers(_TO_ANSWER):
                    return Refusal(
                        "connected_already",
                        f"Node '{connection.name}' is connected already, from {before.hello.host or 'another process'}"
                        f" (process {before.hello.pid}).",
                        "End that process first, or pair this machine under a name of its own.",
                    )
                self.leave(before)
                await before.end(Refusal("connected_already", "Another connection of this node took over."))
            elif len(self._connections) >= MOST:
                return Refusal("too_many", f"This server has {MOST} nodes connected, which is its limit.", "Try later.")
            self._connections[connection.tenant, connection.name] = connection
        return None

    async def welcome(self, connection: Connection, release: str) -> None:
        """Tells the node that it is connected, and asks it about the requests that it was performing."""
        await connection.send(Welcome(node=connection.name, server=release))
        for request in self._of(connection):
            await connection.send(Ask(id=request.call.id))
        self._announce()

    def _announce(self) -> None:
        self._arrived.set()
        self._arrived = asyncio.Event()
        self.changed()

    def leave(self, connection: Connection) -> None:
        """Removes a connection that has ended. Its requests wait for the node to come back."""
        at = (connection.tenant, connection.name)
        if self._connections.get(at) is connection:
            del self._connections[at]

    async def rename(self, connection: Connection, name: str, release: str) -> None:
        self.leave(connection)
        connection.name = name
        self._connections[connection.tenant, name] = connection
        await connection.send(Welcome(node=name, server=release))
        self._announce()

    async def end(self, connection: Connection, why: Refusal) -> None:
        """Ends a connection for good, and the requests of its node with it."""
        self.leave(connection)
        for request in self._of(connection):
            request.lose(why)
        await connection.end(why)

    async def close(self) -> None:
        """Ends all connections, because this process stops."""
        self.closing = True
        why = Refusal("stopping", "The server stops.", "The node connects again when the server is back.")
        for connection in self.connections:
            self.leave(connection)
            await connection.end(why)

    def _of(self, connection: Connection) -> list[Request]:
        return [
            one
            for one in self._requests.values()
            if (one.tenant, one.key) == (connection.tenant, connection.key) and not one.outcome.done()
        ]

    # --- messages ---

    async def hear(self, connection: Connection, message: protocol.FromNode) -> None:
        match message:
            case protocol.Output(id=id, text=text):
                if (request := self._requests.get(id)) is not None and request.key == connection.key:
                    request.shown(text)
            case protocol.Finished() | protocol.Refused():
                self._settle(connection, message.id, message)
            case Known(id=id, state="ended", outcome=outcome) if outcome is not None:
                self._settle(connection, id, outcome)
            case Known(id=id, state="unknown"):
                request = self._requests.get(id)
                if request is not None and request.key == connection.key and not request.call.again:
                    # It was sent over a connection that was cut before the node received it.
                    request.call = msgspec.structs.replace(request.call, again=True)
                    await connection.send(request.call)
                else:
                    self._settle(connection, id, message)
            case Known(id=id, state="interrupted"):
                self._settle(connection, id, message)
            case Hello():
                raise protocol.BadMessage("A second Hello on one connection.")
            case _:  # it runs, as was assumed
                pass

    def _settle(self, connection: Connection, id: str, outcome: Outcome | Known) -> None:
        request = self._requests.get(id)
        if request is not None and request.key == connection.key:
            request.settle(outcome)

    # --- requests ---

    async def perform(self, connection: Connection, call: Call, shown: Callable[[str], object]) -> Outcome | Known:
        """Sends a request and waits for its outcome, also while the node is cut off."""
        return await self._awaited(connection, call, shown, call)

    async def ask(self, connection: Connection, call: Call, shown: Callable[[str], object]) -> Outcome | Known:
        """What became of a request that an earlier process sent."""
        # If the node does not know it, it is not sent again here.
        return await self._awaited(connection, msgspec.structs.replace(call, again=True), shown, Ask(id=call.id))

    async def _awaited(
        self, connection: Connection, call: Call, shown: Callable[[str], object], first: protocol.Message
    ) -> Outcome | Known:
        request = Request(call, connection.tenant, connection.key, shown)
        self._requests[call.id] = request
        try:
            await _tolerantly(connection.send(first))
            return await asyncio.shield(request.outcome)
        finally:
            del self._requests[call.id]
            if not request.outcome.done():
                request.outcome.cancel()

    async def stop(self, tenant: str, key: str, id: str) -> None:
        """Asks a node to end a request, if it is connected."""
        connection = self.by_key(tenant, key)
        if connection is not None:
            await _tolerantly(connection.send(Stop(id=id)))

    async def forget(self, tenant: str, key: str, id: str) -> None:
        """Lets a node delete an outcome that is recorded."""
        connection = self.by_key(tenant, key)
        if connection is not None:
            await _tolerantly(connection.send(Forget(ids=(id,))))


async def _tolerantly(sending: Awaitable[None]) -> None:
    """Sends over a connection that may be lost: what was to be said is said again when the node is back."""
    try:
        await sending
    except ConnectionError:
        pass

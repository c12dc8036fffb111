"""The connections of nodes to this process, from the first message to the last. It knows frames, not sockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from cuebook import __version__
from cuebook.kernel.errors import Refused, StoreError
from cuebook.performers.nodes import protocol
from cuebook.performers.nodes.hub import Connection, Hub, Link, Refusal
from cuebook.performers.nodes.protocol import Hello
from cuebook.performers.nodes.records import Presence
from cuebook.service.nodes.nodes import Candidate, Nodes
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook")

_CONFIRM_EVERY = 20.0
"""Seconds between two confirmations that nodes are connected."""
_CHECK_EVERY = 1.0
"""Seconds between two checks of the pairings of connected nodes: other processes can change them too."""
_REVOKED = Refusal(
    "revoked",
    "The pairing of this node was ended.",
    "An administrator creates a new pairing token: `cuebook nodes token NAME`.",
)


class NodeConnections:
    """Lets nodes connect to the hub of this process."""

    def __init__(self, nodes: Nodes, hub: Hub, server: str, clock: Callable[[], float]) -> None:
        """`server` names this process in the store."""
        self.nodes = nodes
        self.hub = hub
        self._server = server
        self._clock = clock
        self._news = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        nodes.on_change = self._news.set

    async def serve(self, candidate: Candidate, link: Link, frames: AsyncIterator[str], *, private: bool) -> None:
        """Serves one connection until it ends."""
        try:
            hello = await _first(frames)
        except protocol.BadMessage as error:
            await _refuse(link, Refusal("bad_message", error.message))
            return
        refusal = _unfit(candidate, hello)
        if refusal is None and candidate.token:
            try:
                candidate = await self.nodes.pair(candidate, hello.key, hello.host)
            except Refused as error:
                refusal = Refusal("paired_already", error.message, error.fix)
        if refusal is not None:
            await _refuse(link, refusal)
            return
        connection = Connection(link, candidate.name, candidate.tenant, candidate.key, hello, private=private)
        refusal = await self.hub.join(connection)
        if refusal is not None:
            await _refuse(link, refusal)
            return
        self._watching = self._watching or asyncio.ensure_future(self._watch())
        try:
            await self._saw(connection)
            log_event(log, "node.connected", node=connection.name)
            await self.hub.welcome(connection, __version__)
            async for frame in frames:
                await self.hub.hear(connection, protocol.from_node(frame))
        except protocol.BadMessage as error:
            await connection.end(Refusal("bad_message", error.message))
        except ConnectionError:
            pass
        finally:
            self.hub.leave(connection)
            log_event(log, "node.disconnected", node=connection.name)
            if self.hub.by_key(connection.tenant, connection.key) is None:  # otherwise another connection took over
                with suppress(StoreError):
                    await self.nodes.left(connection.tenant, connection.name, connection.key, self._server)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self.hub.close()

    async def _saw(self, connection: Connection) -> None:
        hello = connection.hello
        presence = Presence(
            connection.key,
            self._clock(),
            self._server,
            hello.host[:200],
            hello.system[:200],
            hello.release[:50],
            hello.pid,
            hello.capabilities,
        )
        await self.nodes.saw(connection.tenant, connection.name, presence)

    # --- pairings that change ---

    async def _watch(self) -> None:
        """Ends the connections of nodes whose pairing was ended, and follows their names."""
        confirmed = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY):
                    await self._news.wait()
            self._news.clear()
            with suppress(StoreError):
                await self._look()
                if time.monotonic() - confirmed >= _CONFIRM_EVERY:
                    confirmed = time.monotonic()
                    for one in self.hub.connections:
                        await self._saw(one)

    async def _look(self) -> None:
        connections = self.hub.connections
        for tenant in {one.tenant for one in connections}:
            names = await self.nodes.by_key(tenant)
            for one in connections:
                if one.tenant != tenant:
                    continue
                name = names.get(one.key)
                if name is None:
                    await self.hub.end(one, _REVOKED)
                elif name != one.name:
                    with suppress(ConnectionError):
                        await self.hub.rename(one, name, __version__)


def _unfit(candidate: Candidate, hello: Hello) -> Refusal | None:
    if hello.protocol != protocol.VERSION:
        return Refusal(
            "other_protocol",
            f"This server speaks version {protocol.VERSION} of the protocol of nodes, and this node version {hello.protocol}.",
            f"Install Cuebook {__version__} on the node.",
        )
    if candidate.token and not (len(hello.key) == 64 and hello.key.isalnum()):
        return Refusal("bad_message", "The first message has no digest of the node's key.")
    return None


async def _first(frames: AsyncIterator[str]) -> Hello:
    try:
        async with asyncio.timeout(protocol.HELLO_SECONDS):
            message = protocol.from_node(await anext(frames))
    except (TimeoutError, StopAsyncIteration):
        raise protocol.BadMessage("There was no Hello.") from None
    if not isinstance(message, Hello):
        raise protocol.BadMessage(f"The first message must be Hello, not {type(message).__name__}.")
    return message


async def _refuse(link: Link, why: Refusal) -> None:
    with suppress(ConnectionError):
        await link.send(protocol.encode(protocol.Goodbye(code=why.code, message=why.message, fix=why.fix)))
        await link.close(protocol.CLOSE_CODES[why.code], why.code)

"""Stays connected: connects, performs what the server asks for, and connects again after every loss, ever more slowly."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator

from cuebook.node.calls import Calls
from cuebook.node.connection import Connection, Lost, NotPaired, connected
from cuebook.node.identity import Identity
from cuebook.node.ledger import Ledger
from cuebook.node.settings import NodeSettings, capabilities, folder_for
from cuebook.performers.nodes.protocol import Message

FIRST, LONGEST = 0.5, 60.0
"""The first and the longest pause before another attempt, in seconds."""
_STEADY = 20.0
"""A connection that held this long was a good one: after it, the pauses begin again with the first."""


def pauses() -> Iterator[float]:
    """The pause before each attempt. They differ between nodes, which may all lose their server at the same time."""
    seconds = FIRST
    while True:
        yield seconds * random.uniform(0.5, 1.0)
        seconds = min(2 * seconds, LONGEST)


class Node:
    """The node of one server while its process runs."""

    def __init__(self, settings: NodeSettings, token: str, say: Callable[[str], None]) -> None:
        """`say` shows a line to the owner of the machine. Raises `CuebookError` if the settings cannot be used."""
        self._settings = settings
        self._say = say
        self._capabilities = capabilities(settings, say)
        self._identity = Identity(folder_for(settings))
        self._token = token
        if self._identity.is_new and not token:
            self._identity.close()
            (folder_for(settings) / "key").unlink()
            raise NotPaired(
                f"This machine is not paired with {settings.server.origin}.",
                fix="`cuebook nodes add NAME` on the server prints a token; pass it with --token.",
            )
        self._ledger = Ledger(self._identity.folder / "requests")
        self._connection: Connection | None = None
        self._since = math.inf
        """When the connection was there; infinite if it never was."""
        self._calls = Calls(
            self._capabilities,
            self._ledger,
            self._send,
            say,
            at_once=settings.at_once,
            seconds=settings.seconds,
        )

    async def run(self) -> None:
        """Runs until it is cancelled, or until the server ends the pairing, which is an error."""
        waits, said = pauses(), ""
        while True:
            self._since = math.inf
            try:
                await self._connect()
            except Lost as lost:
                if time.monotonic() - self._since > _STEADY:
                    waits = pauses()
                if str(lost) != said or self._since < math.inf:  # a long outage is one line, not one for each attempt
                    said = str(lost)
                    self._say(
                        f"no connection to {self._settings.server.origin}: {said.rstrip('.')}. Trying again until there is one."
                    )
            await asyncio.sleep(next(waits))

    async def close(self) -> None:
        """Ends what is under way, and says what that was. Call it before the connection is closed, so that it gets to know."""
        try:
            under_way = self._calls.under_way
            if under_way:
                self._say(f"ended what was under way: {', '.join(under_way)}.")
            await self._calls.close()
        finally:
            self._ledger.close()
            self._identity.close()

    async def _connect(self) -> None:
        """One connection, from its beginning to its end."""
        new, self._identity.is_new = self._identity.is_new, False
        try:
            await self._converse(self._token if new else "")
        except NotPaired:
            # The key of a node that is paired works, also if the answer to its first connection was lost. If the server does
            # not know the key, the token is for a new pairing.
            if not self._token or new:
                raise
            await self._converse(self._token)

    async def _converse(self, token: str) -> None:
        offered = [one.offered for one in self._capabilities.values()]
        async with connected(self._settings.server, self._identity, token, offered, self._say) as connection:
            self._since = time.monotonic()
            names = ", ".join(f"{one.name} ({', '.join(action.name for action in one.actions)})" for one in offered)
            self._say(f"node {connection.node} is connected to {self._settings.server.origin} and offers {names}.")
            self._connection = connection
            try:
                async for message in connection.messages():
                    await self._calls.take(message)
            finally:
                self._connection = None

    async def _send(self, message: Message) -> bool:
        connection = self._connection
        return connection is not None and await connection.send(message)

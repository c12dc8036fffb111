"""Notifies clients that the playbooks have changed, while any client is subscribed.

With the newer protocol, a client subscribes with a request that stays open (`subscriptions/listen`), over either transport.
With the older protocol, clients are notified over stdio only, where one client lives as long as the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp_types import NotificationParams

from cuebook.service.playbooks.library import Listed
from cuebook.surfaces.mcp.host import Host
from cuebook.surfaces.mcp.tools.catalogue import same

_EVERY = 1.0
"""Seconds between two checks of the files."""
_SHARE = 50
"""Checks of a large library may take at most 1/n of the time."""

Listener = Callable[[ServerEvent], None]


class Announcer:
    """Watches the playbook files and announces changes. For the SDK it is a `SubscriptionBus`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._listeners: dict[object, Listener] = {}
        self._sessions: list[ServerSession] = []
        self._books: list[Listed] = []
        self.listen = ListenHandler(self)

    # --- subscribers ---

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._begin()
        key = object()
        self._listeners[key] = listener

        def leave() -> None:
            self._listeners.pop(key, None)

        return leave

    async def subscribe_session(self, ctx: ServerRequestContext[Any, Any], params: NotificationParams | None) -> None:
        """Subscribe a client of the older protocol. Not over HTTP, where its disconnection would go unnoticed."""
        if ctx.request is None:
            self._begin()
            self._sessions.append(ctx.session)

    async def publish(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            listener(event)

    # --- watching ---

    @asynccontextmanager
    async def lifespan(self, server: Any) -> AsyncIterator[None]:
        """Watch the files while a server is up, and close the subscriptions when it is about to stop."""
        tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._end())]
        try:
            yield None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """Remember the playbooks at the first subscription, to detect changes from then on."""
        if not self._listeners and not self._sessions:
            self._books = self._host.library.all()

    async def _watch(self) -> None:
        clock, took = asyncio.get_running_loop().time, 0.0
        while True:
            await asyncio.sleep(max(_EVERY, took * _SHARE))
            if not self._listeners and not self._sessions:
                continue
            began = clock()
            books = list((await self._host.library.read(None)).listed)
            took = clock() - began
            if not same(books, self._books):
                self._books = books
                await self._announce()

    async def _announce(self) -> None:
        await self.publish(ToolsListChanged())
        await self.publish(ResourcesListChanged())
        for session in self._sessions:
            await session.send_tool_list_changed()
            await session.send_resource_list_changed()

    async def _end(self) -> None:
        await self._host.closing.wait()
        self.listen.close()

"""Tells clients that the playbooks have changed, while any of them wants to know.

With the newer protocol a client asks for it by a request that stays open (`subscriptions/listen`), over either transport; with
the older one it is told over stdio, where there is one client for as long as the server lives.
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

from cuebook.surfaces.library import Listed
from cuebook.surfaces.mcp.catalogue import same
from cuebook.surfaces.mcp.host import Host

_EVERY = 1.0
"""Seconds between two looks at the files."""
_SHARE = 50
"""Of a large library the looks are as far apart as to take this fraction of the time, at the most."""

Listener = Callable[[ServerEvent], None]


class Announcing:
    """Looks at the files, and passes on that they have changed. For the SDK it is a `SubscriptionBus`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._listeners: dict[object, Listener] = {}
        self._sessions: list[ServerSession] = []
        self._books: list[Listed] = []
        self.listen = ListenHandler(self)

    # --- whoever wants to know ---

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._begin()
        key = object()
        self._listeners[key] = listener

        def leave() -> None:
            self._listeners.pop(key, None)

        return leave

    async def greeted(self, ctx: ServerRequestContext[Any, Any], params: NotificationParams | None) -> None:
        """A client of the older protocol is ready. Over HTTP nobody could tell when it has gone, so it is not told."""
        if ctx.request is None:
            self._begin()
            self._sessions.append(ctx.session)

    async def publish(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            listener(event)

    # --- looking ---

    @asynccontextmanager
    async def lifespan(self, server: Any) -> AsyncIterator[None]:
        """While a server is up, its clients are told; when it is about to end, those that listen are let go."""
        tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._end())]
        try:
            yield None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """What the first one who wants to know has seen: what comes after it is new."""
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
                await self._tell()

    async def _tell(self) -> None:
        await self.publish(ToolsListChanged())
        await self.publish(ResourcesListChanged())
        for session in self._sessions:
            await session.send_tool_list_changed()
            await session.send_resource_list_changed()

    async def _end(self) -> None:
        await self._host.closing.wait()
        self.listen.close()

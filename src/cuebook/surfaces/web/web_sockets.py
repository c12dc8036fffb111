"""Connections that became WebSockets."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from cuebook.surfaces.web.node_socket import ALIVE

_EVERY = 0.02
"""Seconds between two looks for the answer to a ping."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket whose application can ask whether the other side still answers."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ALIVE] = self.answers

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":  # otherwise uvicorn reports a missing handshake
            self.handshake_complete = True

    async def answers(self, seconds: float) -> bool:
        """Whether the other side answers a ping within this time."""
        if self.is_over:
            return False
        self.stop_keepalive()
        self.send_keepalive_ping()
        until = self.loop.time() + seconds
        while self.pending_ping_payload is not None and self.loop.time() < until and not self.is_over:  # noqa: ASYNC110
            await asyncio.sleep(_EVERY)
        return self.pending_ping_payload is None and not self.is_over

    @property
    def is_over(self) -> bool:
        return self.close_sent or self.disconnected

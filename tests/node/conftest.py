"""A scripted server, and nodes in this process that are paired with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.formats.addresses import parse_url
from cuebook.node import client
from cuebook.node.client import Node
from cuebook.node.settings import NodeSettings
from tests.node.scripted_server import TOKEN, Peer, ScriptedServer, scripted_server

Start = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


class Started:
    """A node that runs in this process."""

    def __init__(self, settings: NodeSettings, token: str = TOKEN) -> None:
        self.lines: list[str] = []
        self.node = Node(settings, token, self.lines.append)
        self.task = asyncio.create_task(self.node.run())

    async def stop(self) -> None:
        await self.node.close()
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
async def started(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Started]]:
    """Starts nodes; commands run in the folder `work`."""
    monkeypatch.setattr(client, "FIRST", 0.05)
    monkeypatch.setattr(client, "LONGEST", 0.2)
    (tmp_path / "work").mkdir()
    running: list[Started] = []

    def start(token: str = TOKEN, url: str = "", **given: Any) -> Started:
        usual: dict[str, Any] = {"data": tmp_path / "data", "folder": tmp_path / "work", "desktop": False}
        settings = NodeSettings(server=parse_url(url or server.url), **{**usual, **given})
        running.append(Started(settings, token))
        return running[-1]

    yield start
    for one in running:
        await one.stop()

"""The web app served on a real socket by a real uvicorn, with its own store, workspace and model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from cuebook.performers.models.model import Chunk, Model, Request
from cuebook.surfaces.web.app import make_site
from cuebook.surfaces.web.server import Server, bound, make_server
from cuebook.surfaces.web.site import Site
from tests.support.runtime import ALLOWED, RuntimeHarness

TOKEN = "a-token-for-the-tests-of-the-web-app"


class Dripping:
    """A model that pauses between two pieces of a text."""

    def __init__(self, model: Model, pause: float = 0.01) -> None:
        self._model = model
        self._pause = pause

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        async for chunk in self._model.stream(request):
            yield chunk
            await asyncio.sleep(self._pause)


class Sse(NamedTuple):
    """An event as it came over the wire."""

    id: str
    event: str
    data: Any


class ServedApp(RuntimeHarness):
    """Serves a `RuntimeHarness` over HTTP."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str = ALLOWED) -> None:
        super().__init__(folder, monkeypatch, policy)
        self.books = self.work / "books"
        self.books.mkdir(exist_ok=True)
        self.link = ""
        self.site: Site
        self.server: Server
        self.client: httpx2.AsyncClient
        self.guest: httpx2.AsyncClient
        """A client without a token."""
        self._serving: asyncio.Task[None] | None = None

    def book(self, name: str, text: str) -> str:
        """Puts a playbook into the library and returns its id."""
        path = self.books / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path.stem.removesuffix(".playbook")

    def model(self, model: Model) -> ServedApp:
        self.models = {"test": model}
        return self

    async def serve(self, *, port: int = 0, **flags: Any) -> ServedApp:
        self.open(**flags)
        self.site = make_site(self.wiring, self.service, folders=[self.books], serve_token=TOKEN)
        listening = bound("127.0.0.1", port)
        port = listening.getsockname()[1]
        self.server = make_server(self.site, "127.0.0.1", port, on_ready=lambda link: setattr(self, "link", link))
        self._serving = asyncio.create_task(self.server.serve(sockets=[listening]))
        while not self.server.started and not self._serving.done():
            await asyncio.sleep(0.01)
        address = f"http://127.0.0.1:{port}"
        self.guest = httpx2.AsyncClient(base_url=address, timeout=30, trust_env=False)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.client = httpx2.AsyncClient(base_url=address, headers=headers, timeout=30, trust_env=False)
        return self

    async def stop(self) -> None:
        """Stops the server and keeps the store."""
        if self._serving is not None:
            await self.client.aclose()
            await self.guest.aclose()
            self.server.stop()
            await self._serving
            self._serving = None
            await self.close()

    # --- asking ---

    async def post(self, path: str, expect: int | None = None, /, **fields: Any) -> Any:
        response = await self.client.post(path, json=fields)
        if expect is not None:
            assert response.status_code == expect, response.text
        return response.json() if response.content else None

    async def get(self, path: str, expect: int = 200) -> Any:
        response = await self.client.get(path)
        assert response.status_code == expect, response.text
        return response.json()

    async def begin(self, **fields: Any) -> str:
        started = await self.post("/api/runs", 201, **fields)
        return str(started["run"])

    async def until(self, run: str, *statuses: str) -> dict[str, Any]:
        """The run, once it is in one of these states."""
        async with asyncio.timeout(90):
            while True:
                message: dict[str, Any] = await self.get(f"/api/runs/{run}")
                if message["status"] in statuses:
                    return message
                await asyncio.sleep(0.02)

    async def waiting(self, run: str) -> dict[str, Any]:
        """The open wait of a run, once there is one."""
        return dict((await self.until(run, "paused", "awaiting_input", "awaiting_approval"))["waits"][0])

    # --- streams ---

    @asynccontextmanager
    async def stream(self, run: str, after: str = "", kind: str = "stream") -> AsyncIterator[AsyncIterator[Sse]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
        async with self.client.stream("GET", f"/api/runs/{run}/{kind}", headers=headers) as response:
            assert response.status_code in (200, 204), await response.aread()
            yield parsed(response)

    async def all_events(self, run: str, after: str = "", kind: str = "stream") -> list[Sse]:
        """Everything after a position, until the stream ends."""
        async with asyncio.timeout(40), self.stream(run, after, kind) as events:
            return [event async for event in events]


async def parsed(response: httpx2.Response) -> AsyncIterator[Sse]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Sse(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}

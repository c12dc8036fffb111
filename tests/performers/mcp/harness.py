"""A harness for MCP servers: a workspace, a sandbox and trust, and a check for processes that still run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from cuebook.gate.sandbox import choose
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.mcp import McpPrompts, McpServer, McpTools
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.tools.calls import Recording

FOLDER = Path(__file__).parent
GOOD = str(FOLDER / "good_server.py")
BY_HAND = str(FOLDER / "bad_servers.py")
SECRET = "s3cret-value-of-the-server"


class Trusting:
    """The approvals of people. With `all`, everything is approved as soon as it is asked about."""

    def __init__(self, *, all: bool = True) -> None:
        self._all = all
        self.digests: dict[str, str] = {}

    async def __call__(self, subject: str, digest: str) -> bool:
        if self._all:
            self.digests.setdefault(subject, digest)
        return self.digests.get(subject) == digest


class McpHarness:
    """A workspace, a sandbox, and the servers that a test started."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.sandbox = Recording(choose())
        self.trust = Trusting()
        self._boxes: list[Toolbox] = []

    def serve(self, server: McpServer, **more: Any) -> Toolbox:
        self._boxes.append(Toolbox([], {server.name: self._tools(server, **more)}))
        return self._boxes[-1]

    def texts(self, *servers: McpServer, **more: Any) -> SourcePerformer:
        """Reads the servers' prompts."""
        made = {server.name: self._tools(server, **more) for server in servers}
        self._boxes.append(Toolbox([], made))
        return SourcePerformer([], http=HttpPerformer(), served=McpPrompts(made))

    def _tools(self, server: McpServer, **more: Any) -> McpTools:
        return McpTools(
            server,
            sandbox=self.sandbox,
            workspace=self.workspace,
            granted=self.trust,
            reveal={"env:TOKEN": SECRET}.__getitem__,
            **more,
        )

    def by_hand(self, name: str, *arguments: str, start_seconds: float = 20.0, **more: Any) -> Toolbox:
        command = (sys.executable, BY_HAND, name, *arguments)
        return self.serve(McpServer("s", command=command, **more), start_seconds=start_seconds)

    def good(self, **more: Any) -> Toolbox:
        return self.serve(McpServer("good", command=(sys.executable, GOOD), **more))

    def texts_by_hand(self, name: str, *arguments: str) -> SourcePerformer:
        return self.texts(McpServer("s", command=(sys.executable, BY_HAND, name, *arguments)))

    async def close(self) -> None:
        await asyncio.gather(*(box.close() for box in self._boxes))


def running(mark: str) -> list[int]:
    """Processes whose command line or folder contains the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "cmdline").read_bytes().decode("utf-8", "replace") + str((entry / "cwd").readlink())
        except OSError:
            continue
        if mark in told:
            found.append(int(entry.name))
    return found


def assert_nothing_left(mark: str) -> None:
    assert [_told_of(pid) for pid in running(mark)] == []


def _told_of(pid: int) -> str:
    """Describes a process and what it waits for, to find out why it is still running."""
    told = [str(pid)]
    for name in ("stat", "cmdline", "wchan", "status"):
        try:
            told.append((Path("/proc") / str(pid) / name).read_text("utf-8", "replace").replace("\0", " "))
        except OSError as error:
            told.append(f"{name}: {error}")
    return "\n".join(told)

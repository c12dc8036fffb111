"""Offers the tools of a step to an agent as an MCP server.

The agent starts the server inside its sandbox, where it cannot reach us by the network. So the server is two `cat`s and two
named pipes in the agent's own folder; we are at the other end. Calls are passed on, never performed here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from cuebook.kernel.effects import ToolSpec

LINE_LIMIT = 4 << 20
_CHUNK = 1 << 16
_VERSION = "2025-06-18"

CallTool = Callable[[str, dict[str, Any]], Awaitable[tuple[str, bool]]]
"""Takes a tool's name and arguments; returns the result as text, and whether it is an error."""


class ToolServer:
    """The server for one process of an agent."""

    def __init__(self, folder: str, tools: Sequence[ToolSpec], call: CallTool) -> None:
        self._requests, self._replies = os.path.join(folder, "requests"), os.path.join(folder, "replies")
        self._tools = tools
        self._call = call
        self._descriptors: list[int] = []
        self._left = bytearray()
        self._unsent = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> dict[str, Any]:
        """Creates the pipes; returns the server's description for the agent."""
        loop = asyncio.get_running_loop()
        for path in (self._requests, self._replies):
            with suppress(FileNotFoundError):
                os.unlink(path)
            os.mkfifo(path, 0o600)
            # Open for reading and writing, so that neither end waits for the other and none sees an end too early.
            self._descriptors.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        loop.add_reader(self._descriptors[0], self._read)
        script = 'cat "$0" & cat > "$1"; kill $!'
        return {
            "name": "cuebook",
            "command": "/bin/sh",
            "args": ["-c", script, self._replies, self._requests],
            "env": [],
        }

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            task.cancel()
        for descriptor in self._descriptors:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)
            os.close(descriptor)
        self._descriptors = []

    def _read(self) -> None:
        try:
            self._left += os.read(self._descriptors[0], _CHUNK)
        except BlockingIOError:
            return
        *lines, rest = self._left.split(b"\n")
        self._left = bytearray(rest) if len(rest) <= LINE_LIMIT else bytearray()
        for line in lines:
            with suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and "id" in message and "method" in message:
                    task = asyncio.get_running_loop().create_task(self._answer(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                body["result"] = {
                    "protocolVersion": params.get("protocolVersion") or _VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "cuebook", "version": "1"},
                }
            case "tools/list":
                body["result"] = {"tools": [_listed(tool) for tool in self._tools]}
            case "tools/call":
                arguments = params.get("arguments") or {}
                name = str(params.get("name", ""))
                if any(tool.name == name for tool in self._tools):
                    text, is_error = await self._call(name, arguments)
                else:
                    text, is_error = f"There is no tool named '{name[:200]}'.", True
                body["result"] = {"content": [{"type": "text", "text": text}], "isError": is_error}
            case "ping":
                body["result"] = {}
            case _:
                body["error"] = {"code": -32601, "message": "There is no such method."}
        self._send(body)

    def _send(self, body: dict[str, Any]) -> None:
        if not self._descriptors:
            return
        self._unsent += json.dumps(body).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        loop, descriptor = asyncio.get_running_loop(), self._descriptors[1]
        with suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: os.write(descriptor, self._unsent[:_CHUNK])]
        if self._unsent:
            loop.add_writer(descriptor, self._write)
        else:
            loop.remove_writer(descriptor)


def _listed(tool: ToolSpec) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "inputSchema": schema}

"""The SDK's own MCP client, against a real `cuebook mcp` or `cuebook serve` in another process."""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult, TextContent

from tests.support.command_line import PYTHON, CommandLine
from tests.support.fork_server import ROOT, restore_signals

TRANSPORTS = ("stdio", "http")
ERAS = ("auto", "legacy")
"""The protocol without sessions, and the one with them."""

Say = Callable[[ElicitRequestFormParams], ElicitResult | Awaitable[ElicitResult]]
"""The person's response to a form, immediate or later."""
Command = Callable[..., list[str]]
"""How `cuebook` is started with these arguments: `forked` or `anew`."""


class McpClient:
    """A client that is connected."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool; it must not be an error."""
        result = await self.raw(tool, **arguments)
        assert not result.is_error, words(result)
        return dict(result.structured_content)

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        result = await self.raw(tool, **arguments)
        assert result.is_error, words(result)
        return words(result)

    async def raw(self, tool: str, /, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(tool, arguments, progress_callback=self._note)

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools(cache_mode="bypass")).tools}

    async def read(self, uri: str) -> str:
        return str(getattr((await self.client.read_resource(uri)).contents[0], "text", ""))

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


def words(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def outside(text: str) -> str:
    """The unmarked text in an answer, which an assistant considers our own."""
    return re.sub(r"<(data-\w+)>\n.*?\n</\1>", "", text, flags=re.DOTALL)


def inside(text: str) -> str:
    """The text between the lines that mark a text as data; there is one such text, a note that says so, and perhaps a
    line of where the rest is.
    """
    marked = r"Text between <(data-\w+)> and </\1> .* data.*?\n<\1>\n(.*)\n</\1>(\n[^\n]+)?"
    found = re.fullmatch(marked, text, re.DOTALL)
    assert found is not None, text[:300]
    return found[2]


def saying(*answers: Any) -> tuple[Say, list[ElicitRequestFormParams]]:
    """A person with these answers, in order, and the forms that they were shown."""
    left, seen = list(answers), []

    def say(form: ElicitRequestFormParams) -> ElicitResult:
        seen.append(form)
        answer = left.pop(0)
        if isinstance(answer, ElicitResult):
            return answer
        return ElicitResult(action="accept", content=answer if isinstance(answer, dict) else {"answer": answer})

    return say, seen


@cache
def fork_server_socket() -> str:
    """The socket of the fork server, which ends with the tests."""
    path = Path(tempfile.mkdtemp(prefix="cuebook-")) / "socket"
    command = [sys.executable, "-m", "tests.surfaces.mcp.fork_server", str(path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=PYTHON, stdin=pipe, stdout=pipe, preexec_fn=restore_signals)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    def close() -> None:
        process.communicate()
        shutil.rmtree(path.parent)

    atexit.register(close)
    return str(path)


def forked(*args: str) -> list[str]:
    """The command for a `cuebook` that the fork server forks."""
    return [sys.executable, "-IS", str(Path(__file__).with_name("fork_client.py")), fork_server_socket(), *args]


def new_process(*args: str) -> list[str]:
    """The command for a `cuebook` that loads everything itself."""
    return [sys.executable, "-m", "cuebook", *args]


def begun(
    cli: CommandLine, *args: str, command: Command = forked, folder: Path | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """A process in the working folder, or in another folder with the same environment."""
    return subprocess.Popen(
        command(*args),
        cwd=folder or cli.work,
        env=cli.environ,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


class Served:
    """`cuebook serve` in a separate process, with users who have tokens."""

    def __init__(self, cli: CommandLine, *, port: int = 0, command: Command = forked) -> None:
        self.process = begun(cli, "serve", "--port", str(port), command=command)
        assert self.process.stdout is not None
        found = re.search(r"http://[^/\s]+", self.process.stdout.readline())
        assert found is not None, self.process.stderr and self.process.stderr.read()
        self.address = found[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def token_of(cli: CommandLine, name: str = "ann", *roles: str) -> str:
    """A new token for a user."""
    flags = [part for role in roles or ("runner",) for part in ("--role", role)]
    cli.call("users", "remove", name)
    return str(cli.call("users", "add", name, *flags, "--same-person", "--json").object["token"])


def at_a_pipe(cli: CommandLine, *args: str, command: Command = forked) -> StdioServerParameters:
    """How a client starts the server over stdio."""
    first, *rest = command("mcp", *args)
    return StdioServerParameters(command=first, args=rest, cwd=cli.work, env=cli.environ)


@asynccontextmanager
async def over_stdio(
    cli: CommandLine, *args: str, command: Command = forked, mode: str = "auto", say: Say | None = None
) -> AsyncIterator[McpClient]:
    server = at_a_pipe(cli, *args, command=command)
    async with Client(server, mode=mode, elicitation_callback=_callback(say)) as client:
        yield McpClient(client)


@asynccontextmanager
async def over_http(url: str, token: str, *, mode: str = "auto", say: Say | None = None) -> AsyncIterator[McpClient]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=_callback(say)) as client,
    ):
        yield McpClient(client)


def _callback(say: Say | None) -> Any:
    if say is None:
        return None

    async def callback(context: Any, form: ElicitRequestFormParams) -> ElicitResult:
        said = say(form)
        return said if isinstance(said, ElicitResult) else await said

    return callback


def decided(cli: CommandLine, approval: str, decision: str = "approve") -> None:
    """A command of a person at the terminal."""
    ran = cli.call("decide", approval, decision, "--json")
    assert ran.code in (0, 3), ran.err

"""The tools of one MCP server, in the form that the toolbox uses: found, described, trusted and called.

Nothing is started before the user has approved exactly this server, and no tool is called unless its description has
been approved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import LACKS_SECRET, UNANSWERED, Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Confined, Confinement, Description, Limits, Sandbox, Trust
from cuebook.kernel.run import Settings
from cuebook.performers.mcp.connection import Connection, Transport
from cuebook.performers.mcp.http import HttpClientFactory, Web, checked_client
from cuebook.performers.mcp.results import digest_of_tool, listed_as, result_of
from cuebook.performers.mcp.server import Launch, McpServer, launch
from cuebook.performers.mcp.stdio import Pipes
from cuebook.performers.tools.toolbox import Ready, Tool, as_json, at_hand, no_secrets, no_such_tool

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

T = TypeVar("T")

Granted = Callable[[str, str], Awaitable[bool]]
"""Whether the user has approved a subject with this digest."""

START_SECONDS = 30.0
SERVER_LIMITS = Limits(cpu_seconds=3_600, memory=4 << 30)
"""A server runs as long as this process, so its limits are higher than a command's."""


async def nothing_granted(subject: str, digest: str) -> bool:
    return False


class McpTools:
    """One server. It is started when it is first needed, kept running, and restarted if it dies."""

    def __init__(
        self,
        server: McpServer,
        *,
        sandbox: Sandbox,
        workspace: Path,
        reveal: Callable[[str], str] = no_secrets,
        ready: Ready = at_hand,
        granted: Granted = nothing_granted,
        http_client: HttpClientFactory | None = None,
        hidden: Sequence[Path] = (),
        fixed: Sequence[Path] = (),
        limits: Limits = SERVER_LIMITS,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.server = server
        self._sandbox = sandbox
        self._workspace = workspace
        self._reveal = reveal
        self._ready = ready
        self._granted = granted
        self._http_client = http_client or checked_client()
        self._limits = limits
        self._hidden = tuple(str(path) for path in hidden)
        self._fixed = tuple(str(path) for path in fixed)
        self._start_seconds = start_seconds
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    @property
    def needs(self) -> tuple[str, ...]:
        """The capabilities that its tools need: a server with a command is a process."""
        return (SANDBOX,) if self.server.command else ()

    # --- as a tool server ---

    async def find(self, tool: str, seconds: float | None = None) -> Tool | Failed:
        launch = await self._launch()
        if not await self._granted(launch.trust.subject, launch.trust.digest):
            return _Unseen(self.server, tool, launch.trust)
        known = await self._known(launch, seconds)
        if isinstance(known, Failed):
            return known
        connection, listing = known
        listed = listing.get(tool)
        if listed is None:
            return no_such_tool(f"{self.server.name}.{tool}", [f"{self.server.name}.{name}" for name in listing])
        return _Seen(self, listed, connection, launch.trust)

    async def tools(self) -> list[Tool] | Failed:
        launch = await self._launch()
        if not await self._granted(launch.trust.subject, launch.trust.digest):
            return []
        known = await self._known(launch, None)
        if isinstance(known, Failed):
            return known
        connection, listing = known
        return [_Seen(self, listed, connection, launch.trust) for listed in listing.values()]

    async def close(self) -> None:
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.stop()

    # --- for read-only requests ---

    async def trust(self) -> Trust:
        """The approval that the server needs. Nothing is started."""
        return (await self._launch()).trust

    async def describe(self) -> Description:
        listing = Action("tool", f"{self.server.name}.*", reads_only=True)
        trust = await self.trust()
        return Description(
            actions=(listing, *actions_of(self.server, reads_only=True)),
            summary=f"List the tools of {self.server.name}",
            preview=trust.preview,
            trusts=(trust,),
        )

    async def asked(self, seconds: float, ask: Callable[[Connection, float], Awaitable[T | Failed]]) -> T | Failed:
        """The server's answer to a request that changes nothing. The request is retried once if the connection is lost
        and there is time left.
        """
        launch = await self._launch()
        if not await self._granted(launch.trust.subject, launch.trust.digest):
            return _not_trusted(self.server)
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        connection = await self._opened(launch, end, seconds)
        if isinstance(connection, Failed):
            return connection
        answer = await ask(connection, end)
        if not isinstance(answer, Failed) or connection.alive or clock() >= end:
            return answer
        connection = await self._opened(launch, end, seconds)
        return connection if isinstance(connection, Failed) else await ask(connection, end)

    # --- for its tools ---

    async def call(self, tool: _Seen, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        if not await self._granted(tool.trust.subject, tool.trust.digest):
            return tool.changed()
        clock = asyncio.get_running_loop().time
        end = clock() + call.limits.seconds
        current: Tool | Failed = tool
        for last in (False, True):
            if isinstance(current, Failed):
                return current
            if not isinstance(current, _Seen) or current.trust.digest != tool.trust.digest:
                return tool.changed()
            answer = await current.connection.call(tool.listed.name, arguments, end - clock(), call.given)
            if not isinstance(answer, Failed):
                return result_of(answer)
            if last or not _may_repeat(answer, tool, current.connection):
                heard = answer.code not in _UNHEARD or answer.details.get("sent") is False
                details = answer.details if heard else {**answer.details, UNANSWERED: True}
                return msgspec.structs.replace(answer, retryable=_passing(answer, tool), details=details)
            current = await self.find(tool.listed.name, end - clock())
        raise AssertionError("unreachable")

    # --- internal ---

    async def _launch(self) -> Launch:
        return await asyncio.to_thread(launch, self.server, self._workspace, self._sandbox.name)

    async def _known(self, launch: Launch, seconds: float | None) -> tuple[Connection, dict[str, Listed]] | Failed:
        """The connection and its tools. A dead connection is replaced once."""
        clock = asyncio.get_running_loop().time
        allowed = self._start_seconds if seconds is None else min(seconds, self._start_seconds)
        end = clock() + allowed
        failed: Failed | None = None
        for _ in range(2):
            connection = await self._opened(launch, end, allowed)
            if isinstance(connection, Failed):
                return connection
            listing = await connection.listing(end - clock(), allowed)
            if not isinstance(listing, Failed):
                return connection, listing
            failed = listing
            if connection.alive:
                break
        assert failed is not None
        return failed

    async def _lacking(self) -> Failed | None:
        """Waits for the secrets of the server, so that revealing them takes no time. Returns why there is none, or None."""
        for handle in self.server.handles:
            try:
                await self._ready(handle)
            except CuebookError as problem:
                return msgspec.structs.replace(Failed.of(problem), details={LACKS_SECRET: True})
        return None

    def _is_open(self, launch: Launch) -> bool:
        open = self._connection
        return open is not None and open.alive and open.digest == launch.trust.digest

    async def _opened(self, launch: Launch, end: float, allowed: float) -> Connection | Failed:
        clock = asyncio.get_running_loop().time
        began = clock()
        missing = None if self._is_open(launch) else await self._lacking()
        if missing is not None:
            return missing
        end += clock() - began
        connection = await self._connected(launch)
        failed = await connection.ready(end - clock(), allowed)
        return failed or connection

    async def _connected(self, launch: Launch) -> Connection:
        """The one connection; concurrent callers share it."""
        async with self._lock:
            connection = self._connection
            if connection is not None and self._is_open(launch):
                return connection
            if connection is not None:
                await connection.stop()
            self._connection = Connection(self.server.name, self._transport(launch), launch.trust.digest)
            return self._connection

    def _transport(self, launch: Launch) -> Transport:
        if self.server.command:
            return Pipes(lambda folder: self._spawn(launch, folder))
        return Web(self.server.url, self._headers, self._http_client)

    def _headers(self) -> dict[str, str]:
        server = self.server
        secret = {name: server.header(name, self._reveal(handle)) for name, handle in server.secret_headers.items()}
        return {**server.headers, **secret}

    async def _spawn(self, launch: Launch, folder: str) -> Confined:
        if launch.problem:
            raise BadInput(launch.problem, fix="Correct the server's command or its folder.")
        secret = {name: self._reveal(handle) for name, handle in self.server.secret_env.items()}
        return await self._sandbox.spawn(
            Confinement(
                argv=launch.argv,
                cwd=launch.cwd,
                env={"HOME": folder, "TMPDIR": folder, **launch.env, **secret},
                writable=(str(self._workspace), folder),
                readable=(launch.cwd, *launch.readable),
                hidden=self._hidden,
                fixed=self._fixed,
                network=self.server.network,
                limits=self._limits,
            )
        )


def mcp_servers(
    servers: Iterable[McpServer],
    *,
    sandbox: Sandbox,
    workspace: Path,
    reveal: Callable[[str], str] = no_secrets,
    granted: Granted = nothing_granted,
    http_client: HttpClientFactory | None = None,
) -> dict[str, McpTools]:
    """The servers by name, ready for the toolbox."""
    made: dict[str, McpTools] = {}
    for server in servers:
        if server.name in made:
            raise BadInput(f"There are two tool servers named '{server.name}'.", fix="Rename one of them.")
        made[server.name] = McpTools(
            server, sandbox=sandbox, workspace=workspace, reveal=reveal, granted=granted, http_client=http_client
        )
    return made


class _Unseen:
    """A tool of a server that is not approved yet: nothing is known about it, and nothing is started for it."""

    reads_only = False
    idempotent = False
    takes_secrets = True

    def __init__(self, server: McpServer, tool: str, trust: Trust) -> None:
        self.spec = ToolSpec(f"{server.name}.{tool}", "", {})
        self._server = server
        self._trust = trust

    async def describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return Description(
            actions=actions_of(self._server, reads_only=False),
            summary=f"Call {self.spec.name}",
            preview={"arguments": as_json(arguments)},
            bound={"server": self._trust.digest},
            trusts=(self._trust,),
        )

    async def call(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return _not_trusted(self._server)


class _Seen:
    """A tool as its server lists it."""

    takes_secrets = True

    def __init__(self, tools: McpTools, listed: Listed, connection: Connection, server_trust: Trust) -> None:
        name = f"{tools.server.name}.{listed.name}"
        self.spec = ToolSpec(name, listed.description or "", listed.input_schema)
        self.listed = listed
        self.connection = connection
        self.trust = _tool_trust(name, f"{tools.server.identity}.{listed.name}", listed)
        self._tools = tools
        self._server_trust = server_trust

    @property
    def reads_only(self) -> bool:
        hints = self.listed.annotations if self._tools.server.trusted else None
        return hints is not None and bool(hints.read_only_hint)

    @property
    def idempotent(self) -> bool:
        hints = self.listed.annotations if self._tools.server.trusted else None
        return hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)

    async def describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return Description(
            actions=actions_of(self._tools.server, reads_only=self.reads_only),
            summary=f"Call {self.spec.name}",
            preview={"arguments": as_json(arguments), "tool": self.spec.description},
            bound={"server": self._server_trust.digest, "tool": self.trust.digest},
            trusts=(self._server_trust, self.trust),
        )

    async def call(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return await self._tools.call(self, arguments, call)

    def changed(self) -> Failed:
        return Failed(
            "tool_changed",
            f"The description of the tool '{self.spec.name}' has changed since the call was approved.",
            fix="Run the step again to review the new description.",
            details={"server": self._tools.server.name, "tool": self.trust.digest},
        )


def _tool_trust(name: str, identity: str, listed: Listed) -> Trust:
    shown = listed_as(listed)
    preview = {"tool": name, "description": listed.description or "(none)", "arguments": as_json(listed.input_schema)}
    preview |= {part: as_json(shown[part]) for part in ("title", "annotations") if shown[part]}
    return Trust(
        subject=f"mcp tool {identity}",
        digest=digest_of_tool(listed),
        prompt=f"The description of '{name}' has changed since it was first seen. Keep using it?",
        preview=preview,
        ask_first=False,
    )


def _not_trusted(server: McpServer) -> Failed:
    return Failed(
        "not_trusted",
        f"The tool server '{server.name}' is not the one that was approved, so it was not started.",
        fix="Run the step again to approve the server.",
        details={"server": server.name},
    )


def actions_of(server: McpServer, *, reads_only: bool) -> tuple[Action, ...]:
    """The actions of every use of the server."""
    # The server's secrets were approved together with it; they are listed so that a policy can still deny them.
    secrets = tuple(Action("secret", handle, reads_only=True) for handle in server.handles)
    if server.url:
        return (Action("egress", f"POST {server.place}", reads_only), *secrets)
    # The same goes for network access, which a configured server gets from its configuration.
    return (Action("tool", "network", reads_only=True), *secrets) if server.brought and server.network else secrets


_UNHEARD = ("timeout", "server_failed", "dropped", "bad_result")
"""Failures after which it is unknown whether the tool did something, unless the call was never sent."""


def _may_repeat(answer: Failed, tool: _Seen, connection: Connection) -> bool:
    if connection.alive or answer.code != "dropped":
        return False
    return answer.details.get("sent") is False or tool.idempotent


def _passing(answer: Failed, tool: _Seen) -> bool:
    return answer.code in ("timeout", "dropped") and tool.idempotent

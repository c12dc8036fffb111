"""The tools of one process: agent tools, Python functions, skills and tool servers, as configured.

Loaded at the first effect that uses tools, or at startup if the configuration defines any.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuebook.config.tools import ToolServer
from cuebook.gate.sandbox import clear
from cuebook.kernel.effects import CallTool, ServerSpec, ToolSpec
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import EVERYWHERE, Call, Description
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import WORKTREE as WORKTREE_TOOLS
from cuebook.kernel.tool_names import WORKTREE_JOIN
from cuebook.performers import private_files
from cuebook.performers.agent_tools import Acts, Jobs, SearchProvider, agent_tools
from cuebook.performers.agents.client_requests import ClientRequests
from cuebook.performers.mcp import McpPrompts, McpServer, McpTools, checked_client
from cuebook.performers.tools.functions import python_tool
from cuebook.performers.tools.toolbox import SimpleTool, Tool, Toolbox
from cuebook.performers.worktrees.placement import Placed
from cuebook.performers.worktrees.tools import WorktreeTools
from cuebook.system.folders import data_folder

if TYPE_CHECKING:
    from cuebook.wiring.performers import PerformerFactory


class Tools(Toolbox):
    """Every tool that a playbook can call."""

    def __init__(self, factory: PerformerFactory, commands: Acts | None, worktree: str = "") -> None:
        """`commands` runs the commands of agent tools; without it, there are no agent tools. They work in the folder of a
        worktree, or in the workspace if the name is empty.
        """
        self._factory = factory
        self._workspace: Path = factory.worktrees.folder(worktree) if worktree else factory.workspace.folder
        self._placed: Placed[Tools] | None = None
        """The tools of the runs that have a worktree of their own."""
        if not worktree:
            self._placed = Placed(lambda name: Tools(factory, commands, name), factory.worktrees.opened)
        reach = factory.config.reach
        self._jobs: Jobs | None = None
        tools = [] if commands is None else self._agent_tools(commands)
        tools += [*(_function(name, path) for name, path in reach.functions.items()), *factory.given_tools]
        taken = {tool.spec.name for tool in tools}
        # A user's tool replaces a skill's tool of the same name.
        skills = factory.skills.tools(factory.http, factory.reveal, ready=factory.vault.ready)
        tools += [tool for tool in skills if tool.spec.name not in taken]
        servers = {name: self._mcp_tools(_server(server)) for name, server in reach.servers.items()}
        super().__init__(tools, servers, lambda spec: self._mcp_tools(self._server_of(spec)))
        self.prompts = McpPrompts(servers)

    def _agent_tools(self, commands: Acts) -> list[Tool]:
        factory = self._factory
        search = factory.config.reach.search
        self._jobs = Jobs(commands, data_folder(factory.environ) / private_files.JOBS, clear)
        requests = ClientRequests(self._workspace, commands).tools()
        requests += WorktreeTools(factory.worktrees).tools()
        return requests + agent_tools(
            self._workspace,
            commands=commands,
            jobs=self._jobs,
            http=factory.http,
            search=None if search is None else SearchProvider(search.provider, url=search.url, key=search.key),
            reveal=factory.vault.resolve,
            most_seconds=factory.config.get("limits.max_seconds"),
        )

    async def describe(self, effect: CallTool, settings: Settings) -> Description | Failed:
        found = self._of(effect, settings)
        if found is None or isinstance(found, Failed):
            return found or await super().describe(effect, settings)
        return await found.describe(effect, settings)

    async def perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        if effect.tool == WORKTREE_JOIN and self._placed is not None:
            await self._leave_branch(str(effect.arguments.get("branch")), call.run)
        found = self._of(effect, call.settings)
        if found is None or isinstance(found, Failed):
            return found or await super().perform(effect, call)
        return await found.perform(effect, call)

    async def _leave_branch(self, worktree: str, run: str) -> None:
        """Ends the background jobs in the worktree of a parallel branch, which is about to be merged."""
        assert self._placed is not None
        tools = self._placed.made.get(worktree)
        if tools is not None:
            await tools.leave(run)

    def _of(self, effect: CallTool, settings: Settings) -> Tools | Failed | None:
        """The tools in the run's own worktree; None if these are the ones to use."""
        if self._placed is None or effect.tool in WORKTREE_TOOLS:
            return None
        return self._placed.of(settings)

    async def leave(self, run: str) -> None:
        """Ends the background jobs of a run."""
        if self._jobs is not None:
            await self._jobs.leave(run)
        for tools in self._placed.made.values() if self._placed is not None else ():
            await tools.leave(run)

    async def close(self) -> None:
        for tools in self._placed.made.values() if self._placed is not None else ():
            await tools.close()
        if self._jobs is not None:
            await self._jobs.close()
        await super().close()

    def _mcp_tools(self, server: McpServer) -> McpTools:
        factory = self._factory
        return McpTools(
            server,
            sandbox=factory.sandbox,
            workspace=self._workspace,
            reveal=factory.vault.resolve,
            ready=factory.vault.ready,
            granted=factory.policy.granted,
            hidden=factory.workspace.hidden_paths(),
            fixed=factory.workspace.fixed_paths(),
            http_client=checked_client(private=factory.policy.names_private),
        )

    def _server_of(self, spec: ServerSpec) -> McpServer:
        """A server that a playbook defines. Most servers need the network, so approving a server also approves its
        network access, and the question says so. A variable that is not set here is not passed on.
        """
        environ = self._factory.environ
        return McpServer(
            spec.name,
            command=spec.command,
            secret_env={name: f"env:{name}" for name in spec.env_names if environ.get(name)},
            url=spec.url,
            headers=spec.headers,
            secret_headers={use.at: use.handle for use in spec.secret_headers},
            forms={use.at: use.form for use in spec.secret_headers},
            network=EVERYWHERE if spec.command else (),
            brought=True,
        )


def _server(server: ToolServer) -> McpServer:
    return McpServer(
        server.name,
        command=server.command,
        env=server.env,
        secret_env=server.secret_env,
        cwd=server.cwd,
        url=server.url,
        headers=server.headers,
        secret_headers=server.secret_headers,
        trusted=server.trusted,
        network=server.network,
    )


def _function(name: str, path: str) -> Tool:
    """A Python tool. If it cannot be loaded, it fails with the reason when it is called."""
    try:
        return load_function(name, path)
    except BadInput as error:
        why = Failed("tool_unavailable", error.message, fix=error.fix)

    async def describe(arguments: dict[str, Any], settings: Settings) -> Failed:
        return why

    async def run(arguments: dict[str, Any], call: Call) -> Failed:
        return why

    return SimpleTool(ToolSpec(name, why.message, {}), run, describe)


def load_function(name: str, path: str) -> Tool:
    """Loads a function listed under `[tools]` as a tool. Raises `BadInput` if it is missing or cannot be a tool."""
    module, _, function = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # importing a module can raise anything
        said = str(error) or type(error).__name__
        raise BadInput(
            f"The tool '{name}' cannot be loaded from {path}: {said.rstrip('.')}.",
            fix="Install the module where Cuebook runs, or correct [tools] in cuebook.toml.",
        ) from None
    if not callable(found):
        raise BadInput(
            f"The tool '{name}' cannot be loaded from {path}: it is not a function.",
            fix="Correct [tools] in cuebook.toml.",
        )
    try:
        return python_tool(found, name=name)
    except (TypeError, ValueError) as error:  # some of Python's own functions have no signature
        raise BadInput(
            f"The tool '{name}' cannot be created from {path}: {error}.", fix="Wrap it in a function with type hints."
        ) from None

"""Builds everything through which a playbook reaches the world: performers, sandbox, secrets, policy and the gate.

Nothing is started here: a sandbox, a tool server or a connection comes up when it is first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuebook.config import DEFAULT, Config, config_folder
from cuebook.config.reach import ToolServer
from cuebook.gate.gate import Gate
from cuebook.gate.limits import Ceilings
from cuebook.gate.logs import guard_logs
from cuebook.gate.policy import Layer, Policy, bundle_from, find, load_layer, names_host, trust_subject
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sandbox import choose
from cuebook.gate.secrets import SHORTEST, SecretProblem, SecretUnreadable, Vault
from cuebook.kernel.confinement import Limits, Sandbox
from cuebook.kernel.effects import (
    AskModel,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    RunPython,
    Send,
    SendHttp,
    ServerSpec,
    ToolSpec,
)
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Call, Description, Performer, Store
from cuebook.kernel.run import Settings
from cuebook.performers.addresses import parse_url
from cuebook.performers.agent_tools import SearchProvider, agent_tools
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.http import HttpPerformer
from cuebook.performers.mcp import McpPrompts, McpServer, McpTools, checked_client
from cuebook.performers.messages import MessagePerformer
from cuebook.performers.python import python_tool
from cuebook.performers.python_playbooks import PythonPerformer
from cuebook.performers.skills import Configured, Skills
from cuebook.performers.sources import BroughtTools, ListTools, ServedPrompts, SourcePerformer
from cuebook.performers.tools import SimpleTool, Tool, Toolbox
from cuebook.surfaces.keys import Keys, backend

TENANT = "local"

_REACH = {"The workspace": "commands and file tools", "The playbook's folder": "its file prompts"}
_ELSEWHERE = {
    "The workspace": "Work in a folder of the project, or set `workspace` (CUEBOOK_WORKSPACE) to one.",
    "The playbook's folder": "Move the playbook and its files into a folder of their own.",
}


class Reaching:
    """What one process reaches the world with."""

    def __init__(
        self,
        config: Config,
        keys: Keys,
        environ: Mapping[str, str] | None = None,
        *,
        tools: Iterable[Tool] = (),
    ) -> None:
        """`tools` are there besides the configured ones."""
        self.config = config
        self._given_tools = tuple(tools)
        self.environ = os.environ if environ is None else environ
        self.redactor = SecretRedactor()
        self.vault = Vault(
            environ=self.environ,
            keyring=in_keyring(keys),
            names=self._configured_handles,
            redactor=self.redactor,
        )
        keys.on_found = self._found_key
        self.sandbox: Sandbox = choose(config.get("sandbox"))
        self.http = HttpPerformer(private=self._private)
        told = {name: Configured(one.values, one.where) for name, one in config.reach.skills.items()}
        self.skills = Skills(self.environ, told, roots=self._skill_roots)
        self._known_parts: set[str] = set()
        self._store: Store | None = None
        self._policy = Policy(())
        self._policy_seen: tuple[Any, ...] | None = None
        """What the policy was read from: files as they were, and whether they were trusted."""

    # --- the parts ---

    def performers(self, model: Performer) -> dict[type[Effect], Performer]:
        workspace: Path = self.config.get("workspace")
        made: dict[type[Effect], Any] = {
            AskModel: model,
            SendHttp: self.http,
            Send: MessagePerformer(),
            RunPython: PythonPerformer(self.sandbox),
        }
        problem = self.unfit(workspace)
        if problem is not None:
            commands: Any = _Nothing(problem)
            tools: list[Tool] = []
        else:
            commands = CommandPerformer(
                self.sandbox,
                workspace,
                pass_env=self.config.get("pass_env"),
                hidden=self._hidden(),
                fixed=self._fixed(),
            )
            tools = list(
                agent_tools(
                    workspace,
                    commands=commands,
                    http=self.http,
                    search=self._search(),
                    reveal=self.vault.resolve,
                    most_seconds=self.config.get("limits.max_seconds"),
                )
            )
        made[RunCommand] = commands
        tools += [*self._functions(), *self._given_tools]
        taken = {tool.spec.name for tool in tools}
        # What the user calls by the name of a skill's tool is used instead of it.
        tools += [tool for tool in self.skills.tools(self.http, self._reveal) if tool.spec.name not in taken]
        servers = self._servers(workspace)
        self.tools = Toolbox(tools, servers, lambda spec: self._mcp_tools(self._brought(spec), workspace))
        made[CallTool] = self.tools
        made[ReadSource] = self.sources(self.tools.specs, McpPrompts(servers), self.tools)
        return made

    def sources(
        self,
        tools: ListTools | None = None,
        served: ServedPrompts | None = None,
        brought: BroughtTools | None = None,
    ) -> SourcePerformer:
        """Reads texts; those of tool servers, and what tools there are, if it is told how."""
        workspace: Path = self.config.get("workspace")
        prompts: Path | None = self.config.get("prompts")
        return SourcePerformer(
            [] if self.unfit(workspace) is not None else [workspace],
            http=self.http,
            prompts=[] if prompts is None else [prompts],
            tools=tools,
            brought=brought,
            skills=self.skills,
            served=served,
            unfit=lambda folder: self.unfit(folder, "The playbook's folder"),
        )

    def gate(self, performers: Mapping[type[Effect], Performer], store: Store) -> Gate:
        self._store = store
        guard_logs(self.redactor)
        return Gate(
            performers,
            store,
            self.today,
            self.vault,
            redactor=self.redactor,
            ceilings=self.ceilings(),
            workspace=self.workspace,
        )

    @property
    def workspace(self) -> str:
        """The real path of the folder that commands and file tools are bound to."""
        workspace: Path = self.config.get("workspace")
        return os.path.realpath(workspace)

    async def today(self, tenant: str) -> Policy:
        """The policy files as they are now."""
        assert self._store is not None
        trusts = await self._store.kept(tenant, "trust")

        def trusted(path: Path, digest: str) -> bool:
            return trusts.get(trust_subject(path), {}).get("digest") == digest

        found = find(config_folder(self.environ), self.config.folder)
        own = self._own_layer()
        seen = tuple(_seen(one.path, trusts) for one in found)
        if seen != self._policy_seen:
            self._policy = Policy((*own, *(load_layer(one, trusted) for one in found)))
            self._policy_seen = seen
        return self._policy

    def learn(self, handles: Iterable[str]) -> None:
        """Makes the redactor know these secrets, those that are configured, and of addresses among these their parts."""
        self.vault.learn(handles)
        for handle in self.skills.handles:
            with suppress(SecretProblem, BadInput):
                self._know_parts(handle)

    # --- inside ---

    def ceilings(self) -> Ceilings:
        """What effects are given, and the most that they can ask for."""
        of = self.config.get
        limits = Limits(
            seconds=of("limits.seconds"),
            output=of("limits.output"),
            cpu_seconds=of("limits.cpu_seconds"),
            memory=of("limits.memory"),
            processes=of("limits.processes"),
        )
        follows = self.config.origin("limits.cpu_seconds") == DEFAULT
        return Ceilings(limits, of("limits.max_seconds"), of("limits.max_output"), follows)

    def _hidden(self) -> list[Path]:
        """The store and what belongs to it. Whoever could write them could approve what they like."""
        store: Path = self.config.get("store")
        return [store.with_name(store.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".key")]

    def _fixed(self) -> list[Path]:
        """What stays as it is even inside the workspace: whoever could write there would run as Cuebook next time."""
        return [Path(sys.prefix), Path(__file__).parents[1], config_folder(self.environ)]

    def _own_layer(self) -> list[Layer]:
        """Keeps the tools for files away from a store that lies in the workspace."""
        if not self.store_in_workspace:
            return []
        name = os.path.relpath(os.path.realpath(self.config.get("store")), self.workspace)
        denied = [f"{mode}:{name}{rest}" for mode in ("read", "write") for rest in ("", "-*", ".key")]
        return [Layer("user", "the store of runs", bundle_from({"files": {"deny": denied}}), may_allow=True)]

    @property
    def store_in_workspace(self) -> bool:
        store: Path = self.config.get("store")
        return Path(os.path.realpath(store)).is_relative_to(self.workspace)

    def unfit(self, workspace: Path, what: str = "The workspace") -> Failed | None:
        """A workspace is writable for what runs in it: that must not be everything a person has."""
        real = Path(os.path.realpath(workspace))
        home = Path(os.path.realpath(self.environ.get("HOME", "") or os.path.expanduser("~")))
        own = Path(os.path.realpath(config_folder(self.environ)))
        where = ""
        if real == home or real in home.parents:
            where = "your home folder" if real == home else f"{real}, which holds your home folder"
        elif real == own or real in own.parents:
            where = f"{real}, which holds your configuration of Cuebook"
        if where:
            return Failed(
                "no_workspace",
                f"{what} is {where}: {_REACH[what]} would reach everything in it.",
                fix=_ELSEWHERE[what],
            )
        if not real.is_dir():
            return Failed("no_workspace", f"{what} {workspace} is no folder.", fix="Create it, or set another.")
        return None

    def _private(self, host: str, port: int) -> bool:
        return names_host([self._policy], host, port)

    def _search(self) -> SearchProvider | None:
        found = self.config.reach.search
        return None if found is None else SearchProvider(found.provider, url=found.url, key=found.key)

    def _functions(self) -> list[Tool]:
        return [_function(name, path) for name, path in self.config.reach.functions.items()]

    def _servers(self, workspace: Path) -> dict[str, McpTools]:
        return {name: self._mcp_tools(_server(server), workspace) for name, server in self.config.reach.servers.items()}

    def _mcp_tools(self, server: McpServer, workspace: Path) -> McpTools:
        return McpTools(
            server,
            sandbox=self.sandbox,
            workspace=workspace,
            reveal=self.vault.resolve,
            granted=self._granted,
            hidden=self._hidden(),
            fixed=self._fixed(),
            http_client=checked_client(private=self._private),
        )

    def _brought(self, spec: ServerSpec) -> McpServer:
        """A server that a playbook brings. Most are of no use without the network, so whoever agrees to one agrees to
        that too, and is told so. A variable that is not set here is not passed on.
        """
        return McpServer(
            spec.name,
            command=spec.command,
            secret_env={name: f"env:{name}" for name in spec.env_names if self.environ.get(name)},
            url=spec.url,
            headers=spec.headers,
            secret_headers={use.at: use.handle for use in spec.secret_headers},
            forms={use.at: use.form for use in spec.secret_headers},
            network=bool(spec.command),
            brought=True,
        )

    def _skill_roots(self, settings: Settings) -> list[Path]:
        """Where skills lie in files: the playbook's own folder, then the workspace."""
        folder, workspace = settings.folder, Path(self.config.get("workspace"))
        own = [Path(folder)] if folder and self.unfit(Path(folder), "The playbook's folder") is None else []
        around = [workspace] if self.unfit(workspace) is None else []
        return own if own and os.path.realpath(own[0]) == os.path.realpath(workspace) else [*own, *around]

    def _reveal(self, handle: str) -> str:
        self._know_parts(handle)
        return self.vault.resolve(handle)

    def _know_parts(self, handle: str) -> None:
        """A secret that is an address is known to policies in its normal form and without its query, so these parts are
        masked as well.
        """
        if not handle.startswith("env:") and handle in self._known_parts:
            return
        value = self.vault.resolve(handle)
        self._known_parts.add(handle)
        if value.lower().startswith(("http://", "https://")):
            url = parse_url(value)
            for part in (url.path, url.query):
                if len(part) >= SHORTEST:
                    self.redactor.add(handle, part)

    async def _granted(self, subject: str, digest: str) -> bool:
        assert self._store is not None
        return (await self._store.kept(TENANT, "trust")).get(subject, {}).get("digest") == digest

    def _configured_handles(self) -> dict[str, str]:
        """Secrets that the configuration gives away to tool servers and the search: masked like all others."""
        reach = self.config.reach
        handles = [handle for server in reach.servers.values() for handle in server.secret_env.values()]
        handles += [handle for server in reach.servers.values() for handle in server.secret_headers.values()]
        handles += [reach.search.key] if reach.search is not None and reach.search.key else []
        handles += self.skills.handles
        return {handle: handle for handle in handles}

    def _found_key(self, handle: str, key: str) -> None:
        if len(key) >= 8:
            self.redactor.add(handle, key)


def _seen(path: Path, trusts: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    status = path.stat()
    trust = trusts.get(trust_subject(path), {}).get("digest")
    return path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, trust


class _Nothing:
    """Stands where a performer would, and says why there is none."""

    def __init__(self, why: Failed) -> None:
        self._why = why

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed:
        return self._why

    async def perform(self, effect: Any, call: Call) -> Failed:
        return self._why


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
    """A Python tool; one that cannot be loaded says so when it is called, and is in nobody's way until then."""
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
    """The function that `[tools]` names, as a tool. `BadInput` if it is not there or cannot be one."""
    module, _, function = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        said = str(error) or type(error).__name__
        raise BadInput(
            f"The tool '{name}' cannot be loaded from {path}: {said.rstrip('.')}.",
            fix="Install the module where Cuebook runs, or correct [tools] in cuebook.toml.",
        ) from None
    if not callable(found):
        raise BadInput(
            f"The tool '{name}' cannot be loaded from {path}: it is no function.",
            fix="Correct [tools] in cuebook.toml.",
        )
    try:
        return python_tool(found, name=name)
    except (TypeError, ValueError) as error:  # some of Python's own functions do not tell what they take
        raise BadInput(
            f"The tool '{name}' cannot be made of {path}: {error}.", fix="Wrap it in a function with type hints."
        ) from None


def in_keyring(keys: Keys) -> Callable[[str], str | None]:
    """Finds secrets in the system's keyring; where there is no keyring that would be no answer, so it is told."""

    def find(name: str) -> str | None:
        found = keys.in_keyring(name, again=True)  # a run may wait until it is there
        if found is None and not backend()[1]:
            raise SecretUnreadable(
                f"The secret keyring:{name} cannot be read: this system has no keyring that Cuebook can use.",
                fix="Use env:NAME or file:PATH instead; `cuebook doctor` shows the keyring.",
            )
        return found

    return find

"""Builds the parts through which a playbook acts: performers, sandbox, secrets and gate.

It starts nothing: a sandbox, a tool server or a connection starts when it is first used. A performer is created, and its
modules are loaded, at the first effect of its kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.config import DEFAULT, Config
from cuebook.gate.gate import Gate
from cuebook.gate.limits import Ceilings
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.redaction.logs import guard_logs
from cuebook.gate.sandbox import choose
from cuebook.gate.secret_managers import Managers, Source, source
from cuebook.gate.secrets import MANAGED, SHORTEST, SecretProblem, Vault
from cuebook.kernel.effects import (
    AskModel,
    Browse,
    CallNode,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    RunPython,
    Send,
    SendHttp,
)
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Call, Description, Limits, Performer, Sandbox, Store
from cuebook.kernel.run import Settings
from cuebook.performers import private_files
from cuebook.performers.models.routing import ModelRouter
from cuebook.performers.skills.settings import Configured, secret_handles, settings_of
from cuebook.system.folders import data_folder
from cuebook.wiring.keys import Keys, in_keyring
from cuebook.wiring.policy import PolicyFiles
from cuebook.wiring.workspace import Workspace

if TYPE_CHECKING:
    from cuebook.config.agents import AgentSettings
    from cuebook.performers.agents.catalogue import Agent, Catalogue
    from cuebook.performers.agents.performer import AgentPerformer
    from cuebook.performers.http.performer import HttpPerformer
    from cuebook.performers.nodes.hub import Hub
    from cuebook.performers.skills.library import Skills
    from cuebook.performers.sources import SourcePerformer
    from cuebook.performers.tools.toolbox import Tool
    from cuebook.performers.worktrees.worktrees import Worktrees
    from cuebook.wiring.tools import Tools


class LazyPerformers(Mapping[type[Effect], Performer]):
    """Performers by kind of effect, each created on first use."""

    def __init__(self, makers: Mapping[type[Effect], Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[type[Effect], Any] = {}

    def __getitem__(self, kind: type[Effect]) -> Any:
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __iter__(self) -> Iterator[type[Effect]]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    async def leave(self, run: str) -> None:
        """Ends the background jobs and the browser of a run."""
        for kind in (CallTool, Browse):
            if kind in self._made and hasattr(self._made[kind], "leave"):
                await self._made[kind].leave(run)

    async def close(self) -> None:
        """Stops the tool servers, the coding agents and the browsers that were started."""
        for kind in (CallTool, AskModel, Browse):
            if kind in self._made and hasattr(self._made[kind], "close"):
                await self._made[kind].close()


class PerformerFactory:
    """Creates the performers of one process, and the sandbox, secrets and gate that they share."""

    def __init__(
        self,
        config: Config,
        keys: Keys,
        environ: Mapping[str, str] | None = None,
        *,
        tools: Iterable[Tool] = (),
    ) -> None:
        """`tools` are added to the configured tools."""
        self.config = config
        self.given_tools = tuple(tools)
        self.environ = os.environ if environ is None else environ
        self.redactor = SecretRedactor()
        self.vault = Vault(
            environ=self.environ,
            keyring=in_keyring(keys),
            names=self._configured_handles,
            redactor=self.redactor,
            managers=managers_of(config, self.environ),
        )
        keys.on_found = self._found_key
        place = config.get("store")
        if not isinstance(place, Path):  # a password in the URL or the driver's variable has no handle
            for value in (*place.secrets.values(), self.environ.get("PGPASSWORD", "")):
                self._found_key("store_password", value)
        self._configured_skills = {name: Configured(one.values, one.where) for name, one in config.reach.skills.items()}
        self._skill_settings = settings_of(self.environ, self._configured_skills)
        self._known_parts: set[str] = set()
        self.workspace = Workspace(config, self.environ)
        self.policy = PolicyFiles(config, self.environ, self.workspace)
        self.sandbox: Sandbox = choose(config.get("sandbox"), self.policy.names_private)

    # --- the parts ---

    def performers(self, model: Performer, store: Callable[[], Store] | None = None) -> LazyPerformers:
        """The performers for every kind of effect. Raises `BadInput` if the tool configuration is invalid. Without a store,
        they only describe what a run would do.
        """
        made = LazyPerformers(
            {
                AskModel: lambda: ModelRouter(model, lambda name: self._agents(problem, name)),
                SendHttp: lambda: self.http,
                Send: _messages,
                RunPython: lambda: _python(self.sandbox),
                RunCommand: lambda: self._commands(problem),
                Browse: lambda: self._browser(problem),
                CallNode: lambda: self._nodes(store),
                CallTool: lambda: self._tools(None if problem is not None else made[RunCommand]),
                ReadSource: lambda: self._sources(made[CallTool]),
            }
        )
        problem = self.workspace.problem
        self._performers = made
        reach = self.config.reach
        if reach.agents:
            self.catalogue  # noqa: B018 -- as below
        if reach.servers or reach.functions or reach.search is not None or self.given_tools:
            made[CallTool]  # a mistake in the configuration is reported before a run starts
        return made

    @property
    def tools(self) -> Tools:
        """The tools of the most recently created performers."""
        tools: Tools = self._performers[CallTool]
        return tools

    @cached_property
    def http(self) -> HttpPerformer:
        from cuebook.performers.http.performer import HttpPerformer

        return HttpPerformer(private=self.policy.names_private)

    @cached_property
    def skills(self) -> Skills:
        from cuebook.performers.skills.library import Skills

        return Skills(self.environ, self._configured_skills, settings=self._skill_settings, roots=self._skill_roots)

    @property
    def skill_handles(self) -> list[str]:
        """The handles of the secrets that skills use."""
        return secret_handles(self._skill_settings)

    def _commands(self, problem: Failed | None) -> Any:
        if problem is not None:
            return _Unavailable(problem)
        from cuebook.performers.commands import CommandPerformer
        from cuebook.performers.worktrees.placement import Placed, PlacedCommands

        def made(worktree: str) -> CommandPerformer:
            return CommandPerformer(
                self.sandbox,
                self.worktrees.folder(worktree) if worktree else self.workspace.folder,
                pass_env=self.config.get("pass_env"),
                readable=[str(self.worktrees.store)] if worktree else (),
                hidden=self.workspace.hidden_paths(),
                fixed=self.workspace.fixed_paths(),
                private=self.policy.names_private,
            )

        return PlacedCommands(made(""), Placed(made, self.worktrees.opened))

    def _browser(self, problem: Failed | None) -> Any:
        if problem is not None:
            return _Unavailable(problem)
        from cuebook.performers.browser.performer import BrowserPerformer

        return BrowserPerformer(
            self.sandbox,
            lambda: self.workspace.folder,
            data_folder(self.environ) / private_files.BROWSERS,
            self.environ,
            private=self.policy.names_private,
        )

    def _nodes(self, store: Callable[[], Store] | None) -> Any:
        from cuebook.performers.nodes.performer import NodePerformer

        return NodePerformer(self.hub, store)

    @cached_property
    def hub(self) -> Hub:
        """The nodes that are connected to this process."""
        from cuebook.performers.nodes.hub import Hub

        return Hub()

    def connected(self) -> frozenset[str]:
        """The capabilities that come and go with connections, as they are now."""
        return self.hub.offered() if "hub" in vars(self) else frozenset()

    def remove_private_files(self, run: str) -> None:
        """Removes what performers keep of a run on this machine."""
        private_files.remove_private_files(data_folder(self.environ), run)

    @cached_property
    def worktrees(self) -> Worktrees:
        """The git worktrees of runs."""
        from cuebook.performers.worktrees.worktrees import Worktrees

        home = data_folder(self.environ) / "worktrees"
        return Worktrees(self.workspace.folder, home, self.environ, self.redactor.value)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The coding agents, as configured."""
        from cuebook.performers.agents.catalogue import Catalogue

        return Catalogue({name: _agent(one) for name, one in self.config.reach.agents.items()}, self.environ)

    def _agents(self, problem: Failed | None, worktree: str = "") -> AgentPerformer:
        from cuebook.performers.agents.homes import Homes
        from cuebook.performers.agents.performer import AgentPerformer

        if worktree and problem is None:
            missing = self.worktrees.opened(worktree)
            problem = missing if isinstance(missing, Failed) else None
        return AgentPerformer(
            self.catalogue,
            self.sandbox,
            self.worktrees.folder(worktree) if worktree else Path(self.workspace.path),
            Homes(data_folder(self.environ) / private_files.AGENTS),
            reveal=self.vault.revealed,
            learn=lambda secret: self.redactor.add("agent", secret),
            hidden=self.workspace.hidden_paths(),
            fixed=self.workspace.fixed_paths(),
            readable=[self.worktrees.store] if worktree else (),
            problem=problem,
        )

    def _tools(self, commands: Any) -> Tools:
        from cuebook.wiring.tools import Tools

        return Tools(self, commands)

    def _sources(self, tools: Tools) -> SourcePerformer:
        from cuebook.performers.sources import SourcePerformer

        prompts: Path | None = self.config.get("prompts")
        return SourcePerformer(
            [] if self.workspace.problem is not None else [self.workspace.folder],
            http=self.http,
            prompts=[] if prompts is None else [prompts],
            tools=tools.specs,
            brought=tools,
            skills=self.skills,
            served=tools.prompts,
            unfit=lambda folder: self.workspace.unfit(folder, "The playbook's folder"),
        )

    def gate(self, performers: Mapping[type[Effect], Performer], store: Store) -> Gate:
        self.policy.store = store
        guard_logs(self.redactor)
        return Gate(
            performers,
            store,
            self.policy.today,
            self.vault,
            redactor=self.redactor,
            ceilings=self.ceilings(),
            workspaces=self.workspace.names,
            confined=self.config.get("sandbox") != "none",
            clock=store.now,
        )

    def learn(self, handles: Iterable[str]) -> None:
        """Makes the redactor mask these secrets and the configured secrets, and the parts of any that are URLs."""
        self.vault.learn(handles)
        for handle in (one for one in self.skill_handles if not one.startswith(MANAGED)):  # their managers may be slow
            with suppress(SecretProblem, BadInput):
                self._know_parts(handle)

    # --- inside ---

    def ceilings(self) -> Ceilings:
        """The limits for effects, and the maximum that a playbook can request."""
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

    def _skill_roots(self, settings: Settings) -> list[Path]:
        """The folders with skill files: the playbook's folder, then the workspace."""
        folder, workspace = settings.folder, self.workspace.folder
        own = [Path(folder)] if folder and self.workspace.unfit(Path(folder), "The playbook's folder") is None else []
        around = [workspace] if self.workspace.problem is None else []
        return own if own and os.path.realpath(own[0]) == os.path.realpath(workspace) else [*own, *around]

    def reveal(self, handle: str) -> str:
        self._know_parts(handle)
        return self.vault.resolve(handle)

    def _know_parts(self, handle: str) -> None:
        """Masks the parts of a secret that is a URL, because policies see it normalised and without its query."""
        if not handle.startswith("env:") and handle in self._known_parts:
            return
        value = self.vault.resolve(handle)
        self._known_parts.add(handle)
        if value.lower().startswith(("http://", "https://")):
            from cuebook.formats.addresses import parse_url

            url = parse_url(value)
            for part in (url.path, url.query):
                if len(part) >= SHORTEST:
                    self.redactor.add(handle, part)

    def _configured_handles(self) -> dict[str, str]:
        """The secrets that the configuration passes to tool servers, skills and web search. They are masked too."""
        reach = self.config.reach
        handles = [handle for server in reach.servers.values() for handle in server.secret_env.values()]
        handles += [handle for server in reach.servers.values() for handle in server.secret_headers.values()]
        handles += [reach.search.key] if reach.search is not None and reach.search.key else []
        handles += self.skill_handles
        if reach.agents:
            handles += [handle for agent in self.catalogue.configured for handle in agent.handles]
        return {handle: handle for handle in handles}

    def _found_key(self, handle: str, key: str) -> None:
        if len(key) >= 8:
            self.redactor.add(handle, key)


def managers_of(config: Config, environ: Mapping[str, str]) -> Managers:
    """The secrets that the configuration names. Raises `BadInput`, with the line, if one cannot be parsed."""
    sources: dict[str, Source] = {}
    for name, one in config.reach.secrets.items():
        try:
            sources[name] = source(one.handle)
        except BadInput as error:
            raise BadInput(f"{one.where}: {error.message}", fix=error.fix) from None
    return Managers(sources, environ)


class _Unavailable:
    """Replaces a performer that cannot be created; every effect fails with the reason."""

    def __init__(self, why: Failed) -> None:
        self._why = why

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed:
        return self._why

    async def perform(self, effect: Any, call: Call) -> Failed:
        return self._why


def _agent(settings: AgentSettings) -> Agent:
    """The configured agent: the built-in one of that name with these settings, or a new one."""
    from cuebook.performers.agents.catalogue import BUILT_IN, Agent

    names = (
        "command",
        "hosts",
        "secret_env",
        "secret_files",
        "readable",
        "sign_in",
        "seconds",
        "stays",
        "memory",
        "processes",
    )
    given = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    built_in = BUILT_IN.get(settings.name)
    if built_in is None and "command" not in given:
        raise BadInput(
            f"{settings.where}: the coding agent '{settings.name}' has no command.",
            fix='Add one, for example command = ["my-agent", "--acp"].',
        )
    if built_in is None:
        return Agent(name=settings.name, env=dict(settings.env or {}), **given)
    return msgspec.structs.replace(built_in, **given, env={**built_in.env, **(settings.env or {})})


def _messages() -> Performer:
    from cuebook.performers.messages import MessagePerformer

    return MessagePerformer()


def _python(sandbox: Sandbox) -> Performer:
    from cuebook.performers.python.performer import PythonPerformer

    return PythonPerformer(sandbox)

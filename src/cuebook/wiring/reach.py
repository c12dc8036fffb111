"""Builds the parts through which a playbook acts: performers, sandbox, secrets, policy and gate.

It starts nothing: a sandbox, a tool server or a connection starts at its first use. A performer is made, and its modules
are loaded, at the first effect of its kind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuebook.config import DEFAULT, Config, config_folder
from cuebook.gate.gate import Gate
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import Layer, Policy, bundle_from, find, load_layer, names_host, trust_subject
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.redaction.logs import guard_logs
from cuebook.gate.sandbox import choose
from cuebook.gate.secrets import SHORTEST, SecretProblem, SecretUnreadable, Vault
from cuebook.kernel.effects import (
    AskModel,
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
from cuebook.performers.skills.settings import Configured, secret_handles, settings_of
from cuebook.wiring.keys import Keys, backend

if TYPE_CHECKING:
    from cuebook.performers.http.performer import HttpPerformer
    from cuebook.performers.skills.library import Skills
    from cuebook.performers.sources import SourcePerformer
    from cuebook.performers.tools.toolbox import Tool
    from cuebook.wiring.tools import Tools

TENANT = "local"

_REACH = {"The workspace": "commands and file tools", "The playbook's folder": "its file prompts"}
_ELSEWHERE = {
    "The workspace": "Work in a folder of the project, or set `workspace` (CUEBOOK_WORKSPACE) to one.",
    "The playbook's folder": "Move the playbook and its files into a folder of their own.",
}


class LazyPerformers(Mapping[type[Effect], Performer]):
    """Performers by kind of effect, each made when it is first looked up."""

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

    async def close(self) -> None:
        """Ends the tool servers that were started."""
        if CallTool in self._made:
            await self._made[CallTool].close()


class Reaching:
    """The performers, sandbox, secrets, policy and gate of one process."""

    def __init__(
        self,
        config: Config,
        keys: Keys,
        environ: Mapping[str, str] | None = None,
        *,
        tools: Iterable[Tool] = (),
    ) -> None:
        """`tools` are added to the configured ones."""
        self.config = config
        self.given_tools = tuple(tools)
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
        self._configured_skills = {name: Configured(one.values, one.where) for name, one in config.reach.skills.items()}
        self._skill_settings = settings_of(self.environ, self._configured_skills)
        self._known_parts: set[str] = set()
        self._store: Store | None = None
        self._policy = Policy(())
        self._policy_seen: tuple[Any, ...] | None = None
        """The state of the policy files when they were read, and whether they were trusted."""

    # --- the parts ---

    def performers(self, model: Performer) -> LazyPerformers:
        """The performers of every kind of effect. Raises `BadInput` for an invalid configuration of tools."""
        made = LazyPerformers(
            {
                AskModel: lambda: model,
                SendHttp: lambda: self.http,
                Send: _messages,
                RunPython: lambda: _python(self.sandbox),
                RunCommand: lambda: self._commands(problem),
                CallTool: lambda: self._tools(None if problem is not None else made[RunCommand]),
                ReadSource: lambda: self._sources(made[CallTool]),
            }
        )
        problem = self.unfit(self.config.get("workspace"))
        self._performers = made
        reach = self.config.reach
        if reach.servers or reach.functions or reach.search is not None or self.given_tools:
            made[CallTool]  # a mistake in the configuration is reported before a run starts
        return made

    @property
    def tools(self) -> Tools:
        """The tools of the performers that were made last."""
        tools: Tools = self._performers[CallTool]
        return tools

    @cached_property
    def http(self) -> HttpPerformer:
        from cuebook.performers.http.performer import HttpPerformer

        return HttpPerformer(private=self.names_private)

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

        return CommandPerformer(
            self.sandbox,
            self.config.get("workspace"),
            pass_env=self.config.get("pass_env"),
            hidden=self.hidden_paths(),
            fixed=self.fixed_paths(),
        )

    def _tools(self, commands: Any) -> Tools:
        from cuebook.wiring.tools import Tools

        return Tools(self, commands)

    def _sources(self, tools: Tools) -> SourcePerformer:
        from cuebook.performers.sources import SourcePerformer

        workspace: Path = self.config.get("workspace")
        prompts: Path | None = self.config.get("prompts")
        return SourcePerformer(
            [] if self.unfit(workspace) is not None else [workspace],
            http=self.http,
            prompts=[] if prompts is None else [prompts],
            tools=tools.specs,
            brought=tools,
            skills=self.skills,
            served=tools.prompts,
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
        """The real path of the folder to which commands and file tools are confined."""
        workspace: Path = self.config.get("workspace")
        return os.path.realpath(workspace)

    async def today(self, tenant: str) -> Policy:
        """The current policy, read from its files."""
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
        """Makes the redactor mask these secrets, the configured ones, and the parts of those that are URLs."""
        self.vault.learn(handles)
        for handle in self.skill_handles:
            with suppress(SecretProblem, BadInput):
                self._know_parts(handle)

    # --- inside ---

    def ceilings(self) -> Ceilings:
        """The limits of effects, and the most that a playbook can ask for."""
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

    def hidden_paths(self) -> list[Path]:
        """The store and its files. A process that could write them could approve anything."""
        store: Path = self.config.get("store")
        return [store.with_name(store.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".key")]

    def fixed_paths(self) -> list[Path]:
        """Folders that are read-only even inside the workspace: code written there would run as Cuebook next time."""
        return [Path(sys.prefix), Path(__file__).parents[1], config_folder(self.environ)]

    def _own_layer(self) -> list[Layer]:
        """A policy layer that denies file tools a store inside the workspace."""
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
        """Why a folder cannot be a workspace: commands can write in it, and it must not hold the home folder."""
        real = Path(os.path.realpath(workspace))
        home = Path(os.path.realpath(self.environ.get("HOME", "") or os.path.expanduser("~")))
        own = Path(os.path.realpath(config_folder(self.environ)))
        where = ""
        if real == home or real in home.parents:
            where = "your home folder" if real == home else f"{real}, which holds your home folder"
        elif real == own or real in own.parents:
            where = f"{real}, which holds your Cuebook configuration"
        if where:
            return Failed(
                "no_workspace",
                f"{what} is {where}: {_REACH[what]} would reach everything in it.",
                fix=_ELSEWHERE[what],
            )
        if not real.is_dir():
            return Failed("no_workspace", f"{what} {workspace} is not a folder.", fix="Create it or choose another.")
        return None

    def names_private(self, host: str, port: int) -> bool:
        return names_host([self._policy], host, port)

    def _skill_roots(self, settings: Settings) -> list[Path]:
        """The folders with skill files: the playbook's folder, then the workspace."""
        folder, workspace = settings.folder, Path(self.config.get("workspace"))
        own = [Path(folder)] if folder and self.unfit(Path(folder), "The playbook's folder") is None else []
        around = [workspace] if self.unfit(workspace) is None else []
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
            from cuebook.performers.http.addresses import parse_url

            url = parse_url(value)
            for part in (url.path, url.query):
                if len(part) >= SHORTEST:
                    self.redactor.add(handle, part)

    async def granted(self, subject: str, digest: str) -> bool:
        assert self._store is not None
        return (await self._store.kept(TENANT, "trust")).get(subject, {}).get("digest") == digest

    def _configured_handles(self) -> dict[str, str]:
        """The secrets that the configuration passes to tool servers, skills and the search. They are masked, too."""
        reach = self.config.reach
        handles = [handle for server in reach.servers.values() for handle in server.secret_env.values()]
        handles += [handle for server in reach.servers.values() for handle in server.secret_headers.values()]
        handles += [reach.search.key] if reach.search is not None and reach.search.key else []
        handles += self.skill_handles
        return {handle: handle for handle in handles}

    def _found_key(self, handle: str, key: str) -> None:
        if len(key) >= 8:
            self.redactor.add(handle, key)


def _seen(path: Path, trusts: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    status = path.stat()
    trust = trusts.get(trust_subject(path), {}).get("digest")
    return path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, trust


class _Unavailable:
    """Replaces a performer that cannot be made; every effect fails with the reason."""

    def __init__(self, why: Failed) -> None:
        self._why = why

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed:
        return self._why

    async def perform(self, effect: Any, call: Call) -> Failed:
        return self._why


def _messages() -> Performer:
    from cuebook.performers.messages import MessagePerformer

    return MessagePerformer()


def _python(sandbox: Sandbox) -> Performer:
    from cuebook.performers.python.performer import PythonPerformer

    return PythonPerformer(sandbox)


def in_keyring(keys: Keys) -> Callable[[str], str | None]:
    """Returns a function that finds secrets in the system's keyring, and raises an error if there is no keyring."""

    def find(name: str) -> str | None:
        found = keys.in_keyring(name, again=True)  # a run may wait until it is there
        if found is None and not backend()[1]:
            raise SecretUnreadable(
                f"The secret keyring:{name} cannot be read: this system has no keyring that Cuebook can use.",
                fix="Use env:NAME or file:PATH instead; `cuebook doctor` shows the keyring.",
            )
        return found

    return find

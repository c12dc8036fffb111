"""Loads the configuration: built-in values, then the files, the environment and the flags; later sources win."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuebook.config import tools
from cuebook.config.providers import Provider, check_choice, read_providers
from cuebook.config.settings import ENVIRONMENT, HANDLES, KINDS, checked
from cuebook.config.source import DEFAULT, ConfigFile, Origin, Setting
from cuebook.config.tools import NamedSecret, Reach, Search, SkillSettings, ToolServer
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Budget
from cuebook.kernel.tool_names import confused
from cuebook.system.folders import FILE, config_folder, data_folder, lies_in, project_file, working_folder

if TYPE_CHECKING:
    from cuebook.config.agents import AgentSettings
    from cuebook.config.notifications import Notifications

_BUILT_IN: dict[str, Any] = {
    "synchronous": "FULL",
    "pause_expiry": 24 * 3600.0,
    "sandbox": "auto",
    "pass_env": (),
    "serve.folders": (),
    "worker.at_once": 20,
    "worker.drain": 25.0,
    "host.lease": 600.0,
    "temporal.namespace": "default",
    "temporal.queue": "cuebook",
    "retention.status": (),
    "usage.time_zone": "UTC",
    "access.runs": "all",
    "oidc.scopes": "openid profile email",
    "oidc.name_claim": "preferred_username",
    "oidc.groups_claim": "groups",
    "oidc.admin_groups": (),
    "oidc.approver_groups": (),
    "oidc.runner_groups": (),
    "oidc.viewer_groups": (),
    "oidc.team_groups": (),
    "oidc.session": 8 * 3600.0,
    "oidc.recheck": 1800.0,
    "oidc.local_sign_in": False,
    "oidc.mcp_scopes": (),
    "retention.contents": False,
    "retention.sensitive": 7 * 86400.0,
    "log.format": "text",
    "log.level": "info",
    "log.access": False,
    "otel.texts": False,
    "limits.seconds": 60.0,
    "limits.max_seconds": 300.0,
    "limits.output": 32_768,
    "limits.max_output": 512_000,
    "limits.cpu_seconds": 60,
    "limits.memory": 1 << 30,
    "limits.reply": 8 << 20,
    "limits.processes": 128,
}
"""Default values. Values that depend on the folder are added once it is known."""
_FLAGS = {
    "log.access": "--access-log",
    "metrics.address": "--metrics",
    "temporal.address": "--temporal",
    "temporal.namespace": "--namespace",
    "temporal.queue": "--queue",
}
"""Flags that are not called like their setting."""


@dataclass(frozen=True)
class Config:
    """The configured values, each with its origin."""

    values: Mapping[str, Setting]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    reach: Reach = field(default_factory=Reach)
    notifications: Notifications | None = None
    """None if there is no table [notifications]."""
    user_file: Path | None = None
    project_file: Path | None = None
    """None if neither the working folder nor any of its parents has one."""
    folder: Path = Path()
    """The working folder."""

    def get(self, name: str) -> Any:
        return self.values[name].value

    def origin(self, name: str) -> Origin:
        return self.values[name].origin

    @property
    def budget(self) -> Budget:
        return Budget(*(self.get(f"budget.{part}") for part in ("money", "tokens", "seconds", "steps")))


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    refused: list[BadInput] | None = None,
) -> Config:
    """Reads every source. A flag whose value is None was not set. Creates nothing.

    With `refused`, an invalid handle of a secret is left out and its error is added there, instead of being raised.
    """
    environ = os.environ if environ is None else environ
    folder = working_folder() if folder is None else folder
    layers = _Layers({name: Setting(_BUILT_IN.get(name), DEFAULT) for name in KINDS}, refused)
    values = layers.values
    values["store"] = Setting(data_folder(environ) / "cuebook.db", DEFAULT)

    users = config_folder(environ) / FILE
    projects = project_file(folder)
    if users.is_file():
        layers.add(ConfigFile(users, shared=False))
    if projects is not None and projects != users:
        layers.add(ConfigFile(projects, shared=True))
    for name, variable in ENVIRONMENT.items():
        given = environ.get(variable, "")
        if given.strip():
            values[name] = Setting(layers.checked(name, given, variable), Origin(variable))
    for name, given in (flags or {}).items():
        if given is not None:
            values[name] = checked_flag(name, given)
    around = projects.parent if projects is not None else folder
    if values["workspace"].value is None:
        values["workspace"] = Setting(around, DEFAULT)
    for name in ("prompts", "playbooks"):
        if values[name].value is None and lies_in(around / name, around):
            values[name] = Setting(around / name, DEFAULT)
    for part in ("seconds", "output"):
        _check_most(values, f"limits.{part}", f"limits.max_{part}")
    return Config(values, layers.providers, layers.reach, layers.notifications, users, projects, folder)


def checked_flag(name: str, given: Any) -> Setting:
    """The value of a setting that was passed as a flag. Raises `BadInput` if it is unsuitable or holds a password."""
    flag = _FLAGS.get(name, "--" + name.removeprefix("worker.").replace(".", "-").replace("_", "-"))
    return Setting(_public(checked(name, given, flag), flag), Origin(flag))


def _public(value: Any, where: str) -> Any:
    """A value that others may see, on a command line or in a file, must not hold a password."""
    if getattr(value, "secrets", None):
        raise BadInput(
            f"{where}: the URL of the store contains a password, which others could read there.",
            fix="Leave it out, and set store_password to a secret's handle, or PGPASSWORD or PGPASSFILE.",
        )
    return value


def _check_most(values: Mapping[str, Setting], name: str, most: str) -> None:
    usual, limit = values[name], values[most]
    if usual.value <= limit.value:
        return
    where = limit.origin if usual.origin == DEFAULT else usual.origin

    def said(name: str, value: Setting) -> str:
        return f"{name} is {value.value:g}" + ("" if value.origin == where else f" ({value.origin})")

    raise BadInput(
        f"{where}: {said(name, usual)} and {said(most, limit)}: the limit must not be below the default.",
        fix=f"Raise {most}, or lower {name}.",
    )


# --- files -------------------------------------------------------------------------------------------------

_GUARDED = (
    "store",
    "store_password",
    "signing_key",
    "rate_limit",
    "prices",
    "sandbox",
    "workspace",
    "workspace_label",
    "pass_env",
    "serve.public_url",
)
"""Settings that a project file cannot change. The file may come with a clone, so it must not weaken the user's
protection, choose a store with its own approvals, or set prices.
"""
_GUARDED_TABLES = (
    "access.",
    "evidence.",
    "limits.",
    "log.",
    "metrics.",
    "oidc.",
    "otel.",
    "retention.",
    "usage.",
    "worker.",
    "temporal.",
)
"""Tables that a project file cannot change either."""
_TABLES = (
    "access",
    "budget",
    "evidence",
    "limits",
    "log",
    "metrics",
    "oidc",
    "otel",
    "retention",
    "serve",
    "usage",
    "worker",
    "temporal",
)
"""Tables of settings."""
_REACH = ("mcp", "tools", "search", "skills", "agents", "secrets")
"""Tables that define what playbooks may access."""


@dataclass
class _Layers:
    """Collects the values from each file in turn. A project file may set fewer settings than the user's own file."""

    values: dict[str, Setting]
    refused: list[BadInput] | None = None
    providers: dict[str, Provider] = field(default_factory=dict)
    servers: dict[str, ToolServer] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    search: Search | None = None
    skills: dict[str, SkillSettings] = field(default_factory=dict)
    agents: dict[str, AgentSettings] = field(default_factory=dict)
    secrets: dict[str, NamedSecret] = field(default_factory=dict)
    notifications: Notifications | None = None

    @property
    def reach(self) -> Reach:
        return Reach(self.servers, self.functions, self.search, self.skills, self.agents, self.secrets)

    def checked(self, name: str, given: Any, where: str) -> Any:
        try:
            return checked(name, given, where)
        except BadInput as error:
            if self.refused is None or name not in HANDLES:
                raise
            self.refused.append(error)
            return None

    def add(self, file: ConfigFile) -> None:
        if file.shared:
            check_choice(file)
        for name, given in file.tables.items():
            if name == "providers":
                read_providers(file, given, self.providers)
            elif name in _REACH:
                self._reach(file, name, file.table(name, given))
            elif name == "notifications":
                from cuebook.config import notifications  # most files have none

                self.notifications = notifications.read(file, file.table(name, given))
            elif name in _TABLES:
                for part, amount in file.table(name, given).items():
                    self._value(file, f"{name}.{part}", amount)
            else:
                self._value(file, name, given)

    def _value(self, file: ConfigFile, name: str, given: Any) -> None:
        if name not in KINDS:
            others = ["providers", "notifications", *_REACH]
            is_table = isinstance(given, dict) and "." not in name
            raise file.unknown(name, [*(_TABLES if is_table else KINDS), *others])
        origin = file.origin(name)
        if file.shared and (name in _GUARDED or name.startswith(_GUARDED_TABLES)):
            raise BadInput(
                f"{origin}: a project file may not set '{name}'.",
                fix=f"Set it in your own {FILE}, in {ENVIRONMENT[name]}, or leave it out.",
            )
        value = _public(self.checked(name, given, str(origin)), str(origin))
        if isinstance(value, Path):
            value = _placed(file, name, value, origin)
        elif name == "serve.folders":
            value = tuple(_placed(file, name, folder, origin) for folder in value)
        self.values[name] = Setting(value, origin)

    def _reach(self, file: ConfigFile, name: str, table: dict[str, Any]) -> None:
        def refuse(dotted: str, wrong: str, fix: str) -> BadInput:
            return BadInput(f"{file.origin(dotted)}: {wrong}", fix=fix)

        if name == "search":
            self.search = tools.search(table, refuse, shared=file.shared)
            return
        for one, value in table.items():
            if name == "tools":
                self.functions[one] = tools.function(one, value, refuse, shared=file.shared)
                continue
            dotted = f"{name}.{one}"
            if name == "secrets":
                where = str(file.origin(dotted))
                self.secrets[one] = tools.secret(one, value, where, refuse, shared=file.shared)
                continue
            if name == "mcp" and file.shared and one in self.servers:
                raise refuse(dotted, f"Your own file already has a tool server '{one}'.", "Choose another name.")
            fields, where = file.table(dotted, value), str(file.origin(dotted))
            if name == "skills":
                self.skills[one] = tools.skill(one, fields, where, refuse, shared=file.shared)
                continue
            if name == "agents":
                from cuebook.config import agents  # most files have none

                self.agents[one] = agents.agent(one, fields, where, refuse, shared=file.shared)
                continue
            made = tools.server(one, fields, where, refuse, shared=file.shared)
            if file.shared and not lies_in(file.path.parent / made.cwd, file.path.parent):
                raise refuse(
                    f"mcp.{one}.cwd", f"The cwd '{made.cwd}' is a link that points outside the project.", "Correct it."
                )
            self.servers[one] = made
            if (both := confused(self.servers)) is not None:
                words = f"The tools of servers '{both[0]}' and '{both[1]}' cannot be distinguished."
                raise refuse(dotted, words, "Rename one of them.")


def _placed(file: ConfigFile, name: str, path: Path, origin: Origin) -> Path:
    """Resolves a path against the file's folder; a path in a project file must stay inside the project."""
    placed = file.path.parent / path
    if file.shared and not lies_in(placed, file.path.parent):
        raise BadInput(
            f"{origin}: '{name}' in a project file must be inside the project's folder, but {placed} is not.",
            fix=f"Set it in your own {FILE}, in {ENVIRONMENT[name]}, or move the target.",
        )
    return placed

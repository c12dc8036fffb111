"""Loads the configuration: what is built in, then the files, the environment and the flags, in rising order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuebook.config.folders import FILE, config_folder, data_folder, lies_in, project_file, working_folder
from cuebook.config.gathering import Gathered
from cuebook.config.kinds import ENVIRONMENT, KINDS, checked
from cuebook.config.origins import DEFAULT, Origin, Value
from cuebook.config.providers import Provider
from cuebook.config.reach import Reach
from cuebook.config.written import Written
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Budget

_BUILT_IN: dict[str, Any] = {
    "synchronous": "FULL",
    "pause_expiry": 24 * 3600.0,
    "sandbox": "auto",
    "pass_env": (),
    "serve.folders": (),
    "limits.seconds": 60.0,
    "limits.max_seconds": 300.0,
    "limits.output": 32_768,
    "limits.max_output": 512_000,
    "limits.cpu_seconds": 60,
    "limits.memory": 1 << 30,
    "limits.reply": 8 << 20,
    "limits.processes": 128,
}
"""What holds where nothing else is said; what depends on the place is added when it is known."""


@dataclass(frozen=True)
class Config:
    """What was configured, each value with its origin."""

    values: Mapping[str, Value]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    reach: Reach = field(default_factory=Reach)
    user_file: Path | None = None
    project_file: Path | None = None
    """None where there is none up from the working folder."""
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
) -> Config:
    """Reads everything there is. A flag whose value is None was not given. Creates nothing."""
    environ = os.environ if environ is None else environ
    folder = working_folder() if folder is None else folder
    gathered = Gathered({name: Value(_BUILT_IN.get(name), DEFAULT) for name in KINDS})
    values = gathered.values
    values["store"] = Value(data_folder(environ) / "cuebook.db", DEFAULT)

    users = config_folder(environ) / FILE
    projects = project_file(folder)
    if users.is_file():
        gathered.add(Written(users, shared=False))
    if projects is not None and projects != users:
        gathered.add(Written(projects, shared=True))
    for name, variable in ENVIRONMENT.items():
        given = environ.get(variable, "")
        if given.strip():
            values[name] = Value(checked(name, given, variable), Origin(variable))
    for name, given in (flags or {}).items():
        if given is not None:
            flag = "--" + name.replace(".", "-").replace("_", "-")
            values[name] = Value(checked(name, given, flag), Origin(flag))
    around = projects.parent if projects is not None else folder
    if values["workspace"].value is None:
        values["workspace"] = Value(around, DEFAULT)
    for name in ("prompts", "playbooks"):
        if values[name].value is None and lies_in(around / name, around):
            values[name] = Value(around / name, DEFAULT)
    for part in ("seconds", "output"):
        _check_most(values, f"limits.{part}", f"limits.max_{part}")
    return Config(values, gathered.providers, gathered.reach, users, projects, folder)


def _check_most(values: Mapping[str, Value], name: str, most: str) -> None:
    usual, limit = values[name], values[most]
    if usual.value <= limit.value:
        return
    where = limit.origin if usual.origin == DEFAULT else usual.origin

    def said(name: str, value: Value) -> str:
        return f"{name} is {value.value:g}" + ("" if value.origin == where else f" ({value.origin})")

    raise BadInput(
        f"{where}: {said(name, usual)} and {said(most, limit)}: nothing can be more than the most.",
        fix=f"Raise {most}, or lower {name}.",
    )

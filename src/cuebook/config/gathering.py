"""What the files say, gathered one after the other. A project's file says less than the user's: it may come with a clone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuebook.config import reach
from cuebook.config.folders import FILE, lies_in
from cuebook.config.kinds import ENVIRONMENT, KINDS, checked
from cuebook.config.origins import Origin, Value
from cuebook.config.providers import Provider, check_choice, read_providers
from cuebook.config.reach import Reach, Search, SkillSettings, ToolServer
from cuebook.config.written import Written
from cuebook.kernel.errors import BadInput
from cuebook.kernel.tool_names import confused

_GUARDED = ("store", "rate_limit", "prices", "sandbox", "workspace", "pass_env")
"""What a project's file may not set: it may come with a clone, and must not open what the user closed, nor bring
approvals of its own in a store, nor say what things cost.
"""
_REACH = ("mcp", "tools", "search", "skills")
"""Tables about what playbooks may reach."""


@dataclass
class Gathered:
    """Values by their names, and what the tables describe."""

    values: dict[str, Value]
    providers: dict[str, Provider] = field(default_factory=dict)
    servers: dict[str, ToolServer] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    search: Search | None = None
    skills: dict[str, SkillSettings] = field(default_factory=dict)

    @property
    def reach(self) -> Reach:
        return Reach(self.servers, self.functions, self.search, self.skills)

    def add(self, file: Written) -> None:
        if file.shared:
            check_choice(file)
        for name, given in file.tables.items():
            if name == "providers":
                read_providers(file, given, self.providers)
            elif name in _REACH:
                self._reach(file, name, file.table(name, given))
            elif name in ("budget", "limits", "serve"):
                for part, amount in file.table(name, given).items():
                    self._value(file, f"{name}.{part}", amount)
            else:
                self._value(file, name, given)

    def _value(self, file: Written, name: str, given: Any) -> None:
        if name not in KINDS:
            raise file.unknown(name, [*KINDS, "providers", *_REACH])
        origin = file.origin(name)
        if file.shared and (name in _GUARDED or name.startswith("limits.")):
            raise BadInput(
                f"{origin}: a project's file may not set '{name}'.",
                fix=f"Set it in the {FILE} of your user, in {ENVIRONMENT[name]}, or leave it out.",
            )
        value = checked(name, given, str(origin))
        if isinstance(value, Path):
            value = _placed(file, name, value, origin)
        elif name == "serve.folders":
            value = tuple(_placed(file, name, folder, origin) for folder in value)
        self.values[name] = Value(value, origin)

    def _reach(self, file: Written, name: str, table: dict[str, Any]) -> None:
        def refuse(dotted: str, wrong: str, fix: str) -> BadInput:
            return BadInput(f"{file.origin(dotted)}: {wrong}", fix=fix)

        if name == "search":
            self.search = reach.search(table, refuse, shared=file.shared)
            return
        for one, value in table.items():
            if name == "tools":
                self.functions[one] = reach.function(one, value, refuse, shared=file.shared)
                continue
            dotted = f"{name}.{one}"
            if name == "mcp" and file.shared and one in self.servers:
                raise refuse(dotted, f"Your own file has a tool server '{one}' already.", "Choose another name.")
            told, where = file.table(dotted, value), str(file.origin(dotted))
            if name == "skills":
                self.skills[one] = reach.skill(one, told, where, refuse, shared=file.shared)
                continue
            made = reach.server(one, told, where, refuse, shared=file.shared)
            if file.shared and not lies_in(file.path.parent / made.cwd, file.path.parent):
                raise refuse(
                    f"mcp.{one}.cwd", f"The cwd '{made.cwd}' is a link that leads out of the project.", "Correct it."
                )
            self.servers[one] = made
            if (both := confused(self.servers)) is not None:
                words = f"The tools of the servers '{both[0]}' and '{both[1]}' cannot be told apart."
                raise refuse(dotted, words, "Give one of them another name.")


def _placed(file: Written, name: str, path: Path, origin: Origin) -> Path:
    """A path from the file's folder; what a project's file leads to lies in the project."""
    placed = file.path.parent / path
    if file.shared and not lies_in(placed, file.path.parent):
        raise BadInput(
            f"{origin}: '{name}' of a project's file must lie in the project's folder, and {placed} does not.",
            fix=f"Set it in the {FILE} of your user, in {ENVIRONMENT[name]}, or move what it leads to.",
        )
    return placed

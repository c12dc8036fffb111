"""Where a configured value was found, and one `cuebook.toml` with the line of each of its values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cuebook.formats.toml import read_toml
from cuebook.formats.values import Malformed, decoded, read_file
from cuebook.kernel.errors import BadInput

_LARGEST = 1_000_000
"""Maximum size of a file, in bytes."""
_KEYLIKE = re.compile(r"(.*[_-])?(api[_-]?key|key|token|secret|password|credentials?)", re.IGNORECASE)


@dataclass(frozen=True)
class Origin:
    """Where a value was found."""

    place: str
    """A file, an environment variable, a flag, or `default`."""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


@dataclass(frozen=True)
class Setting:
    """A configured value and its origin."""

    value: Any
    origin: Origin


DEFAULT = Origin("default")


class ConfigFile:
    """A `cuebook.toml` file. A shared file belongs to a project, so other people may have written it."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        self.shared = shared
        text = decoded(read_file(path, _LARGEST), str(path))
        try:
            content = read_toml(text)
        except Malformed as error:
            raise error.in_file(str(path)) from None
        self.tables: dict[str, Any] = content.plain
        self._lines = {".".join(map(str, key)): line for key, line in content.lines_by_key().items()}

    def origin(self, name: str) -> Origin:
        """The line that sets a dotted name or begins its table."""
        return Origin(str(self.path), self._lines.get(name))

    def table(self, name: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise BadInput(f"{self.origin(name)}: {name} must be a table.", fix=f"Write it as [{name}].")
        return given

    def unknown(self, name: str, known: list[str]) -> BadInput:
        """The error for a name that is not a setting."""
        where, last = self.origin(name), name.rpartition(".")[2]
        if _KEYLIKE.fullmatch(last):
            provider = name.split(".")[1] if name.startswith("providers.") else "PROVIDER"
            return BadInput(
                f"{where}: '{name}' looks like a key, but keys are never read from a file.",
                fix=f"Remove it, then use `cuebook keys set {provider}` or the provider's environment variable.",
            )
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known settings: {', '.join(known)}."
        return BadInput(f"{where}: there is no setting '{name}'.", fix=hint)

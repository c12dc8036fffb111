"""One `cuebook.toml` as it is written: its tables, and the line that each of them, and each value, stands on.

What may stand there is decided elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cuebook.config.origins import Origin
from cuebook.kernel.errors import BadInput

_KEYLIKE = re.compile(r"(.*[_-])?(api[_-]?key|key|token|secret|password|credentials?)", re.IGNORECASE)


_PART = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
"""Of a dotted key."""


class Written:
    """A file that was read. A shared one lies in a project, where others may have written it."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        self.shared = shared
        try:
            self._text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise BadInput(f"{path}: the file is not UTF-8.", fix="Save it as UTF-8.") from None
        except OSError as error:
            raise BadInput(f"{path}: the file cannot be read: {error.strerror}.", fix="Check it.") from None
        try:
            self.tables = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{self._where_of(error)}: this is not TOML: {_said(error)}.", fix="Correct it.") from None

    def origin(self, name: str) -> Origin:
        return Origin(str(self.path), self._line_of(name))

    def table(self, name: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise BadInput(f"{self.origin(name)}: {name} must be a table.", fix=f"Write it as [{name}].")
        return given

    def unknown(self, name: str, known: list[str]) -> BadInput:
        where, last = self.origin(name), name.rpartition(".")[2]
        if _KEYLIKE.fullmatch(last):
            provider = name.split(".")[1] if name.startswith("providers.") else "PROVIDER"
            return BadInput(
                f"{where}: '{name}' looks like a key, and keys are never read from a file.",
                fix=f"Remove it, then use `cuebook keys set {provider}` or the provider's environment variable.",
            )
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known are: {', '.join(known)}."
        return BadInput(f"{where}: there is no setting '{name}'.", fix=hint)

    def _line_of(self, name: str) -> int | None:
        """The line that sets a dotted name, or begins its table. TOML's reader keeps no positions."""
        table = ""
        for number, line in enumerate(self._text.split("\n"), start=1):
            header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
            if header:
                table = _dotted(header[1])
                if table == name or table.startswith(f"{name}."):
                    return number
                continue
            key = re.match(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=", line)
            if key:
                dotted = _dotted(key[1])
                dotted = f"{table}.{dotted}" if table else dotted
                if dotted == name or dotted.startswith(f"{name}."):
                    return number
        return None

    def _where_of(self, error: Exception) -> Origin:
        found = re.search(r"line (\d+)", str(error))
        return Origin(str(self.path), int(found[1]) if found else self._text.count("\n") + 1)


def _dotted(written: str) -> str:
    """A key without its quotes and the blanks around its dots."""
    return ".".join(part.strip("\"'") for part in re.findall(_PART, written))


def _said(error: Exception) -> str:
    return re.sub(r"\s*\(at [^)]*\)", "", str(error)).strip().rstrip(".")

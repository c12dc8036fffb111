"""A configured value, and where it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """Where a value was found."""

    place: str
    """A file, an environment variable, a flag, or `default`."""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


@dataclass(frozen=True)
class Value:
    value: Any
    origin: Origin


DEFAULT = Origin("default")

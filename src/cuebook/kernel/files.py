"""Files that steps produce: kept in the store in pieces, by the digest of their content, and named in outcomes.

An *artifact* is a run's result; a *file* is anything that a step declares, of any size and content.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import msgspec

PIECE = 1 << 20
"""The size in bytes of every piece of a file but its last."""


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file in the store."""

    name: str
    """The name that the step gives it."""
    digest: str
    """SHA-256 of its content, in hexadecimal."""
    size: int
    """Bytes."""
    filename: str = ""
    """The name of the file where it was produced, for people who download it; empty if it has none."""

    def __str__(self) -> str:
        """The file in a preview."""
        if not self.digest:
            return self.name
        return f"{self.name} ({self.size:,} bytes, SHA-256 {self.digest[:12]})"


class Scan(Protocol):
    """Masks secrets in text that arrives in pieces; see `Filter`."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class RunFiles(Protocol):
    """The files of one run's tenant, as a performer sees them."""

    def scan(self) -> Scan:
        """A search for the run's secrets: what it returns differs from what it was fed if there is one."""

    async def has(self, digest: str) -> bool:
        """Whether the whole file is in the store."""

    async def put(self, digest: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Stores a file, piece by piece. If it is there, it is only protected from being freed before it is named."""

    def read(self, digest: str) -> AsyncIterator[bytes]:
        """The pieces of a file. Raises `NotFound` if it was purged."""


def files_of(outcome: Any) -> tuple[FileRef, ...]:
    """The files that an outcome refers to."""
    found: tuple[FileRef, ...] = getattr(outcome, "files", ())
    return found


class NoFiles:
    """For performers that are used outside a run."""

    def scan(self) -> Scan:
        raise RuntimeError("there is no run whose files could be kept")

    async def has(self, digest: str) -> bool:
        return False

    async def put(self, digest: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        raise RuntimeError("there is no run whose files could be kept")

    def read(self, digest: str) -> AsyncIterator[bytes]:
        raise RuntimeError("there is no run whose files could be read")


Pieces = Callable[[], AsyncIterator[bytes]]
"""Returns the pieces of a file from its beginning."""

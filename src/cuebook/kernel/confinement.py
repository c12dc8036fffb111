"""How a child process is confined: what it is given, what it may take, and the shape of whatever does it.

Performers start processes and the gate confines them; this is what both say. Nothing here starts anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What performing one effect may take at most. The gate sets it, a performer keeps to it."""

    seconds: float = 60.0
    output: int = 32_768
    """Bytes that are kept of each stream of a command, or of a response's body."""
    cpu_seconds: int = 60
    memory: int = 1 << 30
    """Bytes."""
    processes: int = 128
    open_files: int = 1024
    grace: float = 5.0
    """Seconds between asking a process to end and ending it."""


async def at_once() -> None:
    """Nothing has to be waited for."""


class Confinement(msgspec.Struct, frozen=True):
    """A process to start, and everything it may reach. What is not named is out of its reach."""

    argv: tuple[str, ...]
    cwd: str
    """An absolute path that exists."""
    env: dict[str, str] = {}
    """The whole environment: nothing is inherited."""
    writable: tuple[str, ...] = ()
    """Absolute paths it may change; the system's programs and libraries can be read anyway."""
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Absolute paths of files within these that it may neither read nor change."""
    fixed: tuple[str, ...] = ()
    """Absolute paths that it may read but not change, even within those it may change."""
    reads_only: bool = False
    """Whether it may change no file's mode, owner, times or attributes either. What it may write is scratch space."""
    network: bool = False
    python: bool = False
    """Whether it is Python by itself: of the system, it may read what its standard library needs and nothing else."""
    limits: Limits = Limits()
    hold: Callable[[], Awaitable[None]] = at_once
    """What the program waits for: nothing of it has run before this is over, nor will if it fails or we are gone. What
    the program needs may be made ready meanwhile.
    """


class Confined(Protocol):
    """A process that was started. Its streams are file descriptors that the caller reads, writes and closes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int
    overrun: Literal["memory", "processes"] | None
    """The limit that it went beyond, if that ended it."""

    def terminate(self) -> None:
        """Asks it and its whole group to end."""

    def kill(self) -> None:
        """Ends it and everything it started, whatever group that is in by now. May be called more than once."""

    async def wait(self) -> int:
        """Its exit code once it has ended and nothing of it is left; minus the signal's number if one ended it. Whoever
        is interrupted while waiting may wait again.
        """


SandboxName = Literal["landlock", "bubblewrap", "none"]


class Sandbox(Protocol):
    """Starts confined processes. Raises `CuebookError` where it cannot."""

    @property
    def name(self) -> SandboxName: ...

    @property
    def problem(self) -> str:
        """Why nothing can be started in it, as words; empty if something can."""

    async def spawn(self, confinement: Confinement) -> Confined: ...

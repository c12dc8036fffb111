"""The limits of a process, and the sandbox that starts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Literal, Protocol

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The limits for performing one effect. The gate sets them, the performer enforces them."""

    seconds: float = 60.0
    output: int = 32_768
    """Bytes to keep from each of a command's streams, or from a response body."""
    cpu_seconds: int = 60
    memory: int = 1 << 30
    """Bytes."""
    processes: int = 128
    open_files: int = 1024
    grace: float = 5.0
    """Seconds between asking a process to exit and killing it."""


async def at_once() -> None:
    """Returns immediately: there is nothing to wait for."""


EVERYWHERE = ("*",)
"""The network of a process that is not limited to certain hosts."""


class Confinement(msgspec.Struct, frozen=True):
    """A process to start, and everything that it may access. It cannot access anything else."""

    argv: tuple[str, ...]
    cwd: str
    """An absolute path that exists."""
    env: dict[str, str] = {}
    """The complete environment: nothing is inherited."""
    writable: tuple[str, ...] = ()
    """Absolute paths that it may change; the system's programs and libraries are always readable."""
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Absolute paths of files within the paths above that it may neither read nor change."""
    fixed: tuple[str, ...] = ()
    """Absolute paths that it may read but not change, even within writable paths."""
    reads_only: bool = False
    """Whether it must not change the mode, owner, times or attributes of files either. Writable paths are scratch space."""
    network: tuple[str, ...] = ()
    """The hosts that it may reach, each as `HOST` (port 443) or `HOST:PORT`, with TLS or as plain HTTP, through a proxy
    that checks every connection. It has no other route, and looks up no names. `EVERYWHERE` is the machine's whole network,
    unchecked.
    """
    local_sockets: bool = True
    """Whether it may have sockets with a path, where the sandbox keeps it away from those of other programs. Not if it may
    read paths outside the workspace, where such sockets may be."""
    idle_sockets: bool = False
    """Whether it gets local sockets that lead nowhere where the sandbox allows no others, for a program that does not start
    without one. It must have a list of hosts."""
    placed: dict[str, str] = {}
    """Files that exist for this process alone: their absolute paths and contents. Only bubblewrap can place them."""
    python: bool = False
    """Whether it is only Python. If so, it may read only the system files that the standard library needs."""
    limits: Limits = Limits()
    hold: Callable[[], Awaitable[None]] = at_once
    """The program starts after this has finished, and never if it fails or this process exits. Preparations may be made
    in the meantime.
    """


class Confined(Protocol):
    """A process that was started. Its streams are file descriptors that the caller reads, writes and closes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int
    overrun: Literal["memory", "processes"] | None
    """The limit it was killed for exceeding, if any."""
    refused: Collection[str]
    """The hosts, with their ports, that it asked its proxy for but that were not listed."""

    def terminate(self) -> None:
        """Asks it and its whole process group to exit."""

    def kill(self) -> None:
        """Kills it and everything it started, in any process group. May be called more than once."""

    async def wait(self) -> int:
        """Returns its exit code once it has exited completely, or the negative signal number if a signal killed it. An
        interrupted wait may be repeated.
        """


SandboxName = Literal["landlock", "bubblewrap", "none"]


class Sandbox(Protocol):
    """Starts confined processes. Raises `CuebookError` if it cannot."""

    @property
    def name(self) -> SandboxName: ...

    @property
    def problem(self) -> str:
        """Why it cannot start processes; empty if it can."""

    async def spawn(self, confinement: Confinement) -> Confined: ...

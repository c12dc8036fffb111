"""Runs git for Cuebook itself, with a clean environment and without hooks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from cuebook.kernel.errors import CuebookError

_SECONDS = 300
_CONFIG = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *(
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
        "-c",
        "merge.autoStash=false",
        "-c",
        "submodule.recurse=false",
    ),
)
_IDENTITY = {"NAME": "Cuebook", "EMAIL": "cuebook@localhost"}


class GitError(CuebookError):
    """Git could not do what it was asked to."""

    code = "git_failed"


class Git:
    """Git in one folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        own = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        identity = {f"GIT_{who}_{name}": value for who in ("AUTHOR", "COMMITTER") for name, value in _IDENTITY.items()}
        self._environ = {**own, **identity, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
        self._held: tuple[int, ...] = ()

    def within(self, folder: Path) -> Git:
        """Git in another folder, under the same lock."""
        other = copy(self)
        other.folder = folder
        return other

    @property
    def is_installed(self) -> bool:
        return shutil.which("git", path=self._environ.get("PATH")) is not None

    def tried(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """The ended process, whatever its exit code."""
        try:
            return subprocess.run(
                ("git", *_CONFIG, *args),
                cwd=self.folder,
                env={**self._environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                pass_fds=self._held,
                start_new_session=True,  # if Cuebook is killed, git finishes what it began
            )
        except subprocess.TimeoutExpired:
            raise GitError(f"`git {args[0]}` took longer than {_SECONDS} seconds and was stopped.") from None
        except OSError as error:
            raise GitError(f"git cannot be started: {error}.", fix="Install git.") from None

    def said(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """The output. Raises `GitError` if the exit code is not 0."""
        ended = self.tried(*args, env=env)
        if ended.returncode:
            raise GitError(f"`git {args[0]}` failed: {error_of(ended)}")
        return ended.stdout.decode("utf-8", "surrogateescape").strip("\n")

    def found(self, *args: str) -> str:
        """The output, or an empty string if git has no answer."""
        ended = self.tried(*args)
        return "" if ended.returncode else ended.stdout.decode("utf-8", "surrogateescape").strip("\n")

    def holds(self, *args: str) -> bool:
        """Whether git answers yes."""
        return self.tried(*args).returncode == 0

    def beginning(self, limit: int, *args: str) -> tuple[bytes, int]:
        """The first bytes of the output, and its whole size."""
        with subprocess.Popen(
            ("git", *_CONFIG, *args),
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            kept = process.stdout.read(limit)
            size = len(kept)
            while piece := process.stdout.read(1 << 16):
                size += len(piece)
        if process.returncode:
            raise GitError(f"`git {args[0]}` failed with exit code {process.returncode}.")
        return kept, size

    @contextmanager
    def alone(self, file: Path) -> Iterator[None]:
        """Holds a lock. A git process that outlives its Cuebook keeps holding it until it exits."""
        import fcntl

        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._held = (fd,)
            yield
        finally:
            self._held = ()
            os.close(fd)


def error_of(ended: subprocess.CompletedProcess[bytes]) -> str:
    words = ended.stderr.decode("utf-8", "replace").strip() or f"exit code {ended.returncode}"
    return words[:2000]

"""The node's key and its folder: one folder for each server, so that no server can ask about requests of another."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from pathlib import Path

from cuebook.kernel.errors import BadInput, Refused

_KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


class NodeBusy(Refused):
    """Another process is this node."""

    code = "node_busy"


def folder_of(data: Path, server: str) -> Path:
    """The folder for the node of one server, given by its address without the path."""
    return data / _UNSAFE.sub("_", server.partition("://")[2])


class Identity:
    """The folder of a node while its process runs: the lock, the key and whatever else is kept there."""

    def __init__(self, folder: Path) -> None:
        """Creates the folder, locks it and creates the key. Raises `NodeBusy` or `BadInput`."""
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(folder, 0o700)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            self._take()
            self.key, self.is_new = self._key()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            raise NodeBusy(
                f"Another process{f' ({pid})' if pid else ''} is already this node; it uses {self.folder}.",
                fix="Stop it, or give this one a folder of its own with --data.",
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _key(self) -> tuple[str, bool]:
        """The key, and whether it was just created. It is on disk before anyone else can learn of it."""
        path = self.folder / "key"
        try:
            key = path.read_text("ascii").strip()
        except FileNotFoundError:
            key = secrets.token_hex(32)
            write_durably(path, key.encode() + b"\n")
            return key, True
        except (OSError, UnicodeError) as error:
            raise _unusable(path, error) from None
        if not _KEY.fullmatch(key):
            raise BadInput(
                f"{path} does not contain a node's key.",
                fix="Remove the file, and pair the node again: `cuebook nodes token NAME` on the server prints a new token.",
            )
        if path.stat().st_mode & 0o077:
            raise BadInput(
                f"Other users may read the node's key, {path}.",
                fix=f"Pair the node again, because they may have a copy, or `chmod 600 {path}`.",
            )
        return key, False


def write_durably(path: Path, data: bytes) -> None:
    """Writes a whole file that only this user may read; it is on disk when this returns, even after a power failure."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: Exception) -> BadInput:
    why = getattr(error, "strerror", None) or str(error)
    return BadInput(
        f"The node cannot use {path}: {why}.", fix="Correct its permissions, or use another folder: --data."
    )

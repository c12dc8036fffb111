"""Private folders for processes, used as their home and for temporary files, and a pool of them for commands.

Each folder is named after the Cuebook process that created it, so that a later process can remove the folders of a
killed one. Folders are removed whatever they contain.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import tempfile
import threading
import weakref
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import chain, count

from cuebook.system.process import this_host

_NAME = re.compile(r"cuebook-([0-9a-f]{12})\.(\d{1,9})-\w+", re.ASCII)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make() -> str:
    """Creates a new folder that only this user can access."""
    _sweep_once()
    return tempfile.mkdtemp(prefix=f"cuebook-{_here()}.{os.getpid()}-")


def remove(folder: str) -> None:
    """Removes a folder with all of its content, whatever its depth and permissions. Links are not followed."""
    with suppress(OSError):
        _unlock(folder)
        top = os.open(folder, _FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(folder)


def sweep() -> None:
    """Removes our folders whose process is gone."""
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            names = [entry.name for entry in entries if entry.name.startswith("cuebook-")]
    except OSError:
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found and found[1] == _here() and not _lives(int(found[2])):
            path = os.path.join(tempfile.gettempdir(), name)
            if _is_ours(path):
                remove(path)


@cache
def _here() -> str:
    """The host that our PIDs belong to: a machine that shares the folder may use the same PIDs for other processes."""
    return sha256(this_host().encode()).hexdigest()[:12]


@cache
def _sweep_once() -> None:
    # In the background, because there may be a lot to remove.
    threading.Thread(target=sweep, name="cuebook-sweep", daemon=True).start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to another user
    return True


def _is_ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _empty(top: int) -> None:
    """Moves nested folders to the top before emptying them, so that any depth works."""
    fresh = (f"{os.urandom(8).hex()}-{number}" for number in count())
    waiting = _cleared(top)
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for below in _cleared(folder):
                    moved = next(fresh)
                    with suppress(OSError):
                        os.rename(below, moved, src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _cleared(folder: int) -> list[str]:
    """Removes everything except folders, and unlocks and returns the folders."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with suppress(OSError):
            if is_folder:
                _unlock(name, folder)
            else:
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _unlock(name: str, within: int | None = None) -> None:
    """Makes a folder accessible, but never the target of a link."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=within, follow_symlinks=False)
        return
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    finally:
        os.close(folder)


_SPARE = 4
_QUIET = 0.005
"""Seconds within which the next command starts, if there is one."""


class Folders:
    """Private folders for commands, each used as home and for temporary files.

    A folder that a command did not change is reused, because creating and removing folders takes longer than everything
    else. Used folders are checked while the next command runs.
    """

    def __init__(self) -> None:
        self._spare: list[str] = []
        self._used: list[str] = []
        self._fresh: dict[str, int] = {}
        """When each folder last changed, which is when it was created."""
        weakref.finalize(self, _remove_all, self._spare, self._used)

    def take(self) -> str:
        if self._spare:
            return self._spare.pop()
        folder = make()
        self._fresh[folder] = os.stat(folder).st_ctime_ns
        return folder

    def give_back(self, folder: str) -> None:
        self._used.append(folder)
        asyncio.get_running_loop().call_later(_QUIET, self._tidy)

    def _tidy(self) -> None:
        while self._used:
            folder = self._used[-1]
            if len(self._spare) < _SPARE and _is_untouched(folder, self._fresh[folder]):
                self._spare.append(self._used.pop())
            else:
                # The interpreter waits for this thread at exit.
                threading.Thread(target=remove, args=(folder,), name="cuebook-tidy").start()
                del self._fresh[self._used.pop()]


def _is_untouched(folder: str, since: int) -> bool:
    """Whether the folder is unchanged. The time alone is too coarse, so content and attributes are checked as well."""
    try:
        status = os.stat(folder)
        if status.st_ctime_ns != since or status.st_mode & 0o7777 != 0o700:
            return False
        if hasattr(os, "listxattr") and os.listxattr(folder):
            return False
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _remove_all(*folders: list[str]) -> None:
    for folder in chain(*folders):
        remove(folder)

"""Folders that a process has to itself, as its home and for temporary files: made, and removed whatever is in them.

Each is named after the Cuebook that made it, so that the next one removes what a killed one left. It knows files, and
nothing of what runs in them.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import threading
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import count

from cuebook.processes import this_host

_NAME = re.compile(r"cuebook-([0-9a-f]{12})\.(\d{1,9})-\w+", re.ASCII)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make() -> str:
    """A new folder that only we may enter."""
    _sweep_once()
    return tempfile.mkdtemp(prefix=f"cuebook-{_here()}.{os.getpid()}-")


def remove(folder: str) -> None:
    """Whatever was put into it, however deep, and however it was locked. No link in it is followed."""
    with suppress(OSError):
        _unlock(folder)
        top = os.open(folder, _FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(folder)


def sweep() -> None:
    """Removes the folders of those who are not there any more, as far as they are ours."""
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
    """What our process numbers count in. Another machine that has the same folder has the same numbers for others."""
    return sha256(this_host().encode()).hexdigest()[:12]


@cache
def _sweep_once() -> None:
    # Nobody waits for it: there may be much to remove.
    threading.Thread(target=sweep, name="cuebook-sweep", daemon=True).start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is somebody else's
    return True


def _is_ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _empty(top: int) -> None:
    """Folders below are brought up to the top before they are emptied: so no depth is too deep."""
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
    """Removes what is no folder, and gives the folders, unlocked."""
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
    """Lets us into a folder, and never into what a link leads to."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=within, follow_symlinks=False)
        return
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    finally:
        os.close(folder)

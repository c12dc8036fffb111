"""The folders that commands have to themselves: each is used again as long as it is left as it was."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from itertools import chain

from cuebook.performers import private

_SPARE = 4
_QUIET = 0.005
"""Seconds after a command in which the next one has begun, if there is one."""


class Folders:
    """Folders that commands have to themselves, each as home and for temporary files.

    One that a command has left as it was is given to another: making and removing them takes longer than all the rest.
    They are looked at in a quiet moment, while the next command runs.
    """

    def __init__(self) -> None:
        self._spare: list[str] = []
        self._used: list[str] = []
        self._fresh: dict[str, int] = {}
        """When each was last changed: by us, when it was made."""
        weakref.finalize(self, _remove_all, self._spare, self._used)

    def take(self) -> str:
        if self._spare:
            return self._spare.pop()
        folder = private.make()
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
                # By a thread that is waited for when the program ends, whatever else ends before.
                threading.Thread(target=private.remove, args=(folder,), name="cuebook-tidy").start()
                del self._fresh[self._used.pop()]


def _is_untouched(folder: str, since: int) -> bool:
    """Nothing in it, nothing about it that another command could read, and no change since: clocks alone are too coarse."""
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
        private.remove(folder)

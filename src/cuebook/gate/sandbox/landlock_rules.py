"""Landlock through its system calls: restricts a thread, and everything it starts, to a list of paths.

It also drops root's privileges, which reach beyond paths: to devices and network settings, for example.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NEEDED = 6
"""The version of Landlock that can confine signals and sockets without a path (Linux 6.12)."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture

_EXECUTE, _WRITE_FILE, _READ_FILE, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICE = 1 << 6 | 1 << 11
_TRUNCATE, _DEVICE_REQUESTS = 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_REQUESTS

READ = _EXECUTE | _READ_FILE | _LIST
WRITE = _ALL & ~_MAKE_DEVICE & ~_DEVICE_REQUESTS

_TCP = 0b11
_SOCKETS_WITHOUT_PATH_AND_SIGNALS = 0b11
_NOT_LOGGED = 1
"""The audit log would otherwise list every process that `_kill_all` cannot reach."""

_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDS, _AMBIENT, _CLEAR_ALL = 38, 24, 47, 4
_CAPABILITIES = 0x20080522
_MOST_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    try:
        return _called(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


class Hidden(NamedTuple):
    """Paths that must stay out of reach although the folders around them are accessible. They are identified by device
    and inode, so that no other path to the same file works either.
    """

    themselves: frozenset[tuple[int, int]]
    around: frozenset[tuple[int, int]]
    """All folders above them."""
    folders: bool
    """Whether some are folders: permission to list a folder extends to the folders in it."""


def hidden(paths: Iterable[str]) -> Hidden:
    """`paths` must not contain symbolic links."""
    themselves, around, folders = set(), set(), False
    for path in paths:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        themselves.add((status.st_dev, status.st_ino))
        folders = folders or stat.S_ISDIR(status.st_mode)
        around |= {_identity(os.stat(folder)) for folder in _above(path)}
    return Hidden(frozenset(themselves), frozenset(around), folders)


class WritableAroundHidden(Exception):
    """Landlock cannot protect a path in a writable folder: the path could be moved and replaced."""


class Ruleset:
    """Collects rules until `restrict` applies them."""

    def __init__(self, hidden: Hidden, *, network: bool) -> None:
        self._hidden = hidden
        asked = struct.pack("=QQQ", _ALL, 0 if network else _TCP, _SOCKETS_WITHOUT_PATH_AND_SIGNALS)
        self._descriptor = _called(_CREATE, asked, ctypes.c_size_t(len(asked)), ctypes.c_uint(0))

    def close(self) -> None:
        os.close(self._descriptor)

    def allow(self, path: str, access: int) -> None:
        """Allows access to a path and everything below it, except for hidden paths. Links are not followed, and paths
        that do not exist are skipped.
        """
        try:
            opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            status = os.fstat(opened)
            found = _identity(status)
            if access & _WRITE_FILE and found in self._hidden.themselves | self._hidden.around:
                raise WritableAroundHidden(path)
            if stat.S_ISLNK(status.st_mode) or found in self._hidden.themselves:
                return
            if found in self._hidden.around:
                self._allow_around_hidden(path, opened, access)
            else:
                self._add(opened, access if stat.S_ISDIR(status.st_mode) else access & _OF_FILES)
        finally:
            os.close(opened)

    def _allow_around_hidden(self, path: str, opened: int, access: int) -> None:
        """Allows the folder's current entries one by one, so files created later stay out of reach."""
        if not self._hidden.folders:
            self._add(opened, access & _LIST)
        try:
            names = os.listdir(path)
        except PermissionError:
            return
        for name in names:
            self.allow(os.path.join(path, name), access)

    def _add(self, opened: int, access: int) -> None:
        _called(
            _ADD, ctypes.c_int(self._descriptor), ctypes.c_int(1), struct.pack("=Qi", access, opened), ctypes.c_uint(0)
        )

    def restrict(self) -> None:
        """Applies the rules to this thread and everything it starts, and drops all their privileges. This cannot be
        undone. From here on, the thread cannot open any other files.
        """
        _controlled(_NO_NEW_PRIVILEGES, 1)
        _drop_capabilities()
        quiet = _NOT_LOGGED if version() > NEEDED else 0
        _called(_RESTRICT, ctypes.c_int(self._descriptor), ctypes.c_uint(quiet))


def _drop_capabilities() -> None:
    """Drops all capabilities. With no_new_privs set, executing a program as root does not bring them back."""
    _controlled(_AMBIENT, _CLEAR_ALL)
    for capability in range(_MOST_CAPABILITIES):
        try:
            _controlled(_DROP_FROM_BOUNDS, capability)
        except OSError as error:
            if error.errno in (
                errno.EPERM,
                errno.EINVAL,
            ):  # the thread is unprivileged, or this was the last capability
                break
            raise
    if _libc.capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(2 * 3 * 4)):
        raise _failure()


def _above(path: str) -> Iterator[str]:
    while path != (path := os.path.dirname(path)):
        yield path


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _called(call: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(call), *arguments)
    if result < 0:
        raise _failure()
    return result


def _controlled(*arguments: int) -> None:
    padded = [*arguments, 0, 0, 0, 0][:5]
    if _libc.prctl(*map(ctypes.c_ulong, padded)):
        raise _failure()


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

"""Grows SQLite's write-ahead log ahead of its contents, so that a commit overwrites blocks that the file already has.

Waiting for the disk takes about half as long then, because the file's metadata does not change. SQLite ignores the zeros at
the end of the log: they are not valid frames.
"""

from __future__ import annotations

import os
from pathlib import Path

_MOST = 16 * 2**20
"""Bytes. SQLite begins to reuse the log at about this size; see `wal_autocheckpoint`."""
_FIRST, _THEN = 64 * 2**10, 2**20
"""Bytes added at a time: few at first, because many processes write only a few records."""
_SPARE = 64 * 2**20
"""Bytes that must be free on the disk. On a nearly full one, the space is needed for the records themselves."""
_LOOKED_AT = 24
"""Bytes at the end of the log that show whether they are in use. A page that SQLite wrote seldom ends in zeros."""


class LogSpace:
    """The log of one store."""

    def __init__(self, store: Path) -> None:
        self._path = f"{store}-wal"
        self._file = -1
        self._seen = -1
        """The size of the log when it was last looked at."""

    def grow(self) -> None:
        """Adds space if the log is full. The caller holds SQLite's write lock, so that no one else appends to the log."""
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            size = os.fstat(self._file).st_size
            if size != self._seen:
                self._seen = size if size >= _MOST or self._has_space(size) else self._grown(size)
        except OSError:  # it only saves time; if the disk is full, SQLite reports that
            self._seen = -1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _has_space(self, size: int) -> bool:
        """Whether another process has added space that is still unused."""
        return size >= _FIRST and not any(os.pread(self._file, _LOOKED_AT, size - _LOOKED_AT))

    def _grown(self, size: int) -> int:
        disk = os.fstatvfs(self._file)
        if disk.f_bavail * disk.f_frsize < _SPARE:
            return size
        return size + os.pwrite(self._file, bytes(_FIRST if size < _FIRST else _THEN), size)

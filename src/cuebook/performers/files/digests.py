"""Digests of file contents, cached as long as the system reports that the files did not change."""

from __future__ import annotations

import asyncio
import os
from hashlib import file_digest

from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors

LARGEST = 50 << 20
"""A larger file is identified by its size, times and inode instead."""
_AT_ONCE = 1 << 20
_MOST = 1_000

_known: dict[tuple[str | int, ...], str] = {}


def digest_of(path: str) -> str:
    """The SHA-256 of a file, or the reason why there is none."""
    try:
        return _digest(path, os.stat(path))
    except OSError:
        return "gone"


def _digest(path: str, status: os.stat_result) -> str:
    if status.st_size > LARGEST:
        return f"{status.st_size} bytes of {status.st_mtime_ns}, {status.st_ctime_ns}, {status.st_ino}"
    # The ctime cannot be set, so a file that was changed and had its mtime restored is noticed.
    key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _known:
        if len(_known) > _MOST:
            _known.clear()
        try:
            with open(path, "rb") as file:
                _known[key] = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            if lacks_descriptors(error):
                raise NoDescriptors from None
            return f"unreadable ({error.strerror})"
    return _known.get(key, "gone")


async def digest_aside(path: str) -> str:
    """Like `digest_of`, but without blocking the event loop for a large file."""
    try:
        status = os.stat(path)
    except OSError:
        return "gone"
    return await asyncio.to_thread(digest_of, path) if status.st_size > _AT_ONCE else _digest(path, status)

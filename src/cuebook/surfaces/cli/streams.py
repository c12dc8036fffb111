"""The standard streams, whatever a shell has made of them: closed, a full disk, a pipe that nobody reads."""

from __future__ import annotations

import errno
import os
import sys
from typing import IO

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def prepare() -> None:
    """What was closed leads nowhere, so that no file of ours takes its number and is written over."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= 2:
        number = os.dup(number)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a letter that the terminal's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")


def loss(error: Exception) -> str:
    """Why the output did not arrive; empty where the error is about something else, such as a file, which it names."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        return os.strerror(error.errno)
    return ""


def silence(stream: IO[str]) -> None:
    """Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

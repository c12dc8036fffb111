"""The standard streams, whatever a shell has made of them: closed, a full disk, a pipe that nobody reads."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable
from typing import IO, Any

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


def shown(show: Callable[..., None], *given: Any) -> None:
    """Calls what writes to stdout or stderr while a run is driven. Where nobody reads one of them any more, that one leads
    nowhere from then on, and the run goes on unseen.
    """
    try:
        show(*given)
    except BrokenPipeError:
        broken = select.poll()
        for stream in (sys.stdout, sys.stderr):
            broken.register(stream.fileno(), 0)  # what is told of a pipe without asking is that its reader has left
        gone = {number for number, _ in broken.poll(0)}
        for stream in (sys.stdout, sys.stderr):
            if stream.fileno() in gone:
                silence(stream)


def silence(stream: IO[str]) -> None:
    """Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""The standard streams, whatever a shell has made of them: closed, a full disk, a pipe that nobody reads."""

from __future__ import annotations

import os
import sys
from typing import IO


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


def loss() -> str:
    """Why what was said on stdout did not arrive; empty where it did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        return error.strerror or str(error)
    return ""


def silence(stream: IO[str]) -> None:
    """Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

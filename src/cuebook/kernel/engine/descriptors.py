"""Detects a lack of file descriptors. The lack is temporary, so an effect waits instead of failing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from cuebook.kernel.errors import CuebookError

_NUMBERS = (errno.EMFILE, errno.ENFILE)
_WORDS = tuple(os.strerror(number) for number in _NUMBERS)
_FEW = 32
"""With this many free descriptors, anything can be started."""
_FIRST, _LONGEST = 0.1, 5.0
"""The first and the longest delay between attempts, in seconds."""


class NoDescriptors(CuebookError):
    """Too many files and connections are open to start this. Nothing was done."""

    code = "no_descriptors"

    def __init__(self) -> None:
        super().__init__(fix="Run fewer things at the same time, or raise the limit (`ulimit -n`).")


def lacks_descriptors(error: BaseException | None) -> bool:
    """Whether an error is due to a lack of descriptors. Native libraries say so only in the message."""
    for _ in range(10):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in _NUMBERS:
            return True
        if any(words in str(error) for words in _WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def exhausted() -> bool:
    """Whether so few descriptors are left that something may fail."""
    held: list[int] = []
    try:
        while len(held) < _FEW:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _NUMBERS
    finally:
        for descriptor in held:
            os.close(descriptor)
    return False


def pauses() -> Iterator[float]:
    """The delay before each attempt."""
    seconds = _FIRST
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST)

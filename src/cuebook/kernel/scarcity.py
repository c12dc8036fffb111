"""A lack of file descriptors. It passes as soon as others close theirs, so an effect waits for that and does not fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from cuebook.kernel.errors import CuebookError

_NUMBERS = (errno.EMFILE, errno.ENFILE)
_WORDS = tuple(os.strerror(number) for number in _NUMBERS)
_FEW = 32
"""Descriptors that suffice to begin anything."""
_FIRST, _LONGEST = 0.1, 5.0
"""Seconds between one try and the next."""


class NoDescriptors(CuebookError):
    """Too many files and connections are open to begin this. Nothing of it was done."""

    code = "no_descriptors"

    def __init__(self) -> None:
        super().__init__(fix="Let fewer things run at once, or raise the limit (`ulimit -n`).")


def lacks_descriptors(error: BaseException | None) -> bool:
    """Whether an error comes from there being no descriptor left. Native libraries say so in words only."""
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
    """Whether there are so few descriptors left right now that something may fail for it."""
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
    """How long to wait before each try."""
    seconds = _FIRST
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST)

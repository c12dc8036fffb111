"""How much a program can be given when it starts: the system refuses more, in words that help nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cuebook.kernel.errors import BadInput

LONGEST = 128 * 1024 - 1
"""Bytes of one argument, or of one variable with its name: what Linux takes."""

_MOST = 2 << 20
"""Bytes of all of them, however much the system would take."""

_SPARE = 64 << 10
"""Of these, for what a sandbox adds."""

_EACH = 9
"""Bytes that each takes besides its own: an address and an end."""


_WIDEST = 4
"""Bytes of a character, at most."""

_SURE = 64 << 10
"""Bytes of all of them that fit, whatever the system says: Linux takes twice as many at least."""


class TooLong(BadInput):
    """The command is given more than a program can take."""

    code = "too_long"


def check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises `TooLong`. No value is quoted: it may be a secret."""
    count = len(argv) + len(env)
    characters = sum(map(len, argv)) + sum(map(len, env)) + sum(map(len, env.values()))
    if _WIDEST * characters + (_EACH + 1) * count <= _SURE:
        return  # whatever its characters are
    sizes = {f"argument {number} of the command": _size(word) for number, word in enumerate(argv)}
    sizes |= {f"variable {name}": _size(f"{name}={value}") for name, value in env.items()}
    for what, size in sizes.items():
        if size > LONGEST:
            raise _too_long(f"The {what} has {size:,} bytes, and a program can be given {LONGEST:,} at most.")
    together, most = sum(sizes.values()) + _EACH * count, _most()
    if together > most:
        words = f"The arguments and variables of the command have {together:,} bytes together"
        raise _too_long(f"{words}, and a program can be given {most:,} at most.")


def _too_long(message: str) -> TooLong:
    return TooLong(message, fix="Hand it over by stdin, or in a file.")


def _most() -> int:
    try:
        told = os.sysconf("SC_ARG_MAX")
    except (OSError, ValueError):
        told = -1
    return (min(told, _MOST) if told > 0 else _MOST) - _SPARE


def _size(text: str) -> int:
    return len(os.fsencode(text))

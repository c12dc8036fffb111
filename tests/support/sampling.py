"""How much of a long test is done: an even sample of it in the suite, all of it with `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("CUEBOOK_THOROUGH"))

T = TypeVar("T")


def some(values: Sequence[T], most: int) -> Sequence[T]:
    """All of them in the thorough form; otherwise at most so many, two or more: the first, the last, and some between."""
    if THOROUGH or len(values) <= most:
        return values
    return [values[number * (len(values) - 1) // (most - 1)] for number in range(most)]


def many(usual: int, thorough: int) -> int:
    """How often something is tried, or how large it is."""
    return thorough if THOROUGH else usual

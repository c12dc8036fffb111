"""Sampling for long tests: an even sample in the suite, everything with `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("CUEBOOK_THOROUGH"))

T = TypeVar("T")


def some(values: Sequence[T], most: int) -> Sequence[T]:
    """All items in thorough mode; otherwise at most this many (two or more): the first, the last, and some in between."""
    if THOROUGH or len(values) <= most:
        return values
    return [values[number * (len(values) - 1) // (most - 1)] for number in range(most)]


def many(usual: int, thorough: int) -> int:
    """The number of attempts, or a size."""
    return thorough if THOROUGH else usual

"""Documents of texts that were read before: a text is read again whenever one of its runs begins or goes on.

A document is frozen and can be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

_LONGEST = 1_000_000
"""Characters of a text whose document is kept for the next time."""
_MOST = 16

A = TypeVar("A", bound=Hashable)
T = TypeVar("T")


def kept(read: Callable[[str, A], T]) -> Callable[[str, A], T]:
    """The same reader of a text, except that it gives again what it has read lately."""
    once = lru_cache(maxsize=_MOST)(read)

    def reading(text: str, about: A) -> T:
        return once(text, about) if len(text) <= _LONGEST else read(text, about)

    return reading

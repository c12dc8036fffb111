"""Suggests known names in place of unknown ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_MOST = 500
"""The maximum number of names to compare with."""
_LETTERS = 40_000
"""The maximum number of letters to compare for one playbook: comparing is slow, and no one reads that many hints."""
_CORRECT = "Correct it."


def meant(name: str, known: Iterable[str]) -> str:
    """Suggests the closest known name, or lists all of them."""
    names = list(known)
    if len(names) > _MOST:
        return ""
    close = get_close_matches(name, names, n=1) or get_close_matches(name.lower(), names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Use one of: {', '.join(names)}." if names else "There are none."


class Hints:
    """Suggestions for the problems in one playbook: each name is compared once, and the total work is limited."""

    def __init__(self) -> None:
        self._left = _LETTERS
        self._known: dict[tuple[str, ...], str] = {}

    def meant(self, name: str, known: Collection[str]) -> str:
        """Like `meant`, until the limit is reached."""
        if len(known) > _MOST:
            return _CORRECT
        key = (name, *known)
        if key not in self._known:
            if self._left <= 0:
                return _CORRECT
            self._left -= sum(map(len, key))
            self._known[key] = meant(name, known)
        return self._known[key]

"""Words that messages about playbooks share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_MOST = 500
"""Names that one is compared with."""
_LETTERS = 40_000
"""Letters of names that are compared for one playbook: comparing is slow, and nobody reads so many hints."""
_CORRECT = "Correct it."


def meant(name: str, known: Iterable[str]) -> str:
    """What may have been meant, or all there is."""
    names = list(known)
    if len(names) > _MOST:
        return ""
    close = get_close_matches(name, names, n=1) or get_close_matches(name.lower(), names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"There are: {', '.join(names)}." if names else "There are none."


class Hints:
    """Hints at what was meant, for the problems of one playbook: a name is compared once, and not without end."""

    def __init__(self) -> None:
        self._left = _LETTERS
        self._told: dict[tuple[str, ...], str] = {}

    def meant(self, name: str, known: Collection[str]) -> str:
        """As `meant`, while that does not take too long."""
        if len(known) > _MOST:
            return _CORRECT
        key = (name, *known)
        if key not in self._told:
            if self._left <= 0:
                return _CORRECT
            self._left -= sum(map(len, key))
            self._told[key] = meant(name, known)
        return self._told[key]

"""Words that messages about playbooks share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 500
"""Names that one is compared with."""


def meant(name: str, known: Iterable[str]) -> str:
    """What may have been meant, or all there is."""
    names = list(known)
    if len(names) > _MOST:
        return ""
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"There are: {', '.join(names)}." if names else "There are none."

"""Takes keys out of text that is about to be shown or stored. It knows texts only, not where keys come from."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "[removed]"

# Providers quote a refused key in their errors, often with its middle starred out; neither form is to be kept.
_KEY_SHAPED = re.compile(r"\b(?:sk|pk|rk|gsk|xai)[-_][A-Za-z0-9_*.\-]{8,}|(?<=[Bb]earer )[^\s\"',}]+")


def masked(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given values and without anything shaped like a key."""
    for secret in sorted({s for s in secrets if s}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _KEY_SHAPED.sub(MASK, text)

"""A glance at a whole value: most values hold nothing that looks like a secret, and are told from the others at once.

What it cannot be sure of, it leaves to a closer look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.kernel.context import Text

_ESCAPES = (("\\n", "\n"), ('\\"', '"'), ("\\t", "\t"))
"""The escapes that JSON often needs. Where a backslash stands for itself there are two, and one is left over."""


def is_clean(value: Any, begins: Callable[[str], object], deepest: int) -> bool:
    """Whether surely nothing begins anywhere in a value, keys and numbers included, nor is it nested too deeply."""
    try:
        text = _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    if len(text) > deepest and text.count("{") + text.count("[") > deepest:
        return False
    # Of a text that was cut off, the beginning of a secret counts as well.
    if 'truncated":true' in text or '"length"' in text or '"watch"' in text:
        return False
    if "\\" in text:
        for escape, char in _ESCAPES:
            text = text.replace(escape, char)
        if "\\" in text:
            return False
    return begins(text) is None


def _shown(value: Any) -> str:
    if isinstance(value, Text):
        return str(value) if value.loaded else ""
    raise TypeError(f"a {type(value).__name__} cannot be seen through")


_encode = msgspec.json.Encoder(enc_hook=_shown).encode

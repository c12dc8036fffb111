"""From bytes that came from outside to text. What is no text in them is replaced, and that can be told."""

from __future__ import annotations

import codecs


def decoded(data: bytes, charset: str = "utf-8", *, cut: bool = False, errors: str = "replace") -> str:
    """The text. A character that a limit has cut in two is left out; `UnicodeDecodeError` if strict."""
    return codecs.getincrementaldecoder(charset)(errors).decode(data) if cut else data.decode(charset, errors)


def is_text(data: bytes, charset: str = "utf-8", *, cut: bool = False) -> bool:
    """Whether nothing has to be replaced in it."""
    try:
        decoded(data, charset, cut=cut, errors="strict")
    except UnicodeDecodeError:
        return False
    return True

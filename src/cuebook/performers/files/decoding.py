"""Decodes external bytes to text. Invalid bytes are replaced, and `is_text` says whether there are any."""

from __future__ import annotations

import codecs


def decoded(data: bytes, charset: str = "utf-8", *, cut: bool = False, errors: str = "replace") -> str:
    """The text, without a final character that a limit cut in two. Raises `UnicodeDecodeError` if strict."""
    return codecs.getincrementaldecoder(charset)(errors).decode(data) if cut else data.decode(charset, errors)


def is_text(data: bytes, charset: str = "utf-8", *, cut: bool = False) -> bool:
    """Whether all bytes are valid."""
    try:
        decoded(data, charset, cut=cut, errors="strict")
    except UnicodeDecodeError:
        return False
    return True

"""JSON as editors keep it, with comments and commas before a closing bracket. It knows texts only.

What JSON does not have is told by blanks in its place, so that whatever is found in one text stands there in the other.
"""

from __future__ import annotations

import re

_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""One that is never closed goes on to the end: so no text takes longer because of it."""
_COMMENT = re.compile(rf"{_TEXT}|(//[^\r\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
_COMMA = re.compile(rf"{_TEXT}|(,)(?=\s*[}}\]])", re.DOTALL)
_LETTER = re.compile(r"[^\r\n]")
_MARK = "\ufeff"
"""What some editors put before a text."""


def without_comments(text: str) -> str:
    """The text with blanks for its comments."""
    blank = _blanked(_COMMENT, text)
    return f" {blank[1:]}" if blank.startswith(_MARK) else blank


def without_commas(text: str) -> str:
    """A text without comments, with blanks for commas that nothing follows."""
    return _blanked(_COMMA, text)


def comments_of(text: str) -> list[str]:
    return [found[1] for found in _COMMENT.finditer(text) if found[1]]


def _blanked(what: re.Pattern[str], text: str) -> str:
    return what.sub(lambda found: _LETTER.sub(" ", found[0]) if found[1] else found[0], text)

"""How much room words take in a drawing. Nobody knows a reader's font here, so the widest of the usual ones counts."""

from __future__ import annotations

from unicodedata import combining, east_asian_width

_NARROW = frozenset(" .,:;'|!/\\()[]{}`iljftrIJ-")
_WIDE = frozenset("mwMW=+<>~…×▸@%&")
_THIN = 0.9
"""What an ordinary letter needs of a bold one's width."""


def width(words: str, size: float, *, bold: bool = False) -> float:
    """Of a line, in units of the size."""
    return sum(map(_width, words)) * size * (1 if bold else _THIN)


def _width(letter: str) -> float:
    if combining(letter):
        return 0
    if letter in _NARROW:
        return 0.47
    if letter in _WIDE or east_asian_width(letter) in "WF":
        return 1.06
    return 0.8 if letter.isupper() else 0.71


def one_line(words: str) -> str:
    return " ".join(words.split())


def fitted(words: str, room: float, size: float, *, bold: bool = False) -> str:
    """As much of a line as there is room for, but at least a letter."""
    line = one_line(words)
    if width(line, size, bold=bold) <= room:
        return line
    room -= width("…", size, bold=bold)
    kept = 0
    while kept < len(line) and (room := room - width(line[kept], size, bold=bold)) >= 0:
        kept += 1
    return f"{line[: max(1, kept)].rstrip()}…"

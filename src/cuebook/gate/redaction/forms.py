"""The forms of a secret: its characters in any spelling, each long line of it, and both as base64 or hex.

It knows one value at a time, and nothing of the texts that these are looked for in.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence

from cuebook.gate.redaction.dumps import after, between
from cuebook.gate.redaction.spellings import BREAKS, Node, any_spelling, digit_spelling, sign_spelling

SHORTEST = 8
"""Shorter secrets and forms would mask innocent text."""
SHORTEST_LINE = 16
"""A line of a secret is masked on its own from this length on."""


class Form:
    """A sequence of characters, each in one of several spellings, that stands for a secret."""

    __slots__ = ("gaps", "name", "tail", "units")

    def __init__(
        self, name: str, units: list[Node], gaps: Sequence[tuple[Node, ...]] = (), tail: Node | None = None
    ) -> None:
        """`gaps` are taken in turn."""
        self.name = name
        self.units = units
        self.gaps = gaps or ((),)
        self.tail = tail
        """What belongs to it where it stands right after it."""

    def gap(self, unit: int) -> tuple[Node, ...]:
        """What may stand before a unit, besides nothing."""
        return self.gaps[unit % len(self.gaps)]


def forms_of(name: str, value: str) -> Iterator[Form]:
    for text in (value, *_long_lines(value)):
        yield Form(name, [any_spelling(char) for char in text])
        for data in _as_bytes(text):
            for digits in _base64_alignments(data):
                if len(digits) >= SHORTEST:
                    units = [sign_spelling(digit) if digit in "+/" else digit_spelling(digit) for digit in digits]
                    yield Form(name, units, [(BREAKS,)])
        for data in _as_words(next(_as_bytes(text))):
            spelt = [digit_spelling(digit + digit.upper()) for digit in data.hex()]
            yield Form(name, spelt, [between(), (BREAKS,)], after())


def _long_lines(value: str) -> set[str]:
    lines = {line.strip() for line in value.splitlines()} - {value}
    # The first and last line of a key file are the same in everyone's.
    return {line for line in lines if len(line) >= SHORTEST_LINE and not re.fullmatch("-----[^-]+-----", line)}


def _as_bytes(text: str) -> Iterator[bytes]:
    """The text as it may stand in something that is encoded as a whole: as such, or within JSON."""
    seen: set[bytes] = set()
    for written in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        try:
            data = written.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = written.encode("utf-8", "surrogatepass")
        if data not in seen:
            seen.add(data)
            yield data
    if not text.isascii() and all(ord(char) < 256 for char in text):
        yield text.encode("latin-1")


def _as_words(data: bytes) -> Iterator[bytes]:
    """The bytes as such, and as dumps of words show them that begin with the lower byte, at both alignments."""
    yield data
    for first in range(2):
        whole = data[first : first + (len(data) - first) // 2 * 2]
        if len(whole) >= SHORTEST - 2:  # all but the bytes that share a word with something else
            yield bytes(whole[at ^ 1] for at in range(len(whole)))


def _base64_alignments(data: bytes) -> Iterator[str]:
    """What is the same whatever stands before and after, when so many bytes (modulo 3) stand before."""
    for before in range(3):
        digits = b64encode(bytes(before) + data).decode()
        first = (before * 8 + 5) // 6
        yield digits[first : (before + len(data)) * 8 // 6]

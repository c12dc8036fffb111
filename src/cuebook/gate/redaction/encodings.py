"""The forms of a secret: its characters in any spelling, each of its long lines, and both as base64 or hex.

This module handles one value at a time; it does not search any text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any


class Node:
    """A node in the tree of spellings of one character."""

    __slots__ = ("ends", "next")

    def __init__(self, spellings: Iterable[str] = ()) -> None:
        self.next: dict[str, Node] = {}
        self.ends = False
        for spelling in spellings:
            node = self
            for char in spelling:
                node = node.next.setdefault(char, Node())
            node.ends = True


_SHORT = {
    '"': ('\\"', '""'),
    "'": ("\\'", "''", "'\\''", "'\"'\"'"),
    "\\": ("\\\\",),
    "/": ("\\/",),
    " ": ("+",),
    "\b": ("\\b",),
    "\f": ("\\f",),
    "\n": ("\\n", "\r\n"),
    "\r": ("\\r",),
    "\t": ("\\t",),
}
"""Escapes in JSON, programming languages, shells, CSV and web forms."""


@lru_cache(maxsize=4096)
def any_spelling(char: str) -> Node:
    """The character itself, escaped in any way, and escaped twice, in the same or different ways."""
    return Node(_spellings(char))


@lru_cache(maxsize=4096)
def any_case(char: str) -> Node:
    """The character in upper and lower case, each in any spelling."""
    cases = {char, char.lower(), char.upper(), char.casefold()}
    return Node(set[str]().union(*(_spellings(one) if len(one) == 1 else {one} for one in cases)))


def _spellings(char: str) -> set[str]:
    once = {char, *_escaped(char)}
    return once.union(*map(_escaped_again, once))


def _escaped(char: str) -> Iterator[str]:
    code = ord(char)
    yield from _SHORT.get(char, ())
    encoded = {char.encode("utf-8", "surrogatepass")}
    if 128 <= code < 256:
        encoded.add(char.encode("latin-1"))
    if code >= 128:  # UTF-8 that was decoded as Latin-1, as in the headers of a request
        yield char.encode("utf-8", "surrogatepass").decode("latin-1")
    for data in encoded:
        yield from _both_cases("%{:02x}", data)
        yield from _both_cases("\\x{:02x}", data)
    wide = char.encode("utf-16-be", "surrogatepass")
    yield from _both_cases("\\u{:04x}", [int.from_bytes(wide[at : at + 2]) for at in range(0, len(wide), 2)])
    yield from _both_cases("&#x{:x};", [code])
    yield from (f"&#{code};", f"&#{code:03};", *_named_entities().get(char, ()))


def _both_cases(pattern: str, numbers: Iterable[int]) -> tuple[str, str]:
    numbers = list(numbers)
    upper = pattern.replace("x}", "X}")
    return "".join(map(pattern.format, numbers)), "".join(map(upper.format, numbers))


def _escaped_again(text: str) -> Iterator[str]:
    from html import escape
    from urllib.parse import quote

    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (in_json, in_json.replace("/", "\\/"))
    in_url = quote(text, safe="", errors="surrogatepass")
    yield from (in_url, re.sub("%..", lambda found: found[0].lower(), in_url))
    in_html = escape(text)
    yield from (in_html, in_html.replace("&#x27;", "&#39;"), escape(text, quote=False))


@lru_cache(maxsize=1)
def _named_entities() -> dict[str, list[str]]:
    from html.entities import html5

    names: dict[str, list[str]] = {}
    for name, char in html5.items():
        if name.endswith(";"):
            names.setdefault(char, []).append(f"&{name}")
    return names


@lru_cache(maxsize=256)
def digit_spelling(chars: str) -> Node:
    """A base64 or hex digit that is a letter or a number; these are never escaped."""
    return Node(chars)


@lru_cache(maxsize=2)
def sign_spelling(char: str) -> Node:
    """A base64 digit that is `+` or `/`. The URL-safe alphabet has other characters for them."""
    once = {char, {"+": "-", "/": "_"}[char], *_escaped(char)}
    return Node(once.union(*map(_escaped_again, once)))


_LINE_BREAKS = ("\n", "\r\n", "\\n", "\\r\\n", "\\\\n", "\\\\r\\\\n", "%0A", "%0D%0A", "%0a", "%0d%0a")
BREAKS = Node({*_LINE_BREAKS, "\n\t", *("\n" + " " * count for count in range(1, 9))})
"""Separators that may occur between two digits in wrapped text."""


_WIDEST = 96
"""How many characters beside the digits of a line are searched."""
_OFFSET = 16
"""The maximum number of digits in the offset of a line."""
_HEX = "0123456789abcdefABCDEF"

_MARKS = (":", "-", ",", ";", "_", "|", " ", ".", "\t", "\\t")
_PREFIXES = ("", "0x", "0X")
_FOLDS = ("\n", "\r\n", "\\n")
_INDENTS = (*(" " * count for count in range(9)), "\t")


class _Printable(dict[str, Node]):
    """Continues with the same node for every character that a dump can show, unless it has its own entry."""

    def __init__(self, rest: Node | None) -> None:
        super().__init__()
        self._rest = rest

    def get(self, char: str, default: Any = None) -> Any:
        return super().get(char, self._rest if " " <= char <= "~" else default)

    def __bool__(self) -> bool:
        return True


def _numbered_line(escaped: bool) -> Node:
    """The rest of a dump line (spaces, and characters with or without bars around them) and the offset of the next
    line, optionally escaped as in JSON.
    """
    after, beside = _number(), None
    fold, begins = ("\\", _leading({"n": after})) if escaped else ("\n", after)
    for _ in range(_WIDEST):
        rest, beside = beside, _with(_Printable(beside))
        beside.next[fold] = begins
        if escaped:
            beside.next[fold] = _with(_Printable(rest))
            beside.next[fold].next["n"] = after
    assert beside is not None
    return _leading({" ": _leading({" ": beside, fold: begins}), fold: begins})


def _number() -> Node:
    """The offset at the beginning of a line, as in `00000010: ` or `0000020 `."""
    end = _leading({})
    end.ends = True
    blank = _leading({" ": end})
    blank.ends = True
    colon = _leading({" ": blank})
    place = _leading({" ": blank, ":": colon})
    for _ in range(_OFFSET - 1):
        place = _leading({" ": blank, ":": colon, **dict.fromkeys(_HEX, place)})
    return _leading(dict.fromkeys(_HEX, place))


def _leading(places: dict[str, Node]) -> Node:
    return _with(dict(places))


def _with(places: dict[str, Node]) -> Node:
    made = Node()
    made.next = places
    return made


@lru_cache(maxsize=1)
def between() -> tuple[Node, ...]:
    """Separators that may occur between two bytes."""
    return (
        BREAKS,
        Node(map("".join, product(_MARKS, ("", " "), _PREFIXES))),
        Node(map("".join, product(("", *_MARKS), _FOLDS, (*_INDENTS, *_MARKS), _PREFIXES))),
        _numbered_line(escaped=False),
        _numbered_line(escaped=True),
    )


@lru_cache(maxsize=1)
def after() -> Node:
    """The rest of the last line of a dump: other bytes, two spaces, and the characters up to the end of the line."""
    beside = _leading({})
    beside.ends = True
    for _ in range(_WIDEST):
        beside = _with(_Printable(beside))
        beside.ends = True
    start = _leading({})
    for _ in range(_WIDEST):
        blank = _leading({" ": _with(_Printable(beside)), **dict.fromkeys(_HEX, start)})
        start = _leading({" ": blank, **dict.fromkeys(_HEX + ":-", start)})
    return start


SHORTEST = 8
"""Masking shorter secrets and forms would mask unrelated text."""
SHORTEST_LINE = 16
"""Lines of a secret that are at least this long are also masked on their own."""


LONGEST_ANY_CASE = 4_000
"""The lines of longer values, and the base64 and hex of them, are masked as they are written only: many forms take time."""


class Form:
    """A sequence of characters, each in one of several spellings, that represents a secret."""

    __slots__ = ("gaps", "name", "tail", "units")

    def __init__(
        self, name: str, units: list[Node], gaps: Sequence[tuple[Node, ...]] = (), tail: Node | None = None
    ) -> None:
        """`gaps` are used in rotation."""
        self.name = name
        self.units = units
        self.gaps = gaps or ((),)
        self.tail = tail
        """Also part of the form if it follows directly."""

    def gap(self, unit: int) -> tuple[Node, ...]:
        """The separators that may precede a unit."""
        return self.gaps[unit % len(self.gaps)]


def all_forms_of(name: str, value: str) -> Iterator[Form]:
    """Like `forms_of`, but also in any case and backwards, as a model may repeat a name or an address."""
    yield Form(name, [any_case(char) for char in value])
    yield Form(name, [any_case(char) for char in reversed(value)])
    others = (value.lower(), value.upper(), value[::-1]) if len(value) <= LONGEST_ANY_CASE else ()
    for text in dict.fromkeys((value, *others)):
        yield from forms_of(name, text)


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
    # The first and last line are the same in every key file.
    return {line for line in lines if len(line) >= SHORTEST_LINE and not re.fullmatch("-----[^-]+-----", line)}


def _as_bytes(text: str) -> Iterator[bytes]:
    """The bytes of the text as they may appear in larger encoded data: as is, or within JSON."""
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
    """The bytes themselves, and in the order of little-endian word dumps, at both alignments."""
    yield data
    for first in range(2):
        whole = data[first : first + (len(data) - first) // 2 * 2]
        if len(whole) >= SHORTEST - 2:  # all but the bytes that share a word with something else
            yield bytes(whole[at ^ 1] for at in range(len(whole)))


def _base64_alignments(data: bytes) -> Iterator[str]:
    """The digits that do not depend on the surrounding bytes, for each number of preceding bytes (modulo 3)."""
    for before in range(3):
        digits = b64encode(bytes(before) + data).decode()
        first = (before * 8 + 5) // 6
        yield digits[first : (before + len(data)) * 8 // 6]

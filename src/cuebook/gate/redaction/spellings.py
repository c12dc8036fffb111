"""The ways to write a character: as it is, or escaped as texts of all kinds escape it, once or twice.

It knows characters, and nothing of secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache


class Node:
    """A place within the ways to write one character."""

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
"""Escapes of JSON, of programming languages, shells, CSV and forms."""


@lru_cache(maxsize=4096)
def any_spelling(char: str) -> Node:
    """The character as such, escaped in any way, and once more escaped, in the same way or another."""
    once = {char, *_escaped(char)}
    return Node(once.union(*map(_escaped_again, once)))


def _escaped(char: str) -> Iterator[str]:
    code = ord(char)
    yield from _SHORT.get(char, ())
    encoded = {char.encode("utf-8", "surrogatepass")}
    if 128 <= code < 256:
        encoded.add(char.encode("latin-1"))
    if code >= 128:  # UTF-8 that someone took for Latin-1, as in the headers of a request
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
    """A digit of base64 or hex that is a letter or a number: nobody escapes these."""
    return Node(chars)


@lru_cache(maxsize=2)
def sign_spelling(char: str) -> Node:
    """A digit of base64 that is neither. The alphabet for URLs has others in their place."""
    once = {char, {"+": "-", "/": "_"}[char], *_escaped(char)}
    return Node(once.union(*map(_escaped_again, once)))


_LINE_BREAKS = ("\n", "\r\n", "\\n", "\\r\\n", "\\\\n", "\\\\r\\\\n", "%0A", "%0D%0A", "%0a", "%0d%0a")
BREAKS = Node({*_LINE_BREAKS, "\n\t", *("\n" + " " * count for count in range(1, 9))})
"""What may stand between two digits where the text is folded."""

"""Wildcard patterns: `*` matches any text and `?` any single character. A pattern must match the entire text.

Matching takes linear time, whatever the pattern: all partial matches are tracked at once, one bit each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

LONGEST = 1000
"""The maximum number of characters in a pattern."""


def is_literal(pattern: str) -> bool:
    return "*" not in pattern and "?" not in pattern


def fits(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text. Matching is case-sensitive."""
    return _compiled(pattern, False).covers(text)


def fits_any(pattern: str, texts: Iterable[str]) -> bool:
    return any(map(_compiled(pattern, False).covers, texts))


def fits_path(pattern: str, path: str) -> bool:
    """Like `fits`, but `*` and `?` do not match a `/`; `**` does, and `**/` may also match nothing."""
    return _compiled(pattern, True).covers(path)


class Stand:
    """Placeholders for values that are not known yet."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = re.compile("|".join(map(re.escape, words)) or r"(?!)")

    def within(self, text: str) -> bool:
        return self._words.search(text) is not None

    def pieces(self, text: str) -> list[str]:
        """The known pieces of the text."""
        return self._words.split(text)


def may_fit(pattern: str, pieces: Sequence[str]) -> bool:
    """Whether the pattern could match the pieces with any text between them. Matching is case-sensitive."""
    states = _with_nothing(pattern, {0})
    for number, piece in enumerate(pieces):
        if number:
            states = set(range(min(states), len(pattern) + 1))
        for letter in piece:
            stay = {at for at in states if pattern[at : at + 1] == "*"}
            moved = {at + 1 for at in states if pattern[at : at + 1] in ("?", letter) and at not in stay}
            states = _with_nothing(pattern, stay | moved)
            if not states:
                return False
    return len(pattern) in states


def _with_nothing(pattern: str, states: set[int]) -> set[int]:
    """These positions of a pattern, and those after a `*` that matches nothing."""
    found = set(states)
    for at in states:
        while pattern[at : at + 1] == "*":
            at += 1
            found.add(at)
    return found


class _Glob:
    """Bit `n` of the state says that the first `n` letters of the pattern, wildcards aside, have been read."""

    __slots__ = ("_accepting", "_any", "_deep", "_letters", "_literal", "_loops", "_prefix", "_skips", "_tail")

    def __init__(self, pattern: str, paths: bool) -> None:
        self._literal = pattern if is_literal(pattern) else None
        self._prefix = pattern[: _first_wildcard(pattern)]
        self._tail = not paths and pattern == f"{self._prefix}*"
        self._letters: dict[str, int] = {}
        self._any = self._loops = self._deep = self._skips = 0
        count, at = 0, 0
        while at < len(pattern):
            bit, letter = 1 << count, pattern[at]
            if letter == "*" and paths and pattern.startswith("**", at):
                self._loops |= bit
                self._deep |= bit
                if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
                    self._skips |= bit
                at += 2
                continue
            at += 1
            if letter == "*":
                self._loops |= bit
                self._deep |= 0 if paths else bit
                continue
            if letter == "?":
                self._any |= bit
            else:
                self._letters[letter] = self._letters.get(letter, 0) | bit
            count += 1
        self._accepting = 1 << count
        if not paths:
            self._letters.setdefault("/", 0)
            self._letters["/"] |= self._any

    def covers(self, text: str) -> bool:
        if self._literal is not None:
            return text == self._literal
        if not text.startswith(self._prefix):
            return False
        return self._tail or self._run(text)

    def _run(self, text: str) -> bool:
        letters, any_letter, loops, deep, skips = self._letters, self._any, self._loops, self._deep, self._skips
        state = 1 | (1 & skips) << 1
        for letter in text:
            if letter == "/":
                moved = (state & letters.get("/", 0)) << 1
                state = moved | (moved & skips) << 1 | state & deep
            else:
                moved = (state & (letters.get(letter, 0) | any_letter)) << 1
                state = moved | (moved & skips) << 1 | state & loops
            if not state:
                return False
        return bool(state & self._accepting)


def _first_wildcard(pattern: str) -> int:
    return min((at for at in (pattern.find("*"), pattern.find("?")) if at >= 0), default=len(pattern))


@lru_cache(maxsize=4096)
def _compiled(pattern: str, paths: bool) -> _Glob:
    while paths and "**/**/" in pattern:
        pattern = pattern.replace("**/**/", "**/")
    return _Glob(pattern, paths)

"""JavaScript regular expressions, matched in linear time.

They are translated for RE2, which never backtracks, so no pattern can block the process. Lookaround and backreferences,
which RE2 does not support, are rejected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cuebook.kernel.errors import BadInput

_REPEAT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}", re.ASCII)
_GROUP_NAME = re.compile(r"[A-Za-z_$][\w$]*>", re.ASCII)
_LETTER = re.compile("[A-Za-z]")
_PROPERTY = re.compile(r"[pP]\{(?:(?:Script|sc)=)?([A-Za-z_]+)\}", re.ASCII)
_CODE_POINT = re.compile(r"\{([0-9a-fA-F]{1,6})\}", re.ASCII)
_FLAGS = re.compile(r"[ims]*(?:-[ims]+)?:", re.ASCII)

_SPACES = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_NO_SPACES = (
    r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_CLASSES = {"d": "0-9", "D": r"\D", "w": r"0-9A-Za-z_", "W": r"\W", "s": _SPACES, "S": _NO_SPACES}
_ANY = r"[^\n\r\x{2028}\x{2029}]"
_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class UnsupportedRegex(BadInput):
    """The pattern cannot be used."""

    code = "unsupported_regex"


def searches(pattern: str, text: str, *, unicode: bool = False) -> bool:
    """Whether the pattern is found anywhere in the text. With `unicode`, it is interpreted as with JavaScript's `u` flag."""
    return compiled(pattern, unicode).search(text.encode("utf-8", "replace")) is not None


@lru_cache(maxsize=1024)
def compiled(pattern: str, unicode: bool = False) -> Any:
    """Compiles a pattern for searching UTF-8. Raises `UnsupportedRegex` with the reason if it cannot be used."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_Translation(pattern, unicode).result().encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0] if error.args else ""
        said = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise UnsupportedRegex(f"The pattern cannot be used: {said}.", fix="Write a simpler pattern.") from None


class _Translation:
    """Translates a JavaScript pattern for RE2, piece by piece."""

    def __init__(self, pattern: str, unicode: bool) -> None:
        self._pattern = pattern
        self._unicode = unicode
        self._at = 0
        self._pieces: list[str] = []

    def result(self) -> str:
        while self._at < len(self._pattern):
            self._pieces.append(self._piece())
        return "".join(self._pieces)

    def _next(self, count: int = 1) -> str:
        taken = self._pattern[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def _follows(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _piece(self) -> str:
        letter = self._next()
        match letter:
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case "(" if self._follows("?"):
                return self._group()
            case ".":
                return _ANY
            case "{":
                return self._repeat()
            case "}" | "]":
                return f"\\{letter}"
        return letter

    def _repeat(self) -> str:
        """A repetition, or a brace that stands for itself."""
        found = _REPEAT.match(self._pattern, self._at - 1)
        return "{" + self._next(found.end() - self._at) if found else r"\{"

    def _group(self) -> str:
        self._next()
        if self._follows(":"):
            self._next()
            return "(?:"
        if self._follows("=") or self._follows("!") or self._follows("<=") or self._follows("<!"):
            raise UnsupportedRegex(
                "The pattern uses lookahead or lookbehind.", fix="Write it without (?=, (?!, (?<= and (?<!."
            )
        if self._follows("<"):
            found = _GROUP_NAME.match(self._pattern, self._at + 1)
            if found:
                self._at = found.end()
                return "("  # names matter only for captures, which are not used
        found = _FLAGS.match(self._pattern, self._at)
        if found:
            self._at = found.end()
            return f"(?{found[0]}"
        raise UnsupportedRegex(
            f"The pattern has '(?{self._pattern[self._at : self._at + 2]}', which is not a group.",
            fix="A group is (...), (?:...), (?<name>...) or (?i:...).",
        )

    def _escape(self) -> str:
        """An escape sequence outside brackets."""
        letter = self._pattern[self._at : self._at + 1]
        if letter in ("b", "B"):
            return f"\\{self._next()}"
        if letter and letter in "123456789":
            raise self._backreference()
        if letter == "k" and "(?<" in self._pattern:
            raise self._backreference()
        if letter in _CLASSES:
            return f"[{_CLASSES[self._next()]}]"
        return self._property() or _literal(self._character())

    def _property(self) -> str:
        """A Unicode class such as `\\p{L}`, which needs the `u` flag."""
        found = _PROPERTY.match(self._pattern, self._at) if self._unicode else None
        if found is None:
            return ""
        self._at = found.end()
        return f"\\{found[0][0]}{{{found[1]}}}"

    def _backreference(self) -> UnsupportedRegex:
        return UnsupportedRegex("The pattern uses a backreference.", fix="Write the repeated part out.")

    def _character(self) -> int:
        """The character that an escape sequence stands for, after its backslash."""
        letter = self._next()
        if not letter:
            raise UnsupportedRegex("The pattern ends in a backslash.", fix=r"Write \\ for a backslash.")
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "0":
            return 0
        if letter == "c":
            if _LETTER.match(self._pattern, self._at):
                return ord(self._next()) % 32
            self._at -= 1  # the backslash stands for itself
            return ord("\\")
        digits = {"x": 2, "u": 4}.get(letter, 0)
        number = self._pattern[self._at : self._at + digits]
        if digits and len(number) == digits and all(one in "0123456789abcdefABCDEF" for one in number):
            self._next(digits)
            return int(number, 16)
        if self._unicode:
            return self._strict(letter)
        return ord(letter)

    def _strict(self, letter: str) -> int:
        """The character with the `u` flag, which rejects meaningless escapes."""
        found = _CODE_POINT.match(self._pattern, self._at) if letter == "u" else None
        if found and int(found[1], 16) <= 0x10FFFF:
            self._at = found.end()
            return int(found[1], 16)
        if letter.isascii() and letter.isalnum():
            raise UnsupportedRegex(f"The pattern has '\\{letter}', which has no meaning.", fix="Remove the backslash.")
        return ord(letter)

    def _class(self) -> str:
        """A set of characters in brackets, which may be empty in JavaScript."""
        negated = self._follows("^")
        if negated:
            self._next()
        if self._follows("]"):
            self._next()
            return r"[\x{0}-\x{10ffff}]" if negated else r"[^\x{0}-\x{10ffff}]"
        pieces: list[str] = []
        after_class = False
        while not self._follows("]"):
            letter = self._next()
            if not letter:
                raise UnsupportedRegex("A '[' in the pattern is not closed.", fix=r"Close it, or write \[.")
            if letter == "\\" and self._pattern[self._at : self._at + 1] in tuple(_CLASSES):
                if pieces and pieces[-1] == "-" and len(pieces) > 1:
                    pieces[-1] = r"\-"  # a range cannot end in a class, so the hyphen stands for itself
                pieces.append(_CLASSES[self._next()])
                after_class = True
                continue
            if letter == "\\" and (prop := self._property()):
                pieces.append(prop)
                after_class = True
                continue
            if letter == "-":
                edge = not pieces or after_class or self._follows("]")
                pieces.append(r"\-" if edge else "-")
            elif letter == "\\":
                pieces.append(_literal(8 if self._follows("b") and self._next() else self._character()))
            else:
                pieces.append(_literal(ord(letter)))
            after_class = False
        self._next()
        return f"[{'^' if negated else ''}{''.join(pieces)}]"


def _literal(code: int) -> str:
    """One literal character, inside or outside brackets."""
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{code:x}}}"

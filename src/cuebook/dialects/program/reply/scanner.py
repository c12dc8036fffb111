"""Splits a reply into directives (the text in back-ticks) and the lines of text between them, as it arrives.

A directive ends at the first back-tick outside strings; text in a string has no effect, even if it looks like a
directive. Each character is read once, no matter how the text is split.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec


class Span(msgspec.Struct, frozen=True):
    """A directive without its back-ticks, or a piece of a line."""

    text: str
    start: int
    """For a directive, the offset of its first back-tick."""
    end: int
    directive: bool = False
    line_start: bool = False
    """Whether text begins a line; otherwise it follows a directive."""
    before_directive: bool = False
    broken: str = ""
    """Why a directive is not closed."""
    broken_at: int = 0


_OPENS = frozenset("([{")
_TEXT = re.compile(r"[`\n]")
_HEAD = re.compile(r"[\w$.: \t]*+")
_NAME = re.compile(r"\s*+[^\W\d][\w.]*+\Z")
_ASSIGNED = re.compile(r"\s*+\$\w++\s*+(?::\s*+\w++\s*+)?+\Z")
_VARIABLE = {"(": re.compile(r"\s*+\$[\w.]++\Z"), "[": re.compile(r"\s*+\$\w++\s*+:\s*+\w++\Z")}
_BODY = re.compile(r"[`\"'()\[\]{}]")
_STRING = {quote: re.compile(rf"{quote}[^{quote}\\]++{quote}") for quote in "\"'"}
"""A non-empty string without escapes. Two quotes at the beginning would be ambiguous."""
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_PREFIX = re.compile(r"(?:^|\W)[rbufRBUF]{1,2}\Z")


class Scanner:
    """Passes each span to `emit` as soon as it is complete.

    `opaque` decides, from the text before a line's first back-tick, whether back-ticks have no meaning in that line.
    """

    def __init__(self, emit: Callable[[Span], None], opaque: Callable[[str, bool], bool]) -> None:
        self._emit, self._opaque_line = emit, opaque
        self.offset = 0
        """The number of characters seen so far."""
        self._mode: Callable[[str, int], int] = self._in_text
        self._pieces: list[str] = []
        """The pieces of the current span: text, or the inside of a directive."""
        self._start = 0
        self._line_start = True
        self._opaque: bool | None = None
        """Whether back-ticks have no meaning until the end of the line; unknown before the first back-tick."""
        self._head: list[str] = []
        self._tick = 0
        self._opened: list[int] = []
        """The offsets of brackets that are still open."""
        self._quote, self._long, self._string_at = "", False, 0
        self._quotes = 0
        """Consecutive quotes inside a long string: the third one ends it."""
        self._tail = ""
        """The last characters before a quote: an apostrophe within a word does not begin a string."""
        self._base = 0
        self._stopped = False

    def feed(self, chunk: str) -> None:
        self._base, at = self.offset, 0
        while at < len(chunk) and not self._stopped:
            at = self._mode(chunk, at)
        self.offset += len(chunk)

    def finish(self) -> None:
        """Process the end of the text."""
        if self._stopped:
            return
        if self._mode in (self._in_text, self._in_head):
            if self._mode == self._in_head:
                self._pieces += ["`", *self._head]
            self._end_text(self.offset, before_directive=False)
        elif self._quote and self._mode != self._after_two:
            self._break("this string is not closed", self._string_at, self.offset)
        elif self._opened:
            self._break("this bracket is not closed", self._opened[-1], self.offset)
        else:
            self._break("the back-tick is not closed", self._tick, self.offset)

    # --- text -----------------------------------------------------------------------------------------------

    def _in_text(self, chunk: str, at: int) -> int:
        found = _TEXT.search(chunk, at)
        if found is None:
            self._pieces.append(chunk[at:])
            return len(chunk)
        stop = found.start()
        self._pieces.append(chunk[at:stop])
        if chunk[stop] == "\n":
            self._end_text(self._base + stop, before_directive=False)
            self._begin_text(self._base + stop + 1, line_start=True)
            return stop + 1
        if self._opaque is None:
            self._pieces = ["".join(self._pieces)]
            self._opaque = self._opaque_line(self._pieces[0], self._line_start)
        if self._opaque:
            self._pieces.append("`")
            return stop + 1
        self._tick, self._head, self._mode = self._base + stop, [], self._in_head
        return stop + 1

    def _begin_text(self, at: int, *, line_start: bool) -> None:
        self._start, self._line_start, self._opaque = at, line_start, None
        self._mode = self._in_text

    def _end_text(self, at: int, *, before_directive: bool) -> None:
        text = "".join(self._pieces)
        self._pieces = []
        if text and not text.isspace():
            span = Span(text, self._start, at, line_start=self._line_start, before_directive=before_directive)
            self._emit(span)

    def _in_head(self, chunk: str, at: int) -> int:
        """Read the text after a back-tick: only a call, an assignment or `Name[` begins a directive."""
        found = _HEAD.match(chunk, at)
        stop = found.end() if found else at
        self._head.append(chunk[at:stop])
        if stop == len(chunk):
            return stop
        head, letter = "".join(self._head), chunk[stop]
        named = letter in "([" and _NAME.match(head)
        if named or (letter == "=" and _ASSIGNED.match(head)) or (letter in "([" and _VARIABLE[letter].match(head)):
            self._end_text(self._tick, before_directive=True)
            self._pieces, self._opened, self._mode, self._tail = [head], [], self._in_body, head[-3:]
        else:
            self._pieces += ["`", head]
            self._mode = self._in_text
        self._head = []
        return stop

    # --- directives -----------------------------------------------------------------------------------------

    def _in_body(self, chunk: str, at: int) -> int:
        found = _BODY.search(chunk, at)
        if found is None:
            self._keep(chunk[at:])
            return len(chunk)
        stop, letter = found.start(), found[0]
        if letter == "`":
            self._pieces.append(chunk[at:stop])
            return self._closed(stop)
        if letter in "\"'":
            self._keep(chunk[at:stop])
            return self._at_quote(chunk, stop, letter)
        if letter in _OPENS:
            self._opened.append(self._base + stop)
        elif self._opened:
            self._opened.pop()
        self._keep(chunk[at : stop + 1])
        return stop + 1

    def _at_quote(self, chunk: str, at: int, quote: str) -> int:
        """Begin a string, unless the quote is an apostrophe. A string that is complete in this chunk is consumed at once."""
        if quote == '"' or not self._within_word():
            whole = _STRING[quote].match(chunk, at)
            if whole is not None:
                self._pieces.append(whole[0])
                self._end_string()
                return whole.end()
            self._quote, self._string_at, self._mode = quote, self._base + at, self._after_one
        self._keep(quote)
        return at + 1

    def _keep(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._tail = (self._tail + text[-3:])[-3:]

    def _within_word(self) -> bool:
        return bool(self._tail) and self._tail[-1].isalnum() and not _PREFIX.search(self._tail)

    def _closed(self, stop: int) -> int:
        if self._opened:  # a back-tick outside a string belongs to no value, so this can never be parsed
            self._break("this bracket is not closed before the back-tick", self._opened[-1], self._base + stop)
            return stop
        end = self._base + stop + 1
        self._emit(Span("".join(self._pieces), self._tick, end, directive=True))
        self._pieces = []
        self._begin_text(end, line_start=False)
        return stop + 1

    def _break(self, why: str, at: int, end: int) -> None:
        self._emit(Span("".join(self._pieces), self._tick, end, broken=why, broken_at=at))
        self._pieces, self._stopped = [], True

    # --- strings --------------------------------------------------------------------------------------------

    def _after_one(self, chunk: str, at: int) -> int:
        if chunk[at] != self._quote:
            self._mode = self._in_string
            return at
        self._pieces.append(self._quote)
        self._mode = self._after_two
        return at + 1

    def _after_two(self, chunk: str, at: int) -> int:
        """Two quotes are an empty string, unless a third follows."""
        if chunk[at] != self._quote:
            self._end_string()
            return at
        self._pieces.append(self._quote)
        self._mode, self._long, self._quotes = self._in_long_string, True, 0
        return at + 1

    def _end_string(self) -> None:
        self._quote, self._long, self._tail, self._mode = "", False, '"', self._in_body

    def _in_string(self, chunk: str, at: int) -> int:
        found = _IN_STRING[self._quote].search(chunk, at)
        if found is None:
            self._pieces.append(chunk[at:])
            return len(chunk)
        stop = found.end()
        self._pieces.append(chunk[at:stop])
        if found[0] == "\\":
            self._mode = self._escaped
        else:
            self._end_string()
        return stop

    def _in_long_string(self, chunk: str, at: int) -> int:
        found = _IN_STRING[self._quote].search(chunk, at)
        if found is None:
            self._pieces.append(chunk[at:])
            self._quotes = 0
            return len(chunk)
        stop = found.end()
        self._pieces.append(chunk[at:stop])
        if found.start() > at:
            self._quotes = 0
        if found[0] == "\\":
            self._quotes, self._mode = 0, self._escaped
            return stop
        self._quotes += 1
        if self._quotes == 3:
            self._end_string()
        return stop

    def _escaped(self, chunk: str, at: int) -> int:
        self._pieces.append(chunk[at])
        self._mode = self._in_long_string if self._long else self._in_string
        return at + 1

"""Splits streaming Markdown into blocks that later text does not change, so that each is rendered once it is complete.

The blocks depend on the text alone, not on the pieces in which it came, so a page and its stream show the same ones. No
HTML here.
"""

from __future__ import annotations

import re

from cuebook.surfaces.web.pages.formatted import looks_like_diff

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_LIST = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")
_INDENTED = (" ", "\t")
_VALUES = ("{", "[")
"""How texts begin that are formatted as a whole: JSON. So are diffs."""


class Blocks:
    """The complete blocks of a text that grows."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        """Where each block ends; it begins where the one before ends."""
        self._text = ""
        self._at = 0
        """Where the first line begins that is not complete yet."""
        self._open = False
        self._holds = False
        """Whether the open block may continue after an empty line, as lists and indented code do."""
        self._is_list = False
        self._blank = False
        self._fence = ""
        self._whole = False

    def read(self, text: str) -> list[int]:
        """Reads the rest of the text; one that does not continue the text before is read from its beginning."""
        if not text.startswith(self._text):
            self.__init__()  # type: ignore[misc]
        self._text = text
        while not self._whole and (end := text.find("\n", self._at) + 1):
            begin, self._at = self._at, end
            self._line(text[begin:end].rstrip(), begin)
        return self.ends

    def _line(self, line: str, begin: int) -> None:
        if self._fence:
            bare = line.lstrip()
            if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
                self._fence = ""
                if not self._holds:
                    self._close(self._at)
            return
        if not line:
            if self._open and not self._holds:
                self._close(self._at)
            self._blank = True
            return
        if self._open and self._blank and not self._continues(line):
            self._close(begin)
        if not self._open:
            self._begin(line)
        self._blank = False
        fence = _FENCE.match(line)
        self._fence = fence[1] if fence else ""

    def _begin(self, line: str) -> None:
        if not self.ends and line.lstrip().startswith(_VALUES):
            self._whole = True
        self._open = True
        self._is_list = _LIST.match(line) is not None
        self._holds = self._is_list or line.startswith(("    ", "\t"))

    def _continues(self, line: str) -> bool:
        return self._holds and (line.startswith(_INDENTED) or (self._is_list and _LIST.match(line) is not None))

    def _close(self, end: int) -> None:
        self._open = False
        if not self.ends and looks_like_diff(self._text):
            self._whole = True
            return
        self.ends.append(end)


def blocks_of(text: str) -> tuple[list[str], str]:
    """The complete blocks of a text, and the rest."""
    ends = Blocks().read(text)
    begins = [0, *ends]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=False)], text[begins[-1] :]

"""A line below everything that is written on a terminal, which is redrawn in place and leaves nothing behind."""

from __future__ import annotations

from rich.cells import set_cell_size
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.style import Style
from rich.text import Text


class StatusLine:
    """Keeps one line under the place where text is being written; the cursor stays at that place.

    It is never in the way: whoever is about to break a line hides it first, and shows it again when that is done.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        # Only where a cursor can be moved: not in a file, in a picture, or on a dumb terminal.
        self.works = console.file.isatty() and not console.is_dumb_terminal
        self._words: str | None = None

    @property
    def shown(self) -> bool:
        return self._words is not None

    def show(self, words: str, column: int) -> None:
        """Draws the line, or draws it anew if it says something else; `column` is where text is being written."""
        # At the very edge a terminal may have broken the line by itself, and the place would be another.
        if not self.works or not 0 <= column < self._console.width or words == self._words:
            return
        if self.shown:
            self._console.control(Control((ControlType.CURSOR_DOWN, 1), (ControlType.CURSOR_MOVE_TO_COLUMN, 0)))
        else:
            self._console.print()
        fitting = set_cell_size(words, self._console.width - 1)
        self._console.print(Text(fitting, Style(dim=True)), end="", no_wrap=True, crop=False, overflow="ignore")
        self._console.control(Control((ControlType.CURSOR_UP, 1), (ControlType.CURSOR_MOVE_TO_COLUMN, column)))
        self._words = words

    def hide(self) -> None:
        """Takes the line away; the cursor stays where it is."""
        if not self.shown:
            return
        self._words = None
        self._console.control(
            Control((ControlType.CURSOR_DOWN, 1), (ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        )

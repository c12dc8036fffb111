"""What a person types at a terminal: a line, or a text of several lines that is pasted as one.

The terminal itself would cut a line at 4,095 bytes and take a pasted text for several answers, so it is asked for its
keys one by one, and the line is edited here.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from cuebook.surfaces.cli.plain import harmless

_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_KEY = re.compile(
    r"\x1b\[[0-9;?]*(?:[@-~]|(?=[^0-9;?@-~]))"  # an arrow, say
    r"|\x1bO(?:[ -~]|(?=[^ -~]))"
    r"|\x1b(?:[ -NP-Z\\-~]|(?=[^ -~]))"  # Alt with a letter, or Esc alone
    r"|[^\x1b]"
)
_END, _ERASE, _ERASE_WORD, _ERASE_LINE = "\x04", ("\x7f", "\b"), "\x17", "\x15"


class Keyboard:
    """Lines as a person types them: erased with the usual keys, and with Ctrl-D as the end."""

    def __init__(self, file: int, screen: IO[str]) -> None:
        self._file = file
        self._screen = screen
        self._marks_pastes = os.environ.get("TERM", "dumb") != "dumb"

    def forget(self) -> None:
        """What was typed before a question was seen does not answer it, and is nothing for the shell either."""
        with suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Keys are not shown meanwhile: they would land in the middle of what is being written."""
        try:
            before = termios.tcgetattr(self._file)
            if os.tcgetpgrp(self._file) == os.getpgrp():
                self._set(before, termios.ECHO)
        except (OSError, termios.error):
            yield
            return
        try:
            yield
        finally:
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._file, termios.TCSANOW, before)

    async def line(self, prompt: str) -> str | None:
        """What is typed; None for Ctrl-D at the beginning, and for a terminal that is gone."""
        typed = _Line()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        try:
            with self._key_by_key():
                self._echo(harmless(prompt))
                while True:
                    piece = await self._read()
                    if not piece:
                        return typed.text or None
                    rest += decoder.decode(piece)
                    shown = []
                    while typed.open and (key := _KEY.match(rest)):
                        rest = rest[key.end() :]
                        shown.append(typed.press(key[0]))
                    self._echo("".join(shown))
                    if not typed.open:
                        return None if typed.refused else typed.text.rstrip("\n")
        except (OSError, termios.error):
            return None

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._file)
        return os.read(self._file, 65536)

    @contextmanager
    def _key_by_key(self) -> Iterator[None]:
        """Keys come at once and are not shown; those that interrupt still do. Whoever stopped us had other settings."""
        before = termios.tcgetattr(self._file)
        loop = asyncio.get_running_loop()
        self._begin()
        loop.add_signal_handler(signal.SIGCONT, self._begin)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            with suppress(OSError, termios.error):
                self._mark_pastes("l")
                termios.tcsetattr(self._file, termios.TCSANOW, before)

    def _begin(self) -> None:
        if os.tcgetpgrp(self._file) != os.getpgrp():
            return
        self._set(termios.tcgetattr(self._file), termios.ICANON | termios.ECHO)
        self._mark_pastes("h")

    def _set(self, modes: list[Any], off: int) -> None:
        """The terminal as it is, with some of its local modes off."""
        changed = [*modes[:3], modes[3] & ~off, *modes[4:6], [*modes[6]]]
        if off & termios.ICANON:
            changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._file, termios.TCSANOW, changed)

    def _mark_pastes(self, switch: str) -> None:
        """The terminal says where a pasted text begins and ends, if it can."""
        if self._marks_pastes:
            self._echo(f"\x1b[?2004{switch}")

    def _echo(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()


class _Line:
    """A line that is being typed."""

    def __init__(self) -> None:
        self.text = ""
        self.open = True
        self.refused = False
        self._pasting = False

    def press(self, key: str) -> str:
        """Takes one key, and gives what the screen shows of it."""
        if key in (_PASTE, _PASTED):
            self._pasting = key == _PASTE
            return ""
        if self._pasting:
            self.text += key
            return harmless(key)
        if key == "\n" or (key == _END and not self.text):
            self.open, self.refused = False, key == _END
            return "\n" if key == "\n" else ""
        if key in _ERASE:
            return self._erase(self.text[:-1])
        if key == _ERASE_LINE:
            return self._erase("")
        if key == _ERASE_WORD:
            return self._erase(re.sub(r"\S*\s*\Z", "", self.text))
        if key == _END:
            return ""
        self.text += key[0]  # of an arrow and the like, enough to tell that it was pressed
        return harmless(key) if len(key) == 1 else ""

    def _erase(self, left: str) -> str:
        from rich.cells import cell_len

        gone, self.text = self.text[len(left) :], left
        width = cell_len(harmless(gone.rpartition("\n")[2]))
        return "\b \b" * width

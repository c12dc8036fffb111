"""A person at a terminal: a real pseudo-terminal for `cuebook`, with its screen and keyboard."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len

from tests.support.command_line import CommandLine
from tests.support.fork_server_process import TERMINALS

CTRL_C, CTRL_D = "\x03", "\x04"
_PATIENCE = 30.0
_PIECE = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|\x1b.|[\r\n\b]|[^\x1b\r\n]", re.DOTALL)


class Screen:
    """The content of a terminal after some output; it has as many lines as needed."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        for found in _PIECE.finditer(text):
            if found[2]:
                self._control(found[2], int(found[1].split(";")[0] or 0) if found[1] else 0)
            elif found[0] == "\r":
                self.column = 0
            elif found[0] == "\b":
                self.column = max(0, self.column - 1)
            elif found[0] == "\n":
                self._down()
            elif not found[0].startswith("\x1b"):
                self._put(found[0])

    def _control(self, letter: str, number: int) -> None:
        match letter:
            case "A":
                self.row = max(0, self.row - max(1, number))
            case "B":
                for _ in range(max(1, number)):
                    self._down()
            case "C":
                self.column = min(self.width - 1, self.column + max(1, number))
            case "D":
                self.column = max(0, self.column - max(1, number))
            case "G":
                self.column = max(1, number) - 1
            case "J":
                assert number == 0
                del self.lines[self.row][self.column :], self.lines[self.row + 1 :]
            case "K":
                assert number in (0, 2)
                del self.lines[self.row][0 if number else self.column :]
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"this screen does not know {letter}")

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _put(self, letter: str) -> None:
        cells = cell_len(letter)
        if self.column + cells > self.width:
            self.column = 0
            self._down()
        line = self.lines[self.row]
        line += " " * (self.column + cells - len(line))
        line[self.column : self.column + cells] = [letter, *[""] * (cells - 1)]
        self.column += cells

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines)


class TerminalSession:
    """`cuebook` in the foreground of a terminal that a person uses."""

    def __init__(
        self,
        cli: CommandLine,
        *args: str,
        width: int = 80,
        own: bool = True,
        background: bool = False,
        out: Path | None = None,
        then: str = "",
        **environ: str,
    ) -> None:
        """`own`: whether it receives the terminal's keys; `out` redirects stdout, and `then` is what a shell runs afterwards."""
        self._ours, theirs = pty.openpty()
        self._name = os.ttyname(theirs)
        self.raw = ""
        self._screen = Screen(width)
        self._changed = threading.Condition()
        self._ended = False
        made = {**cli.environ, "TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "24", **environ}
        terminal = ("background" if background else "own") if own else ""
        streams: dict[str, Any] = {
            "stdin": theirs,
            "stdout": theirs if out is None else os.open(out, os.O_CREAT | os.O_WRONLY),
            "stderr": theirs,
        }
        forked = None if then else cli.forked([*args], made, terminal=terminal, **streams)
        command = [sys.executable, "-m", "cuebook", *args]
        self.process = forked or subprocess.Popen(
            ["sh", "-c", f'"$@"; {then}', "sh", *command] if then else command,
            cwd=cli.work,
            env=made,
            preexec_fn=_taking(terminal) if terminal else None,
            **streams,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(_PATIENCE)
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # Linux reports the end of a terminal this way
                piece = b""
            with self._changed:
                text = (rest + piece).decode(errors="ignore")
                rest = b"" if not piece else _cut_letter(rest + piece)
                self.raw += text
                self._screen.write(text)
                self._ended = not piece
                self._changed.notify_all()
            if not piece:
                return

    @property
    def text(self) -> str:
        """The text on the screen."""
        with self._changed:
            return self._screen.text

    def until(self, words: str, times: int = 1) -> str:
        """Waits until these words are on the screen this many times."""

        def there() -> bool:
            return self._screen.text.count(words) >= times

        with self._changed:
            seen = self._changed.wait_for(lambda: there() or self._ended, _PATIENCE)
            assert seen, f"{words!r} did not come:\n{self._screen.text}"
            assert there(), f"it ended without {words!r}:\n{self._screen.text}"
            return self._screen.text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def stty(self, *words: str) -> None:
        """Changes the terminal as a shell does while its child is stopped."""
        with open(self._name) as terminal:
            subprocess.run(["stty", *words], stdin=terminal, check=True, timeout=_PATIENCE)

    def ended(self) -> int:
        """Returns the exit code once all output has been read."""
        code = self.process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        return code


def _cut_letter(data: bytes) -> bytes:
    """The beginning of a character whose remaining bytes have not arrived yet."""
    for length in range(1, min(4, len(data)) + 1):
        if data[-length] >= 0xC0:
            whole = 2 if data[-length] < 0xE0 else 3 if data[-length] < 0xF0 else 4
            return data[-length:] if length < whole else b""
    return b""


def _taking(terminal: str) -> Callable[[], None]:
    def take() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        TERMINALS[terminal]()

    return take

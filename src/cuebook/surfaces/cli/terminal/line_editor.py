"""Reads lines from a terminal, with the usual editing keys, a history, and pasted text as one line.

prompt_toolkit does the editing. It is imported when the first line is read, because importing it is slow.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from cuebook.surfaces.cli.terminal.output import harmless, width_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.input.vt100 import Vt100Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class LineEditor:
    """Reads lines from a terminal. Each kind of question has its own history, which lasts as long as the process."""

    def __init__(self, file: int, screen: IO[str]) -> None:
        self._file = file
        self._screen = screen
        self._input: Vt100Input | None = None
        self._sessions: dict[str, PromptSession[str]] = {}

    def forget(self) -> None:
        """Drops keys that were typed before the question was shown: they are meant neither as its answer nor for the shell."""
        with suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)
        if self._input is not None:
            from prompt_toolkit.input.typeahead import clear_typeahead

            clear_typeahead(self._input)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Turns echo off, because typed keys would appear in the middle of the output."""
        try:
            before = termios.tcgetattr(self._file)
            if os.tcgetpgrp(self._file) == os.getpgrp():
                changed = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
                termios.tcsetattr(self._file, termios.TCSANOW, changed)
        except (OSError, termios.error):
            yield
            return
        try:
            yield
        finally:
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._file, termios.TCSANOW, before)

    async def line(self, prompt: str, kind: str = "", earlier: Sequence[str] = ()) -> str | None:
        """Returns the typed line, or None after Ctrl-D on an empty line or if the terminal is gone.

        `kind` names the history to use, and `earlier` is its initial content.
        """
        session = self._sessions.get(kind)
        if session is None:
            session = self._sessions[kind] = self._session(earlier)
        try:
            with _continued(session, self._file):
                said = await session.prompt_async(harmless(prompt), handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError, termios.error):
            return None
        return said.rstrip("\n")

    def _session(self, earlier: Sequence[str]) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input.vt100 import Vt100Input
        from prompt_toolkit.output.vt100 import Vt100_Output

        if self._input is None:
            self._input = Vt100Input(sys.stdin)
        # Otherwise prompt_toolkit waits for terminals that do not report the cursor position.
        screen = cast(TextIO, self._screen)
        output = Vt100_Output(screen, self._size, term=os.environ.get("TERM"), enable_cpr=False)
        # A session with its own output would not check for a dumb terminal.
        with create_app_session(output=output):
            return PromptSession(
                input=self._input,
                history=InMemoryHistory([one for one in earlier if one]),
                key_bindings=_keys(),
                enable_suspend=True,
            )

    def _size(self) -> Size:
        from prompt_toolkit.data_structures import Size

        rows = 0
        with suppress(OSError):
            rows = os.get_terminal_size(self._screen.fileno()).lines
        return Size(rows=rows or 24, columns=width_of(self._screen))


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    def interrupt(event: KeyPressEvent) -> None:
        """Interrupts the whole command with a signal, as Ctrl-C does everywhere else."""
        os.kill(os.getpid(), signal.SIGINT)

    keys = KeyBindings()
    keys.add("c-c")(interrupt)
    return keys


@contextmanager
def _continued(session: PromptSession[Any], file: int) -> Iterator[None]:
    """Sets up the terminal again after the process was stopped and continued, because the shell has changed it."""

    def again() -> None:
        from prompt_toolkit.input.vt100 import raw_mode

        if session.app.is_running and os.tcgetpgrp(file) == os.getpgrp():
            raw_mode(file).__enter__()
            session.app.output.write_raw("\r\n")  # the cursor position is unknown
            session.app.renderer.reset()
            session.app.invalidate()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCONT, again)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)

"""What a person sees on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from typing import Any

from rich.console import Console

from cuebook.kernel.context import Text as Told
from cuebook.kernel.events import Planned, PlannedStep, StepFinished, StepStarted, TextChunk, TextReset
from cuebook.kernel.journal import Entry, Place
from cuebook.surfaces.cli.terminal import Flow, Terminal, harmless
from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer


def on_a_terminal(desk: Desk, *args: str) -> tuple[int, str]:
    """Runs `cuebook` with a pseudo-terminal for stdin, stdout and stderr."""
    ours, theirs = pty.openpty()
    environ = {**desk.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cuebook", *args], cwd=desk.work, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    pieces: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux reports the end of a terminal this way
                return
            if not piece:
                return
            pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    code = process.wait(60)
    reader.join()
    os.close(ours)
    return code, b"".join(pieces).decode().replace("\r\n", "\n")


def test_a_run_streams_under_headings_and_ends_in_a_summary(desk: Desk, server: ModelServer) -> None:
    server.replies = ["Sencha it is.", "Hot \x1b]0;owned\x07and \x1b[2Jstrong.", "Served."]
    code, seen = on_a_terminal(desk, "run", "tea.md")
    assert code == 0
    assert "\x1b]0;" not in seen
    assert "\x1b[2J" not in seen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert "Step 1 of 3  Choose ─" in plain
    assert "Sencha it is.\n" in plain
    assert "10 tokens in, 5 out, cost unknown" in plain
    assert re.search(r"╭─+ completed ─+╮", plain)
    assert re.search(r"│ steps +3 of 3 +│", plain)
    assert re.search(r"│ again +cuebook show \w{10} +│", plain)
    assert "\x1b[" in seen


def test_colours_can_be_turned_off(desk: Desk) -> None:
    desk.environ["NO_COLOR"] = "1"
    code, seen = on_a_terminal(desk, "run", "tea.md", "--break", "1")
    assert code == 3
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", seen)
    assert "cuebook resume " in seen


def flowed(width: int, *pieces: str) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    flow = Flow(console, width)
    for piece in pieces:
        flow.write(piece)
    flow.close()
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_streamed_text_breaks_between_words_however_it_is_cut() -> None:
    whole = flowed(20, "The quick brown fox jumps over the lazy dog.\n\nEnd")
    assert whole == "The quick brown fox\njumps over the lazy\ndog.\n\nEnd\n"
    assert flowed(20, *"The quick brown fox jumps over the lazy dog.\n\nEnd") == whole


def test_a_long_word_and_wide_letters_fit() -> None:
    assert flowed(10, "a " + "x" * 25 + " b") == "a \n" + "x" * 25 + "\nb\n"
    assert flowed(10, "茶茶茶 茶茶茶") == "茶茶茶 \n茶茶茶\n"


def test_control_characters_are_taken_out() -> None:
    assert harmless("a\x1b[31mb\x07\r\nc\td\x9b") == "a[31mb\nc\td"


def test_a_step_that_another_process_did_is_shown_when_it_is_finished() -> None:
    written = io.StringIO()
    view = Terminal(console=Console(file=written, width=60, force_terminal=False))
    view.see(entry(Planned((PlannedStep("1", "Choose"),))))
    view.see(entry(StepStarted("1", "Choose")))
    view.see(entry(StepFinished("1", output=Told("Sencha."), seconds=1.0)))
    view.see(entry(StepStarted("2", "Brew")))
    view.see(TextChunk("r", 5, "2", 0, "Hot"))
    view.see(TextReset("r", 6, "2"))
    view.see(TextChunk("r", 6, "2", 0, "Hotter"))
    view.see(entry(StepFinished("2", output=Told("Hotter"), seconds=1.0)))
    assert written.getvalue().count("Sencha.") == 1
    assert written.getvalue().count("Hotter") == 1
    assert "the reply begins again" in written.getvalue()


def entry(event: Any) -> Entry:
    return Entry("r", 1, 0.0, Place(), event)

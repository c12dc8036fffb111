"""Output to stdout and stderr: strips control characters, wraps lines on a terminal, and survives closed streams.

No printed text is trusted: not a playbook, not a model's reply, not a file name. This module is loaded on every call, so
it imports only click and the standard library.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import click

# These could move the cursor, or change the title or the colours of the window.
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
# These could change the order in which text is displayed.
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROL}{_BIDI}]")
_KEYS = re.compile(f"[{_CONTROL}]")

Part = str | tuple[str, str]
"""Text, or text with its colour."""


def harmless(text: str) -> str:
    """The text without characters that a terminal would act on."""
    return _UNSAFE.sub("", text)


def has_keys(text: str) -> bool:
    """Whether typed text contains control characters, such as those of an arrow key."""
    return _KEYS.search(text) is not None


def in_json(text: str) -> str:
    """The same JSON, with characters that a terminal would act on written as escapes."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(*parts: Part, color: bool = False) -> None:
    """Writes one or more lines to stdout."""
    sys.stdout.write(fitted("".join(_styled(part, color) for part in parts), sys.stdout) + "\n")


def print_table(lines: Sequence[tuple[str, ...]]) -> None:
    """Writes rows of equally many columns to stdout, the first of which names the columns."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        say("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())


def _styled(part: Part, color: bool) -> str:
    if isinstance(part, str):
        return harmless(part)
    text, style = harmless(part[0]), part[1]
    return click.style(text, fg=style) if color else text


def hand_over(text: str, to: IO[str] | None = None) -> None:
    """Writes a result unchanged, except that control characters are removed on a terminal."""
    stream = to or sys.stdout
    stream.write(harmless(text) if stream.isatty() else text)


def complain(text: str) -> None:
    """Writes one or more lines to stderr."""
    try:
        click.echo(fitted(harmless(text), sys.stderr), err=True)
    except OSError:  # stderr is closed, so the message cannot be shown
        silence(sys.stderr)


# --- wrapping -------------------------------------------------------------------------------------------

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_HANGING = re.compile(r" *(?:[-·*•] +)?")
_COLUMNS = re.compile(r".*?\S {2,}(?=\S)")
_NARROWEST = 20


def fitted(text: str, stream: IO[str]) -> str:
    """The text wrapped to the width of the stream's terminal; unchanged if the stream is not a terminal."""
    if not stream.isatty():
        return text
    width = max(_NARROWEST, width_of(stream))
    return "\n".join(line for whole in text.split("\n") for line in wrapped(whole, width))


def width_of(stream: IO[str]) -> int:
    try:
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def wrapped(line: str, width: int) -> Iterator[str]:
    """Breaks a line between words. Continuation lines start where the text of the first line starts: after its indent
    and bullet, or in its second column. A word longer than a line stays whole, so it can be copied.
    """
    if _cells(line) <= width:
        yield line
        return
    indent = " " * _hanging(_STYLE.sub("", line), width)
    current = ""
    for blank, word in re.findall(r"(\s*)(\S+)", line):
        if current.strip() and _cells(current + blank + word) > width:
            yield current
            current = indent + word
        else:
            current += blank + word
    yield current


def _hanging(line: str, width: int) -> int:
    for pattern in (_COLUMNS, _HANGING):
        found = pattern.match(line)
        if found is not None and found.end() <= width // 2:
            return found.end()
    return 0


def _cells(text: str) -> int:
    """The number of terminal columns that the text occupies."""
    plain = _STYLE.sub("", text)
    if plain.isascii():
        return len(plain)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in plain)
    return len(plain) + wide - sum(unicodedata.combining(letter) > 0 for letter in plain)


# --- standard streams -----------------------------------------------------------------------------------

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def prepare_streams() -> None:
    """Opens closed standard streams on the null device. A file opened later would otherwise get their descriptors."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= 2:
        number = os.dup(number)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # the terminal's encoding may lack a character
            stream.reconfigure(errors="backslashreplace")


def write_problem(error: Exception) -> str:
    """Why stdout could not be written to; empty if the error is about something else, such as a named file."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _CANNOT_WRITE:
        return os.strerror(error.errno)
    return ""


def write_if_open(write: Callable[..., None], *args: Any) -> None:
    """Calls a function that writes to stdout or stderr while a run is driven. If the reader of one of them is gone, that
    stream is silenced, and the run continues.
    """
    try:
        write(*args)
    except BrokenPipeError:
        broken = select.poll()
        for stream in (sys.stdout, sys.stderr):
            broken.register(stream.fileno(), 0)  # without any flags, poll reports only that the reader has left
        gone = {number for number, _ in broken.poll(0)}
        for stream in (sys.stdout, sys.stderr):
            if stream.fileno() in gone:
                silence(stream)


def silence(stream: IO[str]) -> None:
    """Redirects a stream to the null device, because Python would fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""The one way out for what people read: a terminal shows what stands in it, and obeys nothing.

A playbook, a model's reply, the name of a file: none of them is trusted. Every call loads this module, so it imports
click and nothing else.
"""

from __future__ import annotations

import re
import sys
from typing import IO

import click

from cuebook.surfaces.cli import streams

# These could move the cursor, change the window's title or its colours.
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
# These could show a text in another order than it has.
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_OBEYED = re.compile(f"[{_CONTROL}{_BIDI}]")
_KEYS = re.compile(f"[{_CONTROL}]")

Part = str | tuple[str, str]
"""A text, or a text and its colour."""


def harmless(text: str) -> str:
    """A text as a terminal may be given it."""
    return _OBEYED.sub("", text)


def has_keys(text: str) -> bool:
    """Whether something typed holds more than text, as arrow keys leave it."""
    return _KEYS.search(text) is not None


def in_json(text: str) -> str:
    """JSON as a terminal may be given it: it says the same, in other letters."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(*parts: Part, color: bool = False) -> None:
    """Writes a line, or several, to stdout."""
    sys.stdout.write("".join(_styled(part, color) for part in parts) + "\n")


def _styled(part: Part, color: bool) -> str:
    if isinstance(part, str):
        return harmless(part)
    text, style = harmless(part[0]), part[1]
    return click.style(text, fg=style) if color else text


def hand_over(text: str, to: IO[str] | None = None) -> None:
    """Writes what was asked for as it is, to the last letter; only a terminal is kept from obeying it."""
    stream = to or sys.stdout
    stream.write(harmless(text) if stream.isatty() else text)


def complain(text: str) -> None:
    """Writes a line, or several, to stderr."""
    try:
        click.echo(harmless(text), err=True)
    except OSError:  # there is nobody to tell
        streams.silence(sys.stderr)

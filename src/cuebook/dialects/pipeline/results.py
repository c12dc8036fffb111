"""What came of a step, as later steps can read it. Plain values."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cuebook.dialects.given import DEEPEST, is_deep
from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import Failed

NOTHING = Text("")
_TOO_DEEP = f"it is nested more than {DEEPEST} deep"

_LINE_ENDS = re.compile(r"(?:\r?\n)+\Z")

ENDING = frozenset({"cancelled", "denied", "expired", "in_doubt"})
"""Failures that a person decided on: they end the run, whatever the step says about errors."""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result without its text: what a checkpoint keeps beside that."""

    is_text: bool = False
    """Whether its output was declared to be text, and is never read as JSON."""
    truncated: bool = False
    replaced: bool = False
    """Whether bytes of its output that are no text were replaced."""
    size: int = 0
    """Where its output was cut, the bytes that it had; 0 where nobody knows."""
    acted: bool = False
    """Whether a model has called a tool in it that does not only read."""
    approved: bool = False
    skipped: bool = False
    error: str = ""
    """The code of its failure."""
    message: str = ""
    exit_code: int | None = None
    status: int | None = None


PLAIN = Facts()


class Result:
    """What came of a step: its output, and what is known about it."""

    __slots__ = ("_json", "facts", "failed", "html", "seq", "text")

    def __init__(self, text: Text = NOTHING, facts: Facts | None = None) -> None:
        self.text = text
        """Standard output, the body of a response, a tool's result, or what a model said."""
        self.facts = facts or PLAIN
        self.failed: Failed | None = None
        """Why the step failed, while it is the present one."""
        self.seq: int | None = None
        """The record of the effect whose failure it was."""
        self.html = False
        """Whether the text is a page."""
        self._json: Any = msgspec.UNSET

    def but(self, **changes: Any) -> Result:
        """The same with other facts."""
        made = Result(self.text, msgspec.structs.replace(self.facts, **changes))
        made.failed, made.seq, made.html, made._json = self.failed, self.seq, self.html, self._json
        return made

    def failing(self, failed: Failed, seq: int | None = None) -> Result:
        made = self.but(error=failed.code, message=failed.message)
        made.failed, made.seq = failed, seq
        return made

    def json(self) -> Any:
        """The output as JSON; `ValueError` where it is none. It is read once."""
        if self._json is msgspec.UNSET:
            if self.facts.is_text:
                raise ValueError("its output is declared to be text")
            if self.facts.truncated:
                raise ValueError("its output was cut at the limit")
            if self.facts.replaced:
                raise ValueError("its output is not UTF-8")
            self._json = parsed(str(self.text))
        return self._json

    def has_json(self) -> bool:
        try:
            self.json()
        except ValueError:
            return False
        return True


def parsed(text: str) -> Any:
    """The value of a JSON text; `ValueError` where it is none."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        value = msgspec.json.decode(text.strip().encode())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    # Few brackets cannot nest deeply, and a large text need not be walked through.
    if text.count("[") + text.count("{") > DEEPEST and is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def without_line_end(text: str) -> str:
    """An output as it is put into a text, an argument or a comparison: without the line ends at its end, as a shell's
    `$(...)` does it.
    """
    return _LINE_ENDS.sub("", text)


def written(value: Any) -> str:
    """A value within a text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encoded(value)

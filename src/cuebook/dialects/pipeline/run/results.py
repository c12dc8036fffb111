"""The result of a step, as later steps see it. Plain values."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cuebook.dialects.inputs import DEEPEST, is_deep
from cuebook.kernel.context import Text
from cuebook.kernel.files import FileRef
from cuebook.kernel.outcomes import Failed, Page

NOTHING = Text("")
_TOO_DEEP = f"it is nested more than {DEEPEST} deep"

_LINE_ENDS = re.compile(r"(?:\r?\n)+\Z")

ENDING = frozenset({"cancelled", "denied", "expired", "in_doubt", "changes_requested"})
"""Failures that result from a user's decision; they end the run regardless of the step's `on_error`."""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a result that a checkpoint stores in addition to its text."""

    is_text: bool = False
    """Whether its output is declared as text and therefore never parsed as JSON."""
    truncated: bool = False
    replaced: bool = False
    """Whether invalid UTF-8 bytes of its output were replaced."""
    size: int = 0
    """The original size in bytes of an output that was cut; 0 if unknown."""
    acted: bool = False
    """Whether a model has called a tool that may change something."""
    approved: bool = False
    skipped: bool = False
    error: str = ""
    """Its failure code."""
    message: str = ""
    exit_code: int | None = None
    status: int | None = None
    may_be_cut: bool = False
    """Whether the author accepts that only the beginning of its output was kept."""
    stderr: str = ""
    stderr_cut: bool = False
    headers: dict[str, str] = {}
    """Of a response, with names in lower case."""
    files: dict[str, FileRef] = {}
    """The files that it produced, by name."""
    refused: str = ""
    """`denied` or `expired`, if that was its approval and the step says what happens then."""
    keyed: bool = False
    """Whether its results are those of named branches, not of the items of a list."""
    winner: str = ""
    """The branch that succeeded first."""


PLAIN = Facts()


class Result:
    """The output of a step, and facts about it."""

    __slots__ = ("_json", "facts", "failed", "html", "page", "parts", "seq", "text")

    def __init__(self, text: Text = NOTHING, facts: Facts | None = None) -> None:
        self.text = text
        """Standard output, the body of a response, a tool's result, or a model's reply."""
        self.facts = facts or PLAIN
        self.failed: Failed | None = None
        """Why the step failed; known only while it is the current step."""
        self.seq: int | None = None
        """The sequence number of the failed effect."""
        self.html = False
        """Whether the text is an HTML page."""
        self.page: Page | None = None
        """The page of the browser; known only while it is the current step."""
        self.parts: tuple[Text, ...] = ()
        """The results of a loop's items, or of parallel branches: lists of `Item` as JSON."""
        self._json: Any = msgspec.UNSET

    def but(self, **changes: Any) -> Result:
        """Returns a copy with changed facts."""
        made = Result(self.text, msgspec.structs.replace(self.facts, **changes))
        made.failed, made.seq, made.html, made._json = self.failed, self.seq, self.html, self._json
        made.page = self.page
        made.parts = self.parts
        return made

    def failing(self, failed: Failed, seq: int | None = None) -> Result:
        made = self.but(error=failed.code, message=failed.message)
        made.failed, made.seq = failed, seq
        return made

    def json(self) -> Any:
        """The output as JSON, parsed once. Raises `ValueError` if it is not JSON."""
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


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one item of a loop, or of one parallel branch."""

    key: str
    status: str
    """`completed`, `failed` or `skipped`."""
    output: Any = None
    """Its output: a JSON value, or text without trailing newlines; None if it has none."""
    error: str = ""
    incomplete: bool = False
    """Whether its output was cut or had bytes replaced, so that it cannot be used."""


_decode_items = msgspec.json.Decoder(list[Item]).decode


def items_of(result: Result) -> list[Item]:
    """The results of the items of a loop, in their order, or of the branches of a parallel step."""
    return [item for part in result.parts for item in _decode_items(str(part).encode())]


def parsed(text: str) -> Any:
    """Parses JSON. Raises `ValueError` if the text is not JSON."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        value = msgspec.json.decode(text.strip().encode())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    # With few brackets nothing can be nested deeply, so a large value need not be traversed.
    if text.count("[") + text.count("{") > DEEPEST and is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def without_line_end(text: str) -> str:
    """The output without trailing newlines, for use in text and comparisons. A shell's `$(...)` does the same."""
    return _LINE_ENDS.sub("", text)


def written(value: Any) -> str:
    """A value as text: strings unchanged, anything else as JSON."""
    return value if isinstance(value, str) else encoded(value)

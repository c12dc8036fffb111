"""Structured logs of a server or worker: one line for each thing that happened, as text or as JSON, on stderr.

A thing that happened is logged by its name, such as `run.started`, with fields. Fields are facts about a run, never what flows
through it: no prompts, inputs, replies or secrets, and no words of errors, which may quote them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)*", re.ASCII)
OURS = "cuebook"
"""The logger above all of ours. Other libraries are heard from the level of warnings."""

Masked = Callable[[Any], Any]
"""Masks the secrets in a value."""


def event_of(record: logging.LogRecord) -> str:
    """The name of what happened; empty for a message in words."""
    return (
        record.msg if hasattr(record, "fields") and isinstance(record.msg, str) and _NAME.fullmatch(record.msg) else ""
    )


def log_event(log: logging.Logger, event: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Logs something that happened. Empty fields are left out. Without a log to write it to, nothing is said: Python would
    print the bare name of a warning."""
    if log.isEnabledFor(level) and log.hasHandlers():
        given = {name: value for name, value in fields.items() if value is not None and value != ""}
        log.log(level, event, extra={"fields": given})


@contextmanager
def logging_to(
    stream: IO[str] | None = None, *, level: str = "info", form: str = "text", masked: Masked = lambda value: value
) -> Iterator[None]:
    """Writes the logs of this process to a stream, by default stderr, while the context is open."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json(masked) if form == "json" else _Text(masked))
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = ours.level
    root.addHandler(handler)
    ours.setLevel(level.upper())
    try:
        yield
    finally:
        ours.setLevel(before)
        root.removeHandler(handler)
        handler.close()


class _Formatter(logging.Formatter):
    def __init__(self, masked: Masked) -> None:
        super().__init__()
        self._masked = masked

    def _parts(self, record: logging.LogRecord) -> tuple[str, str, Mapping[str, Any], str]:
        """The time, the name or the message, the fields and the traceback of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, "fields", {})
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        words, fields, trace = self._masked((record.getMessage(), dict(fields), trace))
        return at.removesuffix("+00:00") + "Z", words, fields, trace


class _Text(_Formatter):
    """Time, level, what happened, and the fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        at, words, fields, trace = self._parts(record)
        line = " ".join([at, record.levelname.lower(), _printable(words), *_pairs(fields)])
        return "\n".join([line, *(f"  {_printable(one)}" for one in trace.splitlines())])


class _Json(_Formatter):
    """One object on a line. What has a name is an `event`; everything else is a `message`."""

    def format(self, record: logging.LogRecord) -> str:
        at, words, fields, trace = self._parts(record)
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        head["event" if event_of(record) else "message"] = words
        whole = {**head, **{name: value for name, value in fields.items() if name not in head}}
        return json.dumps({**whole, "traceback": trace} if trace else whole, default=str)


def _pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        plain = text.isprintable() and not set(' "=') & set(text)
        yield f"{name}={text if plain else json.dumps(text)}"


def _printable(text: str) -> str:
    """The text with everything that a terminal would act on, and every line break, as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)

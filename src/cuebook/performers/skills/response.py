"""Reads a service's answer: the parts that are kept, and its error messages. It does not use the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.kernel.outcomes import Failed
from cuebook.performers.skills.model import Answer

_SHOWN = 500
_SAYS = ("message", "detail", "error", "errors", "error_message")
"""The fields in which services report the reason for an error."""


def kept(answer: Answer, body: str, service: str, *, truncated: bool) -> Any:
    """The part that is kept, or `Failed` for an invalid answer."""
    if answer.kind == "text":
        return body
    if truncated:
        return Failed(
            "too_large",
            f"The answer from {service} was too long to be read completely.",
            fix="Ask for less: fewer results, or a narrower query.",
        )
    try:
        value = _lines(body) if answer.kind == "lines" else msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _no_json(body, service)
    wrong = _wrong(answer, value, service)
    if wrong is not None:
        return wrong
    part = found(value, answer.at)
    return trimmed(part, answer.keep) if answer.keep else part


def found(value: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for name in path.split(".") if path else ():
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def trimmed(value: Any, keep: Iterable[str]) -> Any:
    """The value with only these fields; for a list, each of its items."""
    wanted: dict[str, list[str]] = {}
    for path in keep:
        name, _, rest = path.partition(".")
        wanted.setdefault(name, []).extend([rest] if rest else [])
    return _trimmed(value, wanted)


def said(body: str) -> str:
    """The service's error on one line: its message if there is one, otherwise the beginning of the body."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _short(body)
    if isinstance(value, dict):
        errors = [_short(_plain(value[name])) for name in _SAYS if value.get(name)]
        if errors:
            return _short("; ".join(dict.fromkeys(errors)))
    return _short(body)


def _trimmed(value: Any, wanted: dict[str, list[str]]) -> Any:
    if isinstance(value, list):
        return [_trimmed(one, wanted) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: trimmed(value[name], rest) if rest else value[name] for name, rest in wanted.items() if name in value}


def _lines(body: str) -> list[Any]:
    return [msgspec.json.decode(line) for line in body.splitlines() if line.strip()]


def _wrong(answer: Answer, value: Any, service: str) -> Failed | None:
    """An error that came with a successful status."""
    errors = found(value, answer.error) if answer.error else None
    if not errors and (not answer.ok or found(value, answer.ok) is True):
        return None
    why = f": {_short(_plain(errors))}" if errors else " without saying why"
    return Failed("service_refused", f"{service} refused the request{why}.", fix="Check the arguments.")


def _no_json(body: str, service: str) -> Failed:
    return Failed(
        "bad_answer",
        f"{service} did not answer with JSON: {_short(body) or 'nothing'}",
        fix="Check that its URL points to its API.",
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."

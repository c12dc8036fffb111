"""Reads the lines of stdio: a line that is not a message gets an error response, and the server continues.

The SDK ignores such lines, and treats a request with an invalid id as a notification. The client would wait forever.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

LARGEST = 32_000_000
"""Maximum number of bytes in a line: enough for the longest playbook, however its characters are escaped."""
_AT_ONCE = 1_000_000
"""Bytes to read at a time while skipping the rest of a longer line."""
_GLANCE = 10_000
"""Bytes at the beginning and at the end of a long line that are searched for its id."""

_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""Strings and brackets, which determine the nesting depth in JSON."""
_VALUE = re.compile(r'\s*:\s*(-?\d{1,18}(?![\d.eE])|"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
_LAST = re.compile(r'"id"\s*:\s*(-?\d{1,18}|"[^"\\]*")\s*\}\s*\Z')
"""The id of an object whose last key is `id`, as some clients write it."""

_ONE = "Send one message per line, as an object."
_UNREADABLE = "This line is not valid JSON. Send one message per line, in UTF-8, nested less than 200 levels deep."
_TOO_LONG = (
    f"This line has more than {LARGEST:,} bytes and was skipped. Send less at a time, or pass the path of a file."
)
_BATCH = f"This line is an array, and batches are not supported. {_ONE}"
_NO_OBJECT = f"This line is not an object. {_ONE}"
_NO_MESSAGE = 'This is not a JSON-RPC 2.0 message: expected "jsonrpc": "2.0", a "method", and "params" as an object.'
_NO_ID = "The id of a request must be a string or an integer, got {}. A notification has no id."

ReadLine = Callable[[int], Awaitable[bytes]]
"""Reads to the end of a line, or the given number of bytes; returns nothing at the end of the input."""


class InvalidLine(Exception):
    """A line that is not a message. `answer` is the error response, with the line's id if that is known."""

    def __init__(self, code: int, words: str, message: Mapping[str, Any] = {}) -> None:
        id = message.get("id")
        # The server chose the id of a response: repeated in an error, it could be mistaken for the id of a client's request.
        responds = "method" not in message and not message.keys().isdisjoint({"result", "error"})
        known = None if responds or not _is_id(id) else id
        self.answer = JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=words))
        super().__init__(words)


async def valid_messages(readline: ReadLine, answers: Any) -> AsyncIterator[SessionMessage]:
    """Yields the lines that are messages, and answers all others at once."""
    while line := await readline(LARGEST + 1):
        try:
            if len(line) > LARGEST:
                raise await _skip_long_line(readline, line)
            if line.strip():
                yield SessionMessage(message_of(line))
        except InvalidLine as wrong:
            await answers.send(SessionMessage(wrong.answer))


async def _skip_long_line(readline: ReadLine, line: bytes) -> InvalidLine:
    """Skip the rest of a line that is too long, and return the error for it."""
    last = line
    while not last.endswith(b"\n") and (part := await readline(_AT_ONCE)):
        last = last[-_GLANCE:] + part
    end = _LAST.search(_text(last[-_GLANCE:]))
    fields = _glance(_text(line[:_GLANCE]))
    return InvalidLine(INVALID_REQUEST, _TOO_LONG, {"id": _plain(end[1]), **fields} if end else fields)


def message_of(line: bytes) -> JSONRPCMessage:
    """Parse a line as a message. Raises `InvalidLine` if it is not one."""
    text = _text(line)
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as wrong:
        if any(one["type"] == "json_invalid" for one in wrong.errors(include_url=False, include_context=False)):
            raise InvalidLine(PARSE_ERROR, _UNREADABLE, _glance(text)) from None
        raise _invalid_message(from_json(text)) from None
    if isinstance(message, JSONRPCNotification) and "id" in (given := from_json(text)):
        raise _invalid_message(given)
    return message


def _invalid_message(given: Any) -> InvalidLine:
    """The error for JSON that is not a message."""
    if isinstance(given, list):
        return InvalidLine(INVALID_REQUEST, _BATCH)
    if not isinstance(given, dict):
        return InvalidLine(INVALID_REQUEST, _NO_OBJECT)
    if "method" in given and "id" in given and not _is_id(given["id"]):
        return InvalidLine(INVALID_REQUEST, _NO_ID.format(_KINDS.get(type(given["id"]), "something else")))
    return InvalidLine(INVALID_REQUEST, _NO_MESSAGE, given)


_KINDS = {type(None): "null", bool: "true or false", float: "a fraction", list: "an array", dict: "an object"}


def _is_id(given: object) -> bool:
    return isinstance(given, int | str) and not isinstance(given, bool)


def _text(line: bytes) -> str:
    return line.decode(errors="replace")


def _glance(text: str) -> dict[str, Any]:
    """The top-level keys of an object, with their values if these are integers or strings. The text may be broken JSON."""
    found: dict[str, Any] = {}
    depth = 0
    for part in _PART.finditer(text):
        if part[0] in "[{":
            if not depth and (part[0] == "[" or text[: part.start()].strip()):
                return {}
            depth += 1
        elif part[0] in "]}":
            depth -= 1
        elif depth == 1 and (value := _VALUE.match(text, part.end())):
            found[part[0][1:-1]] = _plain(value[1])
    return found


def _plain(value: str | None) -> int | str | None:
    try:
        made = json.loads(value or "null")
        str(made).encode()
    except ValueError:
        return None
    return made  # type: ignore[no-any-return]

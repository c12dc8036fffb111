"""What comes over stdio, line by line: what is no message is answered, and the server goes on.

The SDK answers nothing to it, and takes a request for a notification if its id is none. Whoever waits for an answer would
wait for ever.
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
"""Bytes of a line: the longest playbook fits in, however its letters are written."""
_AT_ONCE = 1_000_000
"""Bytes in which the rest of a longer line is passed over."""
_GLANCE = 10_000
"""Bytes of its beginning and of its end in which its id is looked for."""

_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""What tells where in a JSON text one is: texts and brackets."""
_VALUE = re.compile(r'\s*:\s*(-?\d{1,18}(?![\d.eE])|"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
_LAST = re.compile(r'"id"\s*:\s*(-?\d{1,18}|"[^"\\]*")\s*\}\s*\Z')
"""The id of an object that ends with it, as some clients write them."""

_ONE = "Send one message a line, as an object."
_UNREADABLE = "This line is no JSON that can be read: one message a line, in UTF-8, nested less than 200 deep."
_TOO_LONG = f"This line has more than {LARGEST:,} bytes, and was passed over. Send less at once, or the path of a file."
_BATCH = f"This line is an array, and batches are not taken. {_ONE}"
_NO_OBJECT = f"This line is no object. {_ONE}"
_NO_MESSAGE = (
    'This is no JSON-RPC 2.0 message: those have "jsonrpc": "2.0" and a "method", and "params" that are an object.'
)
_NO_ID = "The id of a request is a text or a whole number; this is {}. A notification has none."

ReadLine = Callable[[int], Awaitable[bytes]]
"""Reads to the end of a line, or so many bytes of it; nothing where there are no more."""


class NoMessage(Exception):
    """A line is no message; `answer` says why, under its id where that can be told."""

    def __init__(self, code: int, words: str, message: Mapping[str, Any] = {}) -> None:
        id = message.get("id")
        # The id of a response is the server's own: as an answer it would be taken for that to another request.
        responds = "method" not in message and not message.keys().isdisjoint({"result", "error"})
        known = None if responds or not _is_id(id) else id
        self.answer = JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=words))
        super().__init__(words)


async def screened(readline: ReadLine, answers: Any) -> AsyncIterator[SessionMessage]:
    """The messages among what is read. Everything else is answered at once."""
    while line := await readline(LARGEST + 1):
        try:
            if len(line) > LARGEST:
                raise await _passed_over(readline, line)
            if line.strip():
                yield SessionMessage(message_of(line))
        except NoMessage as wrong:
            await answers.send(SessionMessage(wrong.answer))


async def _passed_over(readline: ReadLine, line: bytes) -> NoMessage:
    """What is said to a line that is too long, once it has come to its end."""
    last = line
    while not last.endswith(b"\n") and (part := await readline(_AT_ONCE)):
        last = last[-_GLANCE:] + part
    end = _LAST.search(_text(last[-_GLANCE:]))
    told = _glance(_text(line[:_GLANCE]))
    return NoMessage(INVALID_REQUEST, _TOO_LONG, {"id": _plain(end[1]), **told} if end else told)


def message_of(line: bytes) -> JSONRPCMessage:
    """The message that a line is. `NoMessage` if it is none."""
    text = _text(line)
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as wrong:
        if any(one["type"] == "json_invalid" for one in wrong.errors(include_url=False, include_context=False)):
            raise NoMessage(PARSE_ERROR, _UNREADABLE, _glance(text)) from None
        raise _unfit(from_json(text)) from None
    if isinstance(message, JSONRPCNotification) and "id" in (given := from_json(text)):
        raise _unfit(given)
    return message


def _unfit(given: Any) -> NoMessage:
    """What is said to JSON that is no message."""
    if isinstance(given, list):
        return NoMessage(INVALID_REQUEST, _BATCH)
    if not isinstance(given, dict):
        return NoMessage(INVALID_REQUEST, _NO_OBJECT)
    if "method" in given and "id" in given and not _is_id(given["id"]):
        return NoMessage(INVALID_REQUEST, _NO_ID.format(_KINDS.get(type(given["id"]), "something else")))
    return NoMessage(INVALID_REQUEST, _NO_MESSAGE, given)


_KINDS = {type(None): "null", bool: "true or false", float: "a fraction", list: "an array", dict: "an object"}


def _is_id(given: object) -> bool:
    return isinstance(given, int | str) and not isinstance(given, bool)


def _text(line: bytes) -> str:
    return line.decode(errors="replace")


def _glance(text: str) -> dict[str, Any]:
    """The names that an object has, with their values where these are whole numbers or texts, from a text that need not be
    JSON to its end.
    """
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

"""What comes over stdio and is no message: whoever sent it is answered, and the server goes on.

The SDK gives an error for each such line, and answers nothing. Whoever waits for an answer would wait for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""What tells where in a JSON text one is: texts and brackets."""
_VALUE = re.compile(r'\s*:\s*(-?\d{1,18}(?![\d.eE])|"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
_UNREADABLE = "This line is no JSON that can be read: one message a line, in UTF-8, nested less than 200 deep."
_NO_MESSAGE = "This is no JSON-RPC 2.0 message."


async def screened(lines: AsyncIterator[SessionMessage | Exception], answers: Any) -> AsyncIterator[SessionMessage]:
    """The messages among what was read. Everything else is answered at once."""
    async for one in lines:
        if isinstance(one, SessionMessage):
            yield one
            continue
        error = refusal(one)
        if error is not None:
            await answers.send(SessionMessage(error))


def refusal(wrong: Exception) -> JSONRPCError | None:
    """The answer to a line that is no message, under its id where that can be told; none to an empty line."""
    found = wrong.errors(include_url=False, include_context=False) if isinstance(wrong, ValidationError) else []
    unread = next((one["input"] for one in found if one["type"] == "json_invalid"), None)
    if isinstance(unread, str) and not unread.strip():
        return None
    if unread is not None:
        return _error(PARSE_ERROR, _UNREADABLE, _glance(str(unread)))
    # Whatever a kind of message lacks, the whole of it is told with that.
    return _error(
        INVALID_REQUEST,
        _NO_MESSAGE,
        next((one["input"] for one in found if one["type"] == "missing" and len(one["loc"]) == 2), {}),
    )


def _error(code: int, words: str, message: Mapping[str, Any]) -> JSONRPCError:
    id = message.get("id")
    # The id of a response is the server's own: as an answer it would be taken for that to another request.
    responds = "method" not in message and not message.keys().isdisjoint({"result", "error"})
    if responds or isinstance(id, bool) or not isinstance(id, int | str):
        id = None
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=words))


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

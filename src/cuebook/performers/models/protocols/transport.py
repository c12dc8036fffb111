"""One request to a remote provider: sends JSON, receives server-sent events, and converts errors to our own.

It handles HTTP and event streams; the protocols interpret the JSON. A key is kept only during a call.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from cuebook import __version__
from cuebook.performers.models.model import RETRYABLE, ErrorKind, ModelError, Room, masked
from cuebook.performers.models.retries import Timeouts
from cuebook.system import lazy_imports
from cuebook.system.network import is_loopback, system_tls

_BY_STATUS: dict[int, ErrorKind] = {
    400: "bad_request",
    401: "auth",
    402: "quota",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "overloaded",
    413: "context_length",
    422: "bad_request",
    425: "overloaded",
    429: "rate",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

_BY_WORD: dict[str, ErrorKind] = {
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "context_length_exceeded": "context_length",
    "exceed_context_size_error": "context_length",
    "request_too_large": "context_length",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "invalid_request_error": "bad_request",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "overloaded_error": "overloaded",
    "server_error": "server",
    "api_error": "server",
    "timeout_error": "timeout",
}

_TOO_LONG = ("prompt is too long", "maximum context length", "context window", "too many tokens")

_MOST_SAID = 20_000
"""How many characters of a provider's own message are kept."""

_ERROR_BYTES = 1 << 20
"""The maximum number of bytes that are read from the body of an error."""


class Event(msgspec.Struct, frozen=True):
    """One server-sent event."""

    name: str
    data: str


class Endpoint(msgspec.Struct, frozen=True):
    """The URL of a provider, with the headers and limits for requests to it."""

    provider: str
    url: str
    headers: dict[str, str]
    secrets: tuple[str, ...]
    """Values that no message may quote."""
    timeouts: Timeouts
    reply_limit: int
    """The maximum size of one event, in bytes."""


def endpoint_url(base_url: str, path: str) -> str:
    """The URL below a base URL, which may end in a slash or a query."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def request_headers(added: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request. A header that the user configured replaces ours, regardless of case."""
    ours = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": f"cuebook/{__version__}",
        **added,
    }
    named = {name.lower() for name in configured}
    return {**{name: value for name, value in ours.items() if name.lower() not in named}, **configured}


async def stream_events(endpoint: Endpoint, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
    """Posts the body and yields the events of the answer. Raises `ModelError` if the provider or the network fails."""
    content = _encoded(body)
    http = await lazy_imports.load("httpx2")
    limits = endpoint.timeouts
    client = http.AsyncClient(
        verify=system_tls(),
        # A proxy from the environment is not used for this machine's own addresses.
        trust_env=not is_loopback(urlsplit(endpoint.url).hostname or ""),
        timeout=http.Timeout(limits.total, connect=limits.connect, read=limits.idle),
        follow_redirects=True,
    )
    started = False
    try:
        sent = client.stream("POST", endpoint.url, content=content, headers=endpoint.headers)
        async with client, sent as response:
            if response.status_code >= 400:
                raise await _refused(endpoint, response)
            decoder = EventDecoder(endpoint.reply_limit, endpoint.provider)
            async for piece in response.aiter_bytes():
                for event in decoder.feed(piece):
                    started = True
                    yield event
    except http.TimeoutException:
        raise ModelError("timeout", f"{endpoint.provider} did not answer in time.") from None
    except (http.HTTPError, http.InvalidURL, OSError) as error:
        verb = "was lost while it answered" if started else "could not be established"
        reason = masked(str(error) or type(error).__name__, endpoint.secrets)
        kind: ErrorKind = "dropped" if started else "network"
        raise ModelError(kind, f"The connection to {endpoint.provider} {verb}: {reason}") from None
    except UnicodeDecodeError as error:
        raise not_a_reply(endpoint, str(error)) from None


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:  # an unpaired surrogate, or a number that JSON does not support
        raise ModelError("bad_request", f"The request cannot be written as JSON: {error}.") from None


def json_object(endpoint: Endpoint, text: str) -> dict[str, Any]:
    """The data of an event."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise not_a_reply(endpoint, str(error)) from None
    if not isinstance(data, dict):
        raise not_a_reply(endpoint, f"expected an object, got {text[:100]}")
    return data


def object_in(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; empty if there is none. Servers omit fields, or send null."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def objects_in(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = data.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_in(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def count_in(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def not_a_reply(endpoint: Endpoint, reason: str) -> ModelError:
    said = masked(reason, endpoint.secrets)
    return ModelError("dropped", f"{endpoint.provider} sent something that is not a reply: {said}")


class EventDecoder:
    """Decodes server-sent events as the HTML standard defines them. `limit` is the maximum size of one event."""

    def __init__(self, limit: int, provider: str) -> None:
        self._limit = limit
        self._provider = provider
        self._room = Room(limit, provider)
        self._line = bytearray()
        self._after_return = False
        """The last line ended in a carriage return, so a line feed that follows belongs to it."""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        self._after_return = piece.endswith(b"\r")
        lines = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for number, line in enumerate(lines):
            self._room.use(len(line))
            self._line += line
            if number == len(lines) - 1:
                return
            whole, self._line = bytes(self._line), bytearray()
            event = self._take(whole.decode())
            if event is not None:
                yield event

    def _take(self, line: str) -> Event | None:
        if not line:
            event = Event(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            self._room = Room(self._limit, self._provider)
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif not field and not self._data:  # a comment, sent to keep the connection open
            self._room = Room(self._limit, self._provider)
        return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a response asks us to wait; it may contain milliseconds, seconds or a date."""
    for name, scale in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if not value:
            continue
        try:
            return max(0.0, float(value) / scale)
        except ValueError:
            pass
        try:
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            continue
    return None


def _kind(status: int | None, words: tuple[str, ...], text: str) -> ErrorKind:
    if any(phrase in text.lower() for phrase in _TOO_LONG) and status in (None, 200, 400, 413):
        return "context_length"
    named = [_BY_WORD[word] for word in words if word in _BY_WORD]
    # A precise code takes precedence over the status (429 is also sent for an empty account); a vague code does not.
    precise = [kind for kind in named if kind not in ("bad_request", "server")]
    if precise:
        return precise[0]
    if status is not None and status >= 400:
        return _BY_STATUS.get(status, "server" if status >= 500 else "bad_request")
    return named[0] if named else "server"


def _dig(body: object) -> tuple[tuple[str, ...], str, int | None]:
    """Code words, message and status from an error's body, which may be wrapped in `error` once or twice."""
    words: list[str] = []
    message, status = "", None
    while isinstance(body, dict):
        for name in ("code", "type"):
            value = body.get(name)
            if isinstance(value, str):
                words.append(value)
            elif isinstance(value, int) and value >= 400:
                status = value
        if isinstance(body.get("message"), str):
            message = body["message"]
        body = body.get("error")
    return tuple(words), message, status


def _happened(kind: ErrorKind, status: int | None) -> str:
    """Says whether the provider refused to answer or failed."""
    if kind == "rate":
        return "limited the rate of requests"
    if kind in RETRYABLE:
        return f"failed (HTTP {status})" if status else "failed"
    return "refused the request"


async def _refused(endpoint: Endpoint, response: Any) -> ModelError:
    """The error for a response with an error status."""
    read = bytearray()
    async for piece in response.aiter_bytes():
        read += piece[: _ERROR_BYTES - len(read)]
        if len(read) >= _ERROR_BYTES:
            break
    text = read.decode(errors="replace").strip()
    try:
        body: object = json.loads(text)
    except ValueError:
        body = "" if text.startswith("<") else text
    return error_of(endpoint, body, response.status_code, response.headers)


def error_of(
    endpoint: Endpoint, body: object, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """The error that a body describes, in a response or in the middle of a stream."""
    words, message, body_status = _dig(body)
    status = body_status or status
    message = (
        message or (body if isinstance(body, str) else "") or (f"Error code: {status}" if status else "no reason given")
    )
    text = masked(message, endpoint.secrets)
    kind = _kind(status, words, text)
    said = f"{endpoint.provider} {_happened(kind, status)}: {text[:_MOST_SAID]}"
    return ModelError(kind, said, status=status, retry_after=retry_after(headers or {}))

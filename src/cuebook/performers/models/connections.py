"""What the SDKs of remote providers share: connections, and their errors in our words.

It knows HTTP statuses and headers; it imports no SDK and holds no key longer than a call.
"""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cuebook.performers import lazy
from cuebook.performers.models.masking import masked
from cuebook.performers.models.port import RETRYABLE, ErrorKind, ModelError, Room

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

_SHOWN = 2_000
"""Characters of a provider's own words that are kept."""

_TRANSPORT = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "anyio")


async def load_sdk(name: str, provider: str) -> Any:
    """An SDK, imported when it is first needed: that takes a second or more."""
    try:
        return await lazy.load(name)
    except ImportError as error:
        raise ModelError(
            "not_installed",
            f"The provider {provider} needs the Python package {name}, which cannot be imported ({error}).",
            fix=f"Install it with `pip install {name}`.",
        ) from None


@lru_cache(maxsize=1)
def _ssl_context() -> ssl.SSLContext:
    # Reading the certificates takes tens of milliseconds; with one client for each call that adds up.
    return ssl.create_default_context()


def is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def http_client(sdk: Any, base_url: str, provider: str, limit: int) -> Any:
    """A client for one call. A proxy set in the environment is not asked for this machine's own addresses.

    A line of a response, which the SDK reads whole before it looks at it, may have no more bytes than the limit.
    """

    async def bound(response: Any) -> None:
        whole = response.aiter_bytes

        async def lines_bounded(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
            room = Room(limit, provider)
            async for piece in whole(*args, **kwargs):
                before, newline, after = piece.rpartition(b"\n")
                room.use(len(before))
                if newline:
                    room = Room(limit, provider)
                room.use(len(after))
                yield piece

        response.aiter_bytes = lines_bounded

    return sdk.DefaultAsyncHttpxClient(
        verify=_ssl_context(), trust_env=not is_loopback(base_url), event_hooks={"response": [bound]}
    )


def key_arguments(sdk: Any, key: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """What a call says of the key. Where none is wanted, the SDK would take one from the environment for this server, or
    send an empty one: it is told to leave the header out."""
    named = {name.lower() for name in headers}
    left_out = () if key else [name for name in ("Authorization", "X-Api-Key") if name.lower() not in named]
    return {"extra_headers": {name: sdk.Omit() for name in left_out}} if left_out else {}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, given as milliseconds, seconds or a date."""
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
    # A precise code beats the status (429 is also sent for an empty account), a vague one does not.
    precise = [kind for kind in named if kind not in ("bad_request", "server")]
    if precise:
        return precise[0]
    if status is not None and status >= 400:
        return _BY_STATUS.get(status, "server" if status >= 500 else "bad_request")
    return named[0] if named else "server"


def _dig(body: object) -> tuple[tuple[str, ...], str, int | None]:
    """Code words, message and status out of an error's body, which may be wrapped in `error` once or twice."""
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
    """Whether the provider would not answer, or could not."""
    if kind == "rate":
        return "limits how often it is asked"
    if kind in RETRYABLE:
        return f"failed (HTTP {status})" if status else "failed"
    return "refused the request"


def translate(error: Exception, provider: str, secrets: tuple[str, ...], *, started: bool) -> ModelError | None:
    """An SDK's or a connection's error in our words; None for what is a defect and must not be hidden.

    `started` says that the reply had begun, so that a lost connection is a dropped stream.
    """
    lost: ErrorKind = "dropped" if started else "network"
    names = {cls.__name__ for cls in type(error).__mro__}
    if {"APITimeoutError", "TimeoutException"} & names or isinstance(error, TimeoutError):
        return ModelError("timeout", f"{provider} did not answer in time.")
    response = getattr(error, "response", None)
    body = getattr(error, "body", None)
    if "APIError" in names and (response is not None or body is not None):
        words, message, body_status = _dig(body)
        status = body_status or getattr(response, "status_code", None)
        text = masked(message or str(error), secrets)
        headers = getattr(response, "headers", {})
        kind = _kind(status, words, text)
        said = f"{provider} {_happened(kind, status)}: {text[:_SHOWN]}"
        return ModelError(kind, said, status=status, retry_after=retry_after(headers))
    from_transport = any(cls.__module__.partition(".")[0] in _TRANSPORT for cls in type(error).__mro__)
    if "APIError" in names or from_transport or isinstance(error, OSError):
        cause = error.__cause__ or error
        verb = "was lost while it answered" if started else "could not be made"
        reason = masked(str(cause) or type(cause).__name__, secrets)
        return ModelError(lost, f"The connection to {provider} {verb}: {reason}")
    if isinstance(error, ValueError):
        reason = masked(str(error), secrets)
        return ModelError("dropped", f"{provider} sent something that is not a reply: {reason}")
    return None

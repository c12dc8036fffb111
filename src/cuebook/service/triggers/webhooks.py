"""Checks that a request to a webhook was signed with its secret, and recently; returns what it carries. Pure.

Three schemes are known: that of GitHub, that of Slack, and Standard Webhooks (`hmac`), which many senders use. Slack and
Standard Webhooks sign the time, so that a request cannot be repeated later. GitHub signs only the body, so a body counts once.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from cuebook.kernel.errors import BadInput

LATE = 300.0
"""Seconds by which the time of a request may differ from ours."""
LARGEST = 1_000_000
"""Bytes of a request."""
_LONGEST_ID = 200
_FORM = "application/x-www-form-urlencoded"


class Forged(Exception):
    """The request was not signed with the secret, or too long ago."""


class Delivery(msgspec.Struct, frozen=True):
    """A request whose signature was checked."""

    key: str
    """Identifies it: the same for a repetition."""
    payload: Any
    event: str = ""
    """What GitHub says it is about. The signature does not cover that."""
    challenge: str = ""
    """What Slack wants to be answered when an address is registered."""


def delivery(scheme: str, secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery:
    """What a request carries. Raises `Forged`, and `BadInput` for a signed request that cannot be read."""
    return SCHEMES[scheme](secret, headers, body, now)


def _github(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery:
    expected = f"sha256={_hex(secret.encode(), body)}"
    _compare(expected, headers.get("x-hub-signature-256", ""))
    payload = _payload(headers, body)
    if isinstance(payload, dict) and set(payload) == {"payload"} and isinstance(payload["payload"], str):
        payload = _json(payload["payload"].encode())  # GitHub's form encoding
    return Delivery(_digest(body), payload, headers.get("x-github-event", ""))


def _slack(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery:
    sent = headers.get("x-slack-request-timestamp", "")
    expected = f"v0={_hex(secret.encode(), b'v0:' + sent.encode() + b':' + body)}"
    _compare(expected, headers.get("x-slack-signature", ""))
    _check_time(sent, now)
    payload = _payload(headers, body)
    known = payload if isinstance(payload, dict) else {}
    if known.get("type") == "url_verification":
        return Delivery("", payload, challenge=str(known.get("challenge", "")))
    key = known.get("event_id") or known.get("trigger_id")
    return Delivery(_known_by(str(key)) if key else _digest(body), payload)


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Delivery:
    id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signed = hmac.new(_key(secret), f"{id}.{sent}.".encode() + body, sha256).digest()
    expected = f"v1,{base64.b64encode(signed).decode()}"
    given = headers.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in given[:10]) or not id:
        raise Forged
    _check_time(sent, now)
    return Delivery(_known_by(id), _payload(headers, body))


Scheme = Callable[[str, Mapping[str, str], bytes, float], Delivery]
SCHEMES: dict[str, Scheme] = {"github": _github, "slack": _slack, "hmac": _standard}


def _key(secret: str) -> bytes:
    """A secret of Standard Webhooks: base64 after `whsec_`, or the text itself."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return secret.encode()


def _known_by(id: str) -> str:
    """The key for the sender's id, which may be long."""
    return id if len(id) <= _LONGEST_ID else _digest(id.encode())


def _hex(key: bytes, message: bytes) -> str:
    return hmac.new(key, message, sha256).hexdigest()


def _digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def _compare(expected: str, given: str) -> None:
    if not hmac.compare_digest(expected.encode(), given.encode()):
        raise Forged


def _check_time(sent: str, now: float) -> None:
    if not (sent.isascii() and sent.isdigit() and len(sent) < 16) or abs(now - int(sent)) > LATE:
        raise Forged


def _payload(headers: Mapping[str, str], body: bytes) -> Any:
    if headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        try:
            return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200))
        except ValueError:
            raise _unreadable() from None
    return _json(body)


def _json(body: bytes) -> Any:
    try:
        found = json.loads(body)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadInput("A string in the body has an unpaired surrogate.", fix="Send complete characters.") from None
    except (ValueError, RecursionError):
        raise _unreadable() from None
    return found


def _unreadable() -> BadInput:
    return BadInput("The body is neither JSON nor a form.", fix="Send JSON.")

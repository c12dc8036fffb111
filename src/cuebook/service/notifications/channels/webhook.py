"""Webhooks, signed as Standard Webhooks describes (https://www.standardwebhooks.com), which has libraries that verify them."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from cuebook.config.notifications import ChannelSettings
from cuebook.service.notifications.channels.channel import Recipient, Reveal, Undelivered, post, revealed
from cuebook.service.notifications.message import Message

_GONE = 410


class Webhook:
    """Posts messages as JSON. Every attempt has the same id and a signature with its own time."""

    def __init__(self, settings: ChannelSettings, reveal: Reveal) -> None:
        self.settings = settings
        self._reveal = reveal

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        settings = self.settings
        url = settings.url or await revealed(self._reveal, settings.secret_url)
        key = key_of(await revealed(self._reveal, settings.secret))
        body = json.dumps(message.plain(), ensure_ascii=False, separators=(",", ":")).encode()
        moment = str(int(now))
        headers = {
            "webhook-id": message.id,
            "webhook-timestamp": moment,
            "webhook-signature": signature(key, message.id, moment, body),
        }
        shown = urlsplit(settings.url).netloc or f"the webhook '{settings.name}'"
        answer = await post(url, body, headers, shown=shown)
        if 200 <= answer.status < 300:
            return {}
        why = f"{shown} answered with HTTP {answer.status}."
        raise Undelivered(why, after=answer.after, final=answer.status == _GONE, down=answer.is_down)


def key_of(secret: str) -> bytes:
    """The key in a secret: base64 after `whsec_`, as Standard Webhooks writes it, or else the text itself."""
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            raise Undelivered("The key of the webhook begins with 'whsec_', but is not base64.") from None
    return secret.encode()


def signature(key: bytes, id: str, moment: str, body: bytes) -> str:
    signed = b".".join((id.encode(), moment.encode(), body))
    return f"v1,{b64encode(hmac.digest(key, signed, sha256)).decode()}"

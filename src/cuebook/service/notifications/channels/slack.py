"""Slack: messages through an incoming webhook, or with an app's token, which adds buttons and direct messages.

Texts of runs are sent as plain text: in it, Slack interprets neither mentions nor markup.
"""

from __future__ import annotations

import json
from typing import Any

from cuebook.config.notifications import ChannelSettings
from cuebook.service.notifications.channels.channel import Answer, Recipient, Reveal, Undelivered, post, revealed
from cuebook.service.notifications.message import DECISIONS, Message, minutes

SHOWN = "Slack"
_SECTION = 2_900
"""Slack's limit is 3,000 characters."""
_LABELS = {"approve": ("Approve", "primary"), "deny": ("Deny", "danger")}
_GONE = ("no_service", "channel_is_archived", "invalid_token", "no_active_hooks")


class Slack:
    """Sends messages to one Slack channel, or with an app's token also to one person."""

    def __init__(self, settings: ChannelSettings, reveal: Reveal) -> None:
        self.settings = settings
        self._reveal = reveal

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        settings = self.settings
        if settings.token:
            place = to.address if to is not None else next(iter(settings.to), "")
            if not place:
                raise Undelivered(
                    "The channel has no 'to', so it only reaches people who linked their account.", final=True
                )
            said = {"channel": place, **body(message, buttons=bool(settings.signing_secret))}
            sent = await self.call("chat.postMessage", said)
            return {"channel": str(sent.get("channel", place)), "ts": str(sent.get("ts", ""))}
        url = await revealed(self._reveal, settings.secret_url)
        answer = await post(url, _encoded(body(message)), {}, shown=SHOWN)
        if not 200 <= answer.status < 300:
            words = answer.body[:100].decode("ascii", "replace")
            why = f" ({words})" if words.replace("_", "").isalpha() else ""
            raise Undelivered(
                f"Slack answered with HTTP {answer.status}{why}.",
                after=answer.after,
                final=words in _GONE,
                down=answer.is_down,
            )
        return {}

    async def call(self, method: str, said: dict[str, Any]) -> dict[str, Any]:
        """Calls a method of Slack's API with the app's token."""
        token = await revealed(self._reveal, self.settings.token)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json; charset=utf-8"}
        answer = await post(f"{self.settings.api.rstrip('/')}/{method}", _encoded(said), headers, shown=SHOWN)
        found = answer.json()
        if answer.status != 200 or not found.get("ok"):
            raise Undelivered(f"Slack refused it: {_why(answer, found)}.", after=answer.after, down=answer.is_down)
        return found


def _why(answer: Answer, found: dict[str, Any]) -> str:
    error = str(found.get("error", ""))
    return error if error.replace("_", "").isalnum() and len(error) < 60 else f"HTTP {answer.status}"


def _encoded(said: dict[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode()


def body(message: Message, *, buttons: bool = False) -> dict[str, Any]:
    """A message as Slack shows it. It has buttons that decide only if it shows everything that is decided about."""
    blocks: list[dict[str, Any]] = [_section(f"{message.heading}.")]
    if message.text:
        blocks.append(_section(message.text))
    for name, text in message.preview.items():
        blocks.append(_section(f"{name}:\n{text}"))
    actions = []
    if buttons and message.wait and message.digest and message.preview:
        value = f"{message.wait}.{message.digest}"
        actions += [
            {"type": "button", "text": _plain(label), "style": style, "action_id": one, "value": value}
            for one, (label, style) in ((one, _LABELS[one]) for one in DECISIONS)
        ]
    if message.link and buttons:
        actions.append({"type": "button", "text": _plain("Open"), "action_id": "open", "url": message.link})
    if actions:
        blocks.append({"type": "actions", "elements": actions})
    last = [f"<{escaped(message.link)}|Open in Cuebook>"] if message.link and not buttons else []
    last += [f"`{escaped(message.command)}`"] if message.command else []
    last += [f"Id {escaped(message.short_id)}"] if message.short_id else []
    last += [f"Expires {minutes(message.expires)}"] if message.expires is not None else []
    if last:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(last), "verbatim": True}]})
    return {
        "text": escaped(f"{message.heading}."),
        "blocks": blocks,
        "mrkdwn": False,
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def decided(title: str, outcome: str) -> dict[str, Any]:
    """What replaces a message whose approval was decided."""
    blocks = [_section(title), _section(outcome)]
    return {"text": escaped(outcome), "blocks": blocks, "parse": "none", "link_names": False}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _plain(text if len(text) <= _SECTION else f"{text[:_SECTION]}…")}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def escaped(text: str) -> str:
    """A text in which Slack sees neither mentions nor links nor code."""
    return quoted(text).replace("`", "'")


def quoted(text: str) -> str:
    """A text in which Slack sees neither mentions nor links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

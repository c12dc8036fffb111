"""Notifications through webhooks: Discord, Microsoft Teams, or anything that accepts JSON.

A webhook's URL is a secret, because anyone who knows it can post. So a model is never asked for it.
"""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import Answer, Given, HttpTool, Request, Rest, Skill
from cuebook.performers.skills.schemas import objects, parameters, table, text, usual
from cuebook.performers.skills.settings import SETTINGS

_WEBHOOK, _DISCORD, _TEAMS = "NOTIFICATION_WEBHOOK_URL", "DISCORD_WEBHOOK_URL", "TEAMS_WEBHOOK_URL"
_CARD = {
    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
    "type": "AdaptiveCard",
    "version": "1.2",
    "body": [
        {"type": "TextBlock", "text": Given("title"), "weight": "bolder", "wrap": True},
        {"type": "TextBlock", "text": Given("text"), "wrap": True},
    ],
}


def _post(address: str, body: Any) -> tuple[Request, ...]:
    return (Request("POST", address, body=body, answer=Answer("text")),)


NOTIFICATION = Skill(
    "notification",
    "Notification",
    "Sends notifications to a webhook, to Discord or to Microsoft Teams.",
    "notification",
    settings=SETTINGS["notification"],
    needs=((_WEBHOOK, _DISCORD, _TEAMS),),
    tools=(
        HttpTool(
            "notify_webhook",
            "Posts JSON to the webhook that is configured for notifications.",
            parameters(("payload",), payload=table("The JSON to post.")),
            _post(_WEBHOOK, Given("payload")),
        ),
        HttpTool(
            "notify_discord",
            "Sends a message to Discord.",
            parameters(
                ("content",),
                content={**text("The message, in Markdown.", least=1), "maxLength": 2000},
                embeds=objects("Embeds below the message, in Discord's format."),
            ),
            _post(_DISCORD, Rest()),
        ),
        HttpTool(
            "notify_teams",
            "Sends a message to Microsoft Teams.",
            parameters(
                ("text",),
                title=usual(text("Its title.", least=1), "Notification"),
                text=text("The message, in Markdown.", least=1),
            ),
            _post(
                _TEAMS,
                {
                    "type": "message",
                    "attachments": [
                        {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": _CARD}
                    ],
                },
            ),
        ),
    ),
)

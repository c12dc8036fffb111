"""Slack, through its Web API, or through an incoming webhook for messages to the channel of that webhook."""

from __future__ import annotations

from cuebook.performers.skills.model import Answer, Auth, Given, HttpTool, Request, Rest, Skill
from cuebook.performers.skills.schemas import objects, parameters, text
from cuebook.performers.skills.settings import SETTINGS

_BASE, _WEBHOOK = "SLACK_API_URL", "SLACK_WEBHOOK_URL"
_AUTH = (Auth("Authorization", "SLACK_BOT_TOKEN", "Bearer {}"),)
_SENT = Answer(keep=("ok", "channel", "ts"), error="error", ok="ok")
_MESSAGE = text("The message, in Slack's markup.", least=1)
_CHANNEL = text("The channel, by its id, or by its name as in #alerts.", least=1)

SLACK = Skill(
    "slack",
    "Slack",
    "Sends messages to Slack.",
    "notification",
    settings=SETTINGS["slack"],
    needs=(("SLACK_BOT_TOKEN", _WEBHOOK),),
    tools=(
        HttpTool(
            "slack_send_message",
            "Sends a message to a Slack channel.",
            parameters(
                ("text",),
                text=_MESSAGE,
                channel=_CHANNEL,
                blocks=objects("The message as blocks, if it has a layout."),
            ),
            (
                Request("POST", _BASE, "/chat.postMessage", auth=_AUTH, body=Rest(), wants=("channel",), answer=_SENT),
                Request(
                    "POST", _WEBHOOK, body={"text": Given("text"), "blocks": Given("blocks")}, answer=Answer("text")
                ),
            ),
        ),
        HttpTool(
            "slack_send_thread_reply",
            "Replies in the thread of a Slack message.",
            parameters(
                ("channel", "thread_ts", "text"),
                channel=_CHANNEL,
                thread_ts=text("The `ts` of the message that the thread belongs to.", least=1),
                text=_MESSAGE,
            ),
            (Request("POST", _BASE, "/chat.postMessage", auth=_AUTH, body=Rest(), answer=_SENT),),
        ),
    ),
)

"""The services of the built-in skills on a local server, and checks that apply to every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ENVIRON = {
    "GITHUB_TOKEN": "ghp_token_for_tests",
    "LINEAR_API_KEY": "lin_api_token_for_tests",
    "SENTRY_AUTH_TOKEN": "sntryu_token_for_tests",
    "SENTRY_ORG": "acme",
    "DD_API_KEY": "datadog-api-key-for-tests",
    "DD_APP_KEY": "datadog-app-key-for-tests",
    "BETTERSTACK_API_TOKEN": "betterstack-token-for-tests",
    "BETTERSTACK_QUERY_USERNAME": "reader",
    "BETTERSTACK_QUERY_PASSWORD": "betterstack-password",
    "SLACK_BOT_TOKEN": "xoxb-token-for-tests",
}
BASES = {
    "GITHUB_API_URL": "/api/v3",
    "LINEAR_API_URL": "/graphql",
    "SENTRY_BASE_URL": "",
    "DD_API_URL": "",
    "BETTERSTACK_API_URL": "",
    "BETTERSTACK_QUERY_ENDPOINT": "",
    "SLACK_API_URL": "/api",
    "NOTIFICATION_WEBHOOK_URL": "/hooks/any-secret-part",
    "DISCORD_WEBHOOK_URL": "/api/webhooks/123/discord-secret-part",
    "TEAMS_WEBHOOK_URL": "/workflows/77/invoke?api-version=2016-06-01&sig=teams-secret-part",
    "SLACK_WEBHOOK_URL": "/services/T00/B00/slack-secret-part",
}
"""Where each service begins on the local server."""


def environ(origin: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    told = {**ENVIRON, **{name: f"{origin}{path}" for name, path in BASES.items()}}
    return {name: value for name, value in told.items() if name not in without}


@dataclass(frozen=True)
class Case:
    tool: str
    arguments: dict[str, Any]
    method: str
    target: str
    """Path and query as they must arrive."""
    body: Any = None
    """As JSON, or a text."""
    answer: Any = None
    value: Any = None
    """What the tool must give."""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


GITHUB_HEADERS = {
    "authorization": "Bearer ghp_token_for_tests",
    "accept": "application/vnd.github+json",
    "x-github-api-version": "2022-11-28",
}
HEADERS: dict[str, dict[str, str]] = {
    "github": GITHUB_HEADERS,
    "linear": {"authorization": "lin_api_token_for_tests", "content-type": "application/json; charset=utf-8"},
    "sentry": {"authorization": "Bearer sntryu_token_for_tests"},
    "datadog": {"dd-api-key": "datadog-api-key-for-tests", "dd-application-key": "datadog-app-key-for-tests"},
    "betterstack": {"authorization": "Bearer betterstack-token-for-tests"},
    "slack": {"authorization": "Bearer xoxb-token-for-tests", "content-type": "application/json; charset=utf-8"},
    "notify": {"content-type": "application/json; charset=utf-8"},
}
"""What every request of a service must carry."""

"""Sentry, through its web API. All tools are read-only."""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import Answer, Auth, Given, HttpTool, Request, Skill, Words
from cuebook.performers.skills.schemas import count, parameters, text, texts, usual
from cuebook.performers.skills.settings import SETTINGS

_BASE = "SENTRY_BASE_URL"
_AUTH = (Auth("Authorization", "SENTRY_AUTH_TOKEN", "Bearer {}"),)
_PROJECT = {"type": "string", "pattern": "^[A-Za-z0-9._-]+$", "description": "The short name of the project."}
_PERIOD = text("How far back, as in 24h or 14d.", least=2)
_ISSUE_ID = text("The id of the issue: a number.", least=1)
_ISSUE = (
    *("id", "shortId", "title", "culprit", "permalink", "level", "status", "count", "userCount"),
    *("firstSeen", "lastSeen", "project.slug", "metadata"),
)
_EVENT = ("eventID", "title", "message", "dateCreated", "platform", "location", "culprit", "tags")
_FRAME = "entries.data.values.stacktrace.frames"


def _get(path: str, query: dict[str, Any], *keep: str, at: str = "") -> tuple[Request, ...]:
    path = f"/api/0/organizations/{{SENTRY_ORG}}{path}"
    return (Request("GET", _BASE, path, query, auth=_AUTH, answer=Answer(at=at, keep=keep)),)


SENTRY = Skill(
    "sentry",
    "Sentry",
    "Reads errors and their occurrences from Sentry.",
    "observability",
    settings=SETTINGS["sentry"],
    needs=(("SENTRY_AUTH_TOKEN",), ("SENTRY_ORG",)),
    tools=(
        HttpTool(
            "sentry_list_issues",
            "Lists issues of a Sentry project, the latest first.",
            parameters(
                ("project",),
                project=_PROJECT,
                query=usual(text("What to look for, as in `is:unresolved level:error`.", least=1), "is:unresolved"),
                statsPeriod=_PERIOD,
                limit=count(25, 100),
            ),
            _get(
                "/issues/",
                {
                    "query": Words(("project:{project}", "{query}")),
                    "statsPeriod": Given("statsPeriod"),
                    "limit": Given("limit"),
                },
                *_ISSUE,
            ),
            reads_only=True,
        ),
        HttpTool(
            "sentry_get_issue",
            "Reads a Sentry issue.",
            parameters(("issueId",), issueId=_ISSUE_ID),
            _get(
                "/issues/{issueId}/",
                {},
                *(*_ISSUE, "assignedTo.name", "firstRelease.version", "lastRelease.version", "tags.key"),
            ),
            reads_only=True,
        ),
        HttpTool(
            "sentry_get_issue_events",
            "Lists the latest occurrences of a Sentry issue.",
            parameters(("issueId",), issueId=_ISSUE_ID, statsPeriod=_PERIOD),
            _get("/issues/{issueId}/events/", {"statsPeriod": Given("statsPeriod")}, *_EVENT),
            reads_only=True,
        ),
        HttpTool(
            "sentry_get_event",
            "Reads one occurrence of a Sentry issue, with its stack trace.",
            parameters(
                ("issueId", "eventId"),
                issueId=_ISSUE_ID,
                eventId=text("The id of the event, or latest, oldest or recommended.", least=1),
            ),
            _get(
                "/issues/{issueId}/events/{eventId}/",
                {},
                *_EVENT,
                *("entries.type", "entries.data.values.type", "entries.data.values.value"),
                *(f"{_FRAME}.{field}" for field in ("filename", "function", "module", "lineNo", "inApp")),
                *("entries.data.formatted", "entries.data.method", "entries.data.url", "release.version"),
            ),
            reads_only=True,
        ),
        HttpTool(
            "sentry_search_events",
            "Searches the events of a Sentry project and returns the requested fields as a table.",
            parameters(
                ("project", "fields"),
                project=_PROJECT,
                query=text("What to look for, in Sentry's syntax.", least=1),
                fields=texts("The fields to return, such as title, count() or last_seen().", least=1),
                statsPeriod=_PERIOD,
            ),
            _get(
                "/events/",
                {
                    "field": Given("fields"),
                    "query": Words(("project:{project}", "{query}")),
                    "statsPeriod": Given("statsPeriod"),
                    "per_page": 50,
                },
                at="data",
            ),
            reads_only=True,
        ),
    ),
)

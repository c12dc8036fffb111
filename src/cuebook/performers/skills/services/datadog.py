"""Datadog, through its web API. All tools are read-only."""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import Answer, Auth, Given, HttpTool, Request, Skill
from cuebook.performers.skills.schemas import count, number, parameters, text, usual
from cuebook.performers.skills.settings import SETTINGS

_BASE = "DD_API_URL"
_AUTH = (Auth("DD-API-KEY", "DD_API_KEY"), Auth("DD-APPLICATION-KEY", "DD_APP_KEY"))
_SERIES = ("series.metric", "series.scope", "series.pointlist")
_LOG = ("timestamp", "status", "service", "host", "message", "tags", "attributes")


def _get(path: str, query: dict[str, Any], answer: Answer) -> tuple[Request, ...]:
    return (Request("GET", _BASE, path, query, auth=_AUTH, answer=answer),)


DATADOG = Skill(
    "datadog",
    "Datadog",
    "Reads logs, metrics and monitors from Datadog.",
    "observability",
    settings=SETTINGS["datadog"],
    needs=(("DD_API_KEY",), ("DD_APP_KEY",)),
    tools=(
        HttpTool(
            "datadog_search_logs",
            "Searches logs in Datadog, newest first.",
            parameters(
                ("query",),
                query=text("What to look for, in Datadog's syntax, as in `service:web status:error`.", least=1),
                **{"from": usual(text("The start, as a date and time or as in now-15m.", least=1), "now-1h")},
                to=usual(text("The end.", least=1), "now"),
                limit=count(50, 1000),
            ),
            (
                Request(
                    "POST",
                    _BASE,
                    "/api/v2/logs/events/search",
                    auth=_AUTH,
                    body={
                        "filter": {"query": Given("query"), "from": Given("from"), "to": Given("to")},
                        "page": {"limit": Given("limit")},
                        "sort": "-timestamp",
                    },
                    answer=Answer(at="data", keep=("id", *(f"attributes.{field}" for field in _LOG))),
                ),
            ),
            reads_only=True,
        ),
        HttpTool(
            "datadog_query_metrics",
            "Reads a metric over time from Datadog.",
            parameters(
                ("query", "from", "to"),
                query=text("The query, as in `avg:system.cpu.user{*}`.", least=1),
                **{"from": number("The start, in seconds since 1970.", least=0)},
                to=number("The end, in seconds since 1970.", least=0),
            ),
            _get(
                "/api/v1/query",
                {"query": Given("query"), "from": Given("from"), "to": Given("to")},
                Answer(error="error", keep=("query", "from_date", "to_date", *_SERIES)),
            ),
            reads_only=True,
        ),
        HttpTool(
            "datadog_list_monitors",
            "Lists monitors in Datadog with their states.",
            parameters(
                (),
                name=text("A part of the name.", least=1),
                tags=text("Tags of the monitor, separated by commas.", least=1),
            ),
            _get(
                "/api/v1/monitor",
                {"name": Given("name"), "monitor_tags": Given("tags"), "page": 0, "page_size": 100},
                Answer(keep=("id", "name", "type", "query", "message", "overall_state", "tags", "modified")),
            ),
            reads_only=True,
        ),
    ),
)

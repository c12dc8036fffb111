"""The requests of the Sentry, Datadog, Better Stack and notification tools, and the answers of the services."""

from __future__ import annotations

from base64 import b64encode

from tests.performers.skills.services import Case

# --- Sentry, Datadog, Better Stack --------------------------------------------------------------------

_SENTRY_ISSUE = {
    "id": "42",
    "shortId": "SHOP-1",
    "title": "TypeError",
    "permalink": "p",
    "level": "error",
    "count": "9",
    "project": {"id": "1", "slug": "shop", "name": "Shop"},
    "stats": {"24h": [[1, 2]]},
}
_SENTRY_KEPT = {
    "id": "42",
    "shortId": "SHOP-1",
    "title": "TypeError",
    "permalink": "p",
    "level": "error",
    "count": "9",
    "project": {"slug": "shop"},
}
_FRAME = {"filename": "cart.py", "function": "pay", "module": "cart", "lineNo": 3, "inApp": True, "context": [[3, "x"]]}

SENTRY = [
    Case(
        "sentry_list_issues",
        {"project": "shop"},
        "GET",
        "/api/0/organizations/acme/issues/?query=project%3Ashop%20is%3Aunresolved&limit=25",
        answer=[_SENTRY_ISSUE],
        value=[_SENTRY_KEPT],
    ),
    Case(
        "sentry_get_issue",
        {"issueId": "42"},
        "GET",
        "/api/0/organizations/acme/issues/42/",
        answer={**_SENTRY_ISSUE, "firstRelease": {"version": "1.0", "ref": None}, "activity": [1, 2]},
        value={**_SENTRY_KEPT, "firstRelease": {"version": "1.0"}},
    ),
    Case(
        "sentry_get_issue_events",
        {"issueId": "42", "statsPeriod": "24h"},
        "GET",
        "/api/0/organizations/acme/issues/42/events/?statsPeriod=24h",
        answer=[
            {
                "eventID": "e1",
                "id": "e1",
                "title": "TypeError",
                "tags": [{"key": "os", "value": "x"}],
                "crashFile": None,
            }
        ],
        value=[{"eventID": "e1", "title": "TypeError", "tags": [{"key": "os", "value": "x"}]}],
    ),
    Case(
        "sentry_get_event",
        {"issueId": "42", "eventId": "latest"},
        "GET",
        "/api/0/organizations/acme/issues/42/events/latest/",
        answer={
            "eventID": "e1",
            "title": "TypeError",
            "entries": [
                {
                    "type": "exception",
                    "data": {"values": [{"type": "TypeError", "value": "no", "stacktrace": {"frames": [_FRAME]}}]},
                }
            ],
            "sdk": {"name": "x"},
        },
        value={
            "eventID": "e1",
            "title": "TypeError",
            "entries": [
                {
                    "type": "exception",
                    "data": {
                        "values": [
                            {
                                "type": "TypeError",
                                "value": "no",
                                "stacktrace": {
                                    "frames": [
                                        {
                                            "filename": "cart.py",
                                            "function": "pay",
                                            "module": "cart",
                                            "lineNo": 3,
                                            "inApp": True,
                                        }
                                    ]
                                },
                            }
                        ]
                    },
                }
            ],
        },
    ),
    Case(
        "sentry_search_events",
        {"project": "shop", "query": "level:error", "fields": ["title", "count()"]},
        "GET",
        "/api/0/organizations/acme/events/?field=title&field=count%28%29&query=project%3Ashop%20level%3Aerror&per_page=50",
        answer={"data": [{"title": "TypeError", "count()": 3}], "meta": {"fields": {"title": "string"}}},
        value=[{"title": "TypeError", "count()": 3}],
    ),
]

DATADOG = [
    Case(
        "datadog_search_logs",
        {"query": "service:web status:error", "limit": 5},
        "POST",
        "/api/v2/logs/events/search",
        {
            "filter": {"query": "service:web status:error", "from": "now-1h", "to": "now"},
            "page": {"limit": 5},
            "sort": "-timestamp",
        },
        {"data": [{"id": "A", "type": "log", "attributes": {"message": "no", "service": "web"}}], "meta": {"page": {}}},
        [{"id": "A", "attributes": {"service": "web", "message": "no"}}],
    ),
    Case(
        "datadog_query_metrics",
        {"query": "avg:system.cpu.user{*}", "from": 1700000000, "to": 1700000600},
        "GET",
        "/api/v1/query?query=avg%3Asystem.cpu.user%7B%2A%7D&from=1700000000&to=1700000600",
        answer={
            "status": "ok",
            "query": "avg:system.cpu.user{*}",
            "from_date": 1700000000000,
            "to_date": 1700000600000,
            "series": [{"metric": "system.cpu.user", "scope": "*", "pointlist": [[1700000000000.0, 4.2]], "unit": []}],
        },
        value={
            "query": "avg:system.cpu.user{*}",
            "from_date": 1700000000000,
            "to_date": 1700000600000,
            "series": [{"metric": "system.cpu.user", "scope": "*", "pointlist": [[1700000000000.0, 4.2]]}],
        },
    ),
    Case(
        "datadog_list_monitors",
        {"tags": "service:web,team:shop"},
        "GET",
        "/api/v1/monitor?monitor_tags=service%3Aweb%2Cteam%3Ashop&page=0&page_size=100",
        answer=[{"id": 1, "name": "CPU", "overall_state": "Alert", "options": {"x": 1}}],
        value=[{"id": 1, "name": "CPU", "overall_state": "Alert"}],
    ),
]

_SQL_HEADERS = {
    "authorization": f"Basic {b64encode(b'reader:betterstack-password').decode()}",
    "content-type": "text/plain; charset=utf-8",
}
_SOURCE = {
    "id": "95",
    "type": "source",
    "attributes": {"name": "Nginx", "table_name": "nginx", "token": "ingest-token"},
}

BETTERSTACK = [
    Case(
        "betterstack_list_sources",
        {},
        "GET",
        "/api/v2/sources?per_page=50",
        answer={"data": [_SOURCE], "pagination": {"first": "x"}},
        value=[{"id": "95", "attributes": {"name": "Nginx", "table_name": "nginx"}}],
    ),
    Case(
        "betterstack_get_source",
        {"id": 95},
        "GET",
        "/api/v1/sources/95",
        answer=_SOURCE,
        value={"id": "95", "attributes": {"name": "Nginx", "table_name": "nginx"}},
    ),
    Case(
        "betterstack_get_source_fields",
        {"table": "t123456_web"},
        "POST",
        "/?output_format_pretty_row_numbers=0",
        "DESCRIBE TABLE remote(t123456_web_logs)\nFORMAT JSONEachRow",
        '{"name":"dt","type":"DateTime64(6)","comment":""}\n{"name":"raw","type":"String","comment":""}\n',
        [{"name": "dt", "type": "DateTime64(6)"}, {"name": "raw", "type": "String"}],
        headers=_SQL_HEADERS,
    ),
    Case(
        "betterstack_query",
        {"query": "SELECT dt, raw FROM remote(t123456_web_logs) LIMIT 2"},
        "POST",
        "/?output_format_pretty_row_numbers=0",
        "SELECT dt, raw FROM remote(t123456_web_logs) LIMIT 2\nFORMAT JSONEachRow",
        '{"dt":"2026-01-01 00:00:00","raw":"{}"}\n',
        [{"dt": "2026-01-01 00:00:00", "raw": "{}"}],
        headers=_SQL_HEADERS,
    ),
]

# --- Slack and notifications --------------------------------------------------------------------------

_BLOCKS = [{"type": "section", "text": {"type": "mrkdwn", "text": "*Down*"}}]

SLACK = [
    Case(
        "slack_send_message",
        {"text": "Down", "channel": "#alerts", "blocks": _BLOCKS},
        "POST",
        "/api/chat.postMessage",
        {"text": "Down", "channel": "#alerts", "blocks": _BLOCKS},
        {"ok": True, "channel": "C123", "ts": "1503435956.000247", "message": {"text": "Down"}},
        {"ok": True, "channel": "C123", "ts": "1503435956.000247"},
    ),
    Case(
        "slack_send_thread_reply",
        {"channel": "C123", "thread_ts": "1503435956.000247", "text": "Up again"},
        "POST",
        "/api/chat.postMessage",
        {"channel": "C123", "thread_ts": "1503435956.000247", "text": "Up again"},
        {"ok": True, "channel": "C123", "ts": "1503435957.000100", "message": {}},
        {"ok": True, "channel": "C123", "ts": "1503435957.000100"},
    ),
]

NOTIFICATION = [
    Case(
        "notify_webhook",
        {"payload": {"level": "high", "seen": [1, 2]}},
        "POST",
        "/hooks/any-secret-part",
        {"level": "high", "seen": [1, 2]},
        "thanks",
        "thanks",
    ),
    Case(
        "notify_discord",
        {"content": "Down", "embeds": [{"title": "Shop"}]},
        "POST",
        "/api/webhooks/123/discord-secret-part",
        {"content": "Down", "embeds": [{"title": "Shop"}]},
        "",
        {"status": 204},
        status=204,
    ),
    Case(
        "notify_teams",
        {"text": "The shop is **down**."},
        "POST",
        "/workflows/77/invoke?api-version=2016-06-01&sig=teams-secret-part",
        {
            "type": "message",
            "attachments": [
                {
                    "contentType": "application/vnd.microsoft.card.adaptive",
                    "contentUrl": None,
                    "content": {
                        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                        "type": "AdaptiveCard",
                        "version": "1.2",
                        "body": [
                            {"type": "TextBlock", "text": "Notification", "weight": "bolder", "wrap": True},
                            {"type": "TextBlock", "text": "The shop is **down**.", "wrap": True},
                        ],
                    },
                }
            ],
        },
        "",
        {"status": 202},
        status=202,
    ),
]

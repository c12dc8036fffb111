"""Better Stack: sources through the Telemetry API, and their logs through read-only SQL over HTTP."""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import Answer, Auth, Filled, HttpTool, Request, Skill
from cuebook.performers.skills.schemas import number, parameters
from cuebook.performers.skills.settings import SETTINGS

_BASE = "BETTERSTACK_API_URL"
_SQL = "BETTERSTACK_QUERY_ENDPOINT"
_USER, _PASSWORD = "BETTERSTACK_QUERY_USERNAME", "BETTERSTACK_QUERY_PASSWORD"
_AUTH = (Auth("Authorization", "BETTERSTACK_API_TOKEN", "Bearer {}"),)
_SOURCE = ("name", "table_name", "platform", "team_name", "data_region", "logs_retention", "ingesting_paused")


def _get(path: str, query: dict[str, Any], *keep: str, at: str = "") -> tuple[Request, ...]:
    fields = ("id", *(f"attributes.{field}" for field in keep))
    return (Request("GET", _BASE, path, query, auth=_AUTH, answer=Answer(at=at, keep=fields)),)


def _sql(statement: str, *keep: str) -> tuple[Request, ...]:
    auth = (Auth("Authorization", _PASSWORD, "Basic {}", user=_USER),)
    # The line break terminates a comment at the end of the statement, if there is one.
    body = Filled(f"{statement}\nFORMAT JSONEachRow")
    query, answer = {"output_format_pretty_row_numbers": 0}, Answer("lines", keep=keep)
    return (Request("POST", _SQL, query=query, auth=auth, body=body, answer=answer),)


BETTERSTACK = Skill(
    "betterstack",
    "Better Stack",
    "Lists telemetry sources in Better Stack and queries their logs.",
    "observability",
    settings=SETTINGS["betterstack"],
    needs=(("BETTERSTACK_API_TOKEN",),),
    tools=(
        HttpTool(
            "betterstack_list_sources",
            "Lists telemetry sources, with the names of their tables.",
            parameters(),
            _get("/api/v2/sources", {"per_page": 50}, *_SOURCE, at="data"),
            reads_only=True,
        ),
        HttpTool(
            "betterstack_get_source",
            "Reads one telemetry source.",
            parameters(("id",), id=number("Its id.")),
            # Only the list has a second version, and only its response has a `data` key.
            _get("/api/v1/sources/{id}", {}, *_SOURCE, "created_at", "updated_at"),
            reads_only=True,
        ),
        HttpTool(
            "betterstack_get_source_fields",
            "Lists the columns of a source's table.",
            parameters(
                ("table",),
                table={
                    "type": "string",
                    "pattern": "^[A-Za-z0-9_]+$",
                    "description": "The table, as in t123456_your_source.",
                },
            ),
            _sql("DESCRIBE TABLE remote({table}_logs)", "name", "type"),
            reads_only=True,
        ),
        HttpTool(
            "betterstack_query",
            "Queries logs in Better Stack with ClickHouse SQL. Recent logs are in remote(TABLE_logs), older ones in"
            " s3Cluster(primary, TABLE_s3) with _row_type = 1; dt is the time and raw the log as JSON, whose fields"
            " JSONExtract(raw, 'name', 'Nullable(String)') returns.",
            parameters(
                ("query",),
                query={
                    "type": "string",
                    "pattern": r"^\s*(SELECT|select|WITH|with|DESCRIBE|describe)\s",
                    "description": "One SELECT with a LIMIT, without FORMAT and without a semicolon.",
                },
            ),
            _sql("{query}"),
            reads_only=True,
        ),
    ),
)

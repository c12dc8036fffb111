"""Each tool of the built-in skills, against a local server, sends the requests that the service documents."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cuebook.gate.redaction import SecretRedactor
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Limits
from cuebook.performers.skills.library import BUILT_IN, Skills
from cuebook.performers.skills.request_arguments import names_in, settings_in
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.skills.monitoring_cases import BETTERSTACK, DATADOG, NOTIFICATION, SENTRY, SLACK
from tests.performers.skills.services import GITHUB_HEADERS, HEADERS, Case, environ
from tests.performers.skills.tracker_cases import GITHUB, LINEAR, PULL, PULL_KEPT
from tests.performers.tools.calls import ToolCaller, described, not_described
from tests.support.http_servers import LOOPBACK, Handler, Server, answer, hang, redirect

CASES = [*GITHUB, *LINEAR, *SENTRY, *DATADOG, *BETTERSTACK, *SLACK, *NOTIFICATION]


def toolbox(server: Server, without: tuple[str, ...] = ()) -> Toolbox:
    told = environ(server.url("").removesuffix("/"), without)
    skills = Skills(told)
    return Toolbox(skills.tools(LOOPBACK, lambda handle: told[handle.removeprefix("env:")], pauses=(0, 0)))


def said(given: Any, status: int = 200) -> Handler:
    return answer(given if isinstance(given, str) else json.dumps(given), status)


def assert_sent(server: Server, case: Case) -> None:
    seen = server.requests[0]
    assert (seen.method, seen.target) == (case.method, case.target)
    service = case.tool.partition("_")[0]
    wanted = {**HEADERS[service], **case.headers}
    assert {name: seen.headers.get(name) for name in wanted} == wanted
    if case.body is None:
        assert seen.body == b""
    else:
        assert (seen.body.decode() if isinstance(case.body, str) else json.loads(seen.body)) == case.body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
async def test_a_tool_sends_the_documented_request_and_keeps_the_useful_part_of_the_answer(case: Case):
    async with Server(said(case.answer, case.status)) as server:
        value = await ToolCaller().value(toolbox(server), case.tool, case.arguments)
        assert value == case.value
        assert_sent(server, case)
        assert len(server.requests) == 1


def test_every_tool_has_a_case_and_says_all_that_a_model_must_know():
    tools = [tool for skill in BUILT_IN.values() for tool in skill.tools]
    assert sorted({case.tool for case in CASES}) == sorted(tool.name for tool in tools)
    assert len({tool.name for tool in tools}) == len(tools)
    for tool in tools:
        properties = tool.parameters["properties"]
        assert tool.parameters["additionalProperties"] is False
        assert all(one.get("description") for one in properties.values()), tool.name
        for request in tool.requests:
            assert names_in(request) - settings_in(request) <= set(properties), tool.name


def test_what_only_reads_says_so_and_nothing_else_does():
    written = {tool.name for skill in BUILT_IN.values() for tool in skill.tools if not tool.reads_only}
    assert written == {
        *("github_create_issue", "github_add_comment", "github_create_pr"),
        *("linear_create_issue", "linear_update_issue", "linear_add_comment"),
        *("slack_send_message", "slack_send_thread_reply"),
        *("notify_webhook", "notify_discord", "notify_teams"),
    }


# --- what is shown beforehand ---


async def test_a_call_is_described_with_its_host_its_token_by_handle_and_everything_it_sends():
    async with Server() as server:
        arguments = {"repo": "acme/shop", "title": "Checkout", "labels": ["bug"]}
        shown = await described(toolbox(server), "github_create_issue", arguments)
        place = server.url("/api/v3/repos/acme/shop/issues")
        assert shown.actions == (
            Action("tool", "github_create_issue"),
            Action("egress", f"POST {place}"),
            Action("secret", "env:GITHUB_TOKEN", reads_only=True),
        )
        assert shown.summary == f"github_create_issue: POST {place}"
        assert "Authorization: Bearer [secret env:GITHUB_TOKEN]" in shown.preview["headers"]
        assert '"labels":["bug"]' in shown.preview["body"]
        assert "ghp_token_for_tests" not in str(shown)
        reading = await described(toolbox(server), "github_get_issue", {"repo": "acme/shop", "number": 7})
        assert reading.actions[0] == Action("tool", "github_get_issue", reads_only=True)
        assert server.requests == []


async def test_an_address_that_is_a_secret_is_shown_by_its_host_alone():
    async with Server() as server:
        shown = await described(toolbox(server), "notify_discord", {"content": "Down"})
        origin = server.url("").removesuffix("/")
        assert shown.summary == f"notify_discord: POST {origin}"
        assert shown.preview["request"] == f"POST {origin}/[secret env:DISCORD_WEBHOOK_URL]"
        assert "discord-secret-part" not in str(shown.preview) + shown.summary
        # Policies decide about the real address.
        assert Action("egress", f"POST {origin}/api/webhooks/123/discord-secret-part") in shown.actions
        assert Action("secret", "env:DISCORD_WEBHOOK_URL", reads_only=True) in shown.actions


# --- arguments ---


@pytest.mark.parametrize(
    ("tool", "arguments", "wrong"),
    [
        ("github_get_issue", {"repo": "acme/shop"}, "number"),
        ("github_get_issue", {"repo": "acme/shop", "number": "seven"}, "number"),
        ("github_get_issue", {"repo": "acme/shop", "number": 0}, "number"),
        ("github_get_issue", {"repo": "../../user", "number": 1}, "repo"),
        ("github_get_issue", {"repo": "acme/shop/../..", "number": 1}, "repo"),
        ("github_get_issue", {"repo": "acme/..", "number": 1}, "repo"),
        ("github_get_file", {"repo": "acme/shop", "path": "../../../user"}, "path"),
        ("github_get_file", {"repo": "acme/shop", "path": "a//b"}, "path"),
        ("github_create_issue", {"repo": "acme/shop", "title": "x", "assignee": "me"}, "assignee"),
        ("sentry_get_issue", {"issueId": ".."}, "issueId"),
        ("betterstack_get_source_fields", {"table": "x) UNION ALL SELECT 1 --"}, "table"),
        ("betterstack_query", {"query": "DROP TABLE x"}, "query"),
        ("linear_create_issue", {"teamId": "t", "title": "x", "priority": 9}, "priority"),
    ],
)
async def test_invalid_arguments_are_reported_and_nothing_is_sent(tool: str, arguments: dict[str, Any], wrong: str):
    async with Server() as server:
        box = toolbox(server)
        failed = await ToolCaller().failure(box, tool, arguments)
        assert failed.code == "bad_arguments"
        assert wrong in str(failed)
        assert (await not_described(box, tool, arguments)).code == "bad_arguments"
        assert server.connections == 0


async def test_what_looks_like_a_part_of_the_address_is_sent_as_what_it_is():
    async with Server(said({"id": "42"})) as server:
        await ToolCaller().value(toolbox(server), "sentry_get_issue", {"issueId": "4/2?x=1#y %2e%2e"})
        assert server.requests[0].target == "/api/0/organizations/acme/issues/4%2F2%3Fx%3D1%23y%20%252e%252e/"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"query": "cart"}, "cart is:issue"),
        ({"query": "cart", "repo": "acme/shop", "kind": "pull-request"}, "cart repo:acme/shop is:pull-request"),
        ({"query": "cart is:pr", "repo": "acme/shop"}, "cart is:pr repo:acme/shop"),
        ({"query": "Type:Issue cart"}, "Type:Issue cart"),
        ({"query": "cart -is:pr"}, "cart -is:pr is:issue"),
        ({"query": "this:issue"}, "this:issue is:issue"),
    ],
)
async def test_a_search_on_github_is_for_one_kind_unless_the_query_says_which(arguments: dict[str, Any], words: str):
    async with Server(said({"total_count": 0, "items": []})) as server:
        await ToolCaller().value(toolbox(server), "github_search_issues", arguments)
        assert parse_qs(urlsplit(server.requests[0].target).query)["q"] == [words]


async def test_slack_uses_the_webhook_where_there_is_no_token_or_no_channel():
    sent = {"text": "Down", "blocks": [{"type": "divider"}]}
    for without in (("SLACK_BOT_TOKEN",), ()):
        async with Server(said("ok")) as server:
            assert await ToolCaller().value(toolbox(server, without), "slack_send_message", sent) == "ok"
            seen = server.requests[0]
            assert seen.target == "/services/T00/B00/slack-secret-part"
            assert "authorization" not in seen.headers
            assert json.loads(seen.body) == sent
    async with Server() as server:
        failed = await ToolCaller().failure(
            toolbox(server, ("SLACK_WEBHOOK_URL",)), "slack_send_message", {"text": "Down"}
        )
        assert (failed.code, "channel" in failed.fix) == ("bad_arguments", True)
        assert server.connections == 0


async def test_a_channel_is_neither_offered_nor_dropped_where_only_a_webhook_can_send():
    async with Server(said("ok")) as server:
        box = toolbox(server, ("SLACK_BOT_TOKEN",))
        specs = await box.specs("slack_*")
        assert not isinstance(specs, Failed)
        (spec,) = specs
        assert set(spec.parameters["properties"]) == {"text", "blocks"}
        failed = await ToolCaller().failure(box, "slack_send_message", {"text": "Down", "channel": "#alerts"})
        assert (failed.code, "channel" in failed.message) == ("bad_arguments", True)
        assert server.connections == 0


# --- refusals ---


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "body", "words"),
    [
        (
            "github_get_issue",
            {"repo": "acme/shop", "number": 1},
            404,
            {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"},
            "GitHub answered with status 404: Not Found.",
        ),
        (
            "sentry_get_issue",
            {"issueId": "1"},
            403,
            {"detail": "You do not have permission"},
            "You do not have permission",
        ),
        ("datadog_list_monitors", {}, 403, {"errors": ["Forbidden"]}, "Forbidden"),
        (
            "betterstack_query",
            {"query": "SELECT nonsense"},
            404,
            "Code: 47. DB::Exception: Missing columns",
            "Code: 47.",
        ),
        ("notify_discord", {"content": "x"}, 500, "<html>Oh no</html>", "status 500"),
    ],
)
async def test_a_refusal_by_status_says_what_the_service_said(
    tool: str, arguments: dict[str, Any], status: int, body: Any, words: str
):
    async with Server(said(body, status)) as server:
        failed = await ToolCaller().failure(toolbox(server), tool, arguments)
        assert failed.code == "http_status"
        assert failed.details["status"] == status
        assert words in failed.message
        assert failed.fix
        assert "token_for_tests" not in str(failed)


@pytest.mark.parametrize(
    ("tool", "arguments", "body", "words"),
    [
        (
            "linear_get_issue",
            {"id": "OFF-99"},
            {"data": None, "errors": [{"message": "Entity not found: Issue", "path": ["issue"]}]},
            "Entity not found: Issue",
        ),
        (
            "linear_create_issue",
            {"teamId": "t", "title": "x"},
            {"data": {"issueCreate": {"success": False, "issue": None}}},
            "Linear refused the request without saying why",
        ),
        (
            "slack_send_message",
            {"text": "x", "channel": "#none"},
            {"ok": False, "error": "channel_not_found"},
            "channel_not_found",
        ),
        ("slack_send_thread_reply", {"text": "x", "channel": "C", "thread_ts": "1"}, {"ok": False}, "Slack refused"),
        (
            "datadog_query_metrics",
            {"query": "x", "from": 1, "to": 2},
            {"status": "error", "error": "Error parsing query"},
            "Error parsing query",
        ),
    ],
)
async def test_a_refusal_inside_an_answer_of_success_is_a_failure(
    tool: str, arguments: dict[str, Any], body: Any, words: str
):
    async with Server(said(body)) as server:
        failed = await ToolCaller().failure(toolbox(server), tool, arguments)
        assert failed.code == "service_refused"
        assert words in failed.message


async def test_a_refusal_that_is_cut_short_holds_no_half_of_a_token():
    redactor = SecretRedactor()
    redactor.add("env:GITHUB_TOKEN", "ghp_token_for_tests")
    async with Server(said({"message": f"{'x' * 490} ghp_token_for_tests is not known"}, 401)) as server:
        failed = await ToolCaller(masked=redactor.value).failure(
            toolbox(server), "github_get_issue", {"repo": "a/b", "number": 1}
        )
        assert "xxx" in failed.message
        assert "ghp_" not in failed.message


async def test_an_answer_that_is_not_json_or_too_long_is_reported():
    async with Server(said("<html>Sign in</html>")) as server:
        failed = await ToolCaller().failure(toolbox(server), "linear_list_teams")
        assert (failed.code, "Sign in" in failed.message) == ("bad_answer", True)
    async with Server(said({"data": "x" * (5 << 20)})) as server:
        failed = await ToolCaller().failure(toolbox(server), "linear_list_teams")
        assert (failed.code, "Linear" in failed.message) == ("too_large", True)
    async with Server(said("x" * (5 << 20))) as server:
        file = await ToolCaller().value(toolbox(server), "github_get_file", {"repo": "a/b", "path": "big.txt"})
        assert file.endswith("bytes are shown]")


async def test_reading_may_be_repeated_and_writing_is_in_doubt_when_the_service_is_lost():
    async with Server(said({"message": "slow down"}, 429)) as server:
        box = toolbox(server)
        assert (await ToolCaller().failure(box, "github_get_issue", {"repo": "a/b", "number": 1})).retryable
        assert not (await ToolCaller().failure(box, "github_create_issue", {"repo": "a/b", "title": "x"})).retryable
    async with Server(hang) as server:
        caller = ToolCaller(limits=Limits(seconds=2))
        lost = await caller.failure(toolbox(server), "github_create_issue", {"repo": "a/b", "title": "x"})
        assert (lost.code, lost.retryable, lost.details["sent"]) == ("timeout", False, True)


async def test_reading_is_retried_after_a_temporary_failure():
    read, down = {"repo": "a/b", "number": 1}, said({"message": "Server Error"}, 500)
    async with Server(down, said({"message": "slow down"}, 429), said({"number": 1})) as server:
        assert await ToolCaller().value(toolbox(server), "github_get_issue", read) == {"number": 1}
        assert len(server.requests) == 3
    async with Server(down) as server:
        failed = await ToolCaller().failure(toolbox(server), "github_get_issue", read)
        assert (failed.retryable, len(server.requests)) == (True, 3)
        assert failed.fix == "GitHub is currently unavailable: try again later, or continue without it."
    async with Server(down) as server:
        failed = await ToolCaller().failure(toolbox(server), "github_create_issue", {"repo": "a/b", "title": "x"})
        assert (failed.retryable, len(server.requests)) == (False, 1)
        assert failed.fix == "It may have taken effect anyway: check before you repeat it."


async def test_a_service_that_asks_for_a_long_pause_is_not_waited_for():
    busy = answer('{"message": "slow down"}', 429, [("Retry-After", "3600")])
    async with Server(busy) as server:
        await ToolCaller().failure(toolbox(server), "github_get_issue", {"repo": "a/b", "number": 1})
        assert len(server.requests) == 1


async def test_a_token_does_not_follow_a_redirect_to_another_place():
    async with Server(said({"number": 1})) as other:
        async with Server(redirect(other.url("/repos/a/b/issues/1"))) as server:
            await ToolCaller().perform(toolbox(server), "github_get_issue", {"repo": "a/b", "number": 1})
        assert len(other.requests) == 1
        assert "authorization" not in other.requests[0].headers


# --- a pull request, which takes more than one request ---

_PR = {"repo": "acme/shop", "title": "Fix it", "head": "fix/a b", "labels": ["triage", "bot"]}
_THERE = {
    "message": "Validation Failed",
    "errors": [
        {"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for acme:fix/a b."}
    ],
    "status": "422",
}


async def test_a_pull_request_gets_its_labels_by_a_second_request_that_is_shown_beforehand():
    async with Server(said(PULL, 201), said([{"name": "triage"}])) as server:
        box = toolbox(server)
        shown = await described(box, "github_create_pr", _PR)
        labels = server.url("/api/v3/repos/acme/shop/issues/NUMBER/labels")
        assert Action("egress", f"POST {labels}") in shown.actions
        assert '"labels":["triage","bot"]' in shown.preview["afterwards"]
        assert await ToolCaller().value(box, "github_create_pr", _PR) == PULL_KEPT
        second = server.requests[1]
        assert (second.method, second.target) == ("POST", "/api/v3/repos/acme/shop/issues/12/labels")
        assert json.loads(second.body) == {"labels": ["triage", "bot"]}
        assert second.headers["authorization"] == GITHUB_HEADERS["authorization"]


async def test_labels_that_cannot_be_set_are_a_warning_because_the_pull_request_is_there():
    async with Server(said(PULL, 201), said({"message": "Label does not exist"}, 404)) as server:
        caller = ToolCaller()
        value = await caller.value(toolbox(server), "github_create_pr", _PR)
        assert value["number"] == 12
        assert "Label does not exist" in value["warning"]
        assert caller.warnings == ["half_done"]


async def test_a_pull_request_that_is_there_already_is_given_instead_of_a_refusal():
    async with Server(said(_THERE, 422), said([PULL])) as server:
        outcome = await ToolCaller().perform(toolbox(server), "github_create_pr", _PR)
        assert outcome == ToolResult({**PULL_KEPT, "reused": True})
        asked = server.requests[1]
        assert (asked.method, asked.target) == (
            "GET",
            "/api/v3/repos/acme/shop/pulls?head=acme%3Afix%2Fa%20b&state=open&per_page=1",
        )
        assert len(server.requests) == 2


@pytest.mark.parametrize("found", [said([]), said({"message": "no"}, 500), said("nonsense")])
async def test_a_refusal_stays_one_if_nothing_is_there(found: Handler):
    async with Server(said(_THERE, 422), found) as server:
        failed = await ToolCaller().failure(toolbox(server), "github_create_pr", _PR)
        assert "already exists" in failed.message
    async with Server(
        said({"message": "Validation Failed", "errors": [{"message": "No commits between main and fix"}]}, 422)
    ) as server:
        failed = await ToolCaller().failure(toolbox(server), "github_create_pr", _PR)
        assert "No commits" in failed.message
        assert len(server.requests) == 1

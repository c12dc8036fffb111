"""URLs with references: a value can change only its own part of the URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.pipeline.model import Arg, ArgRef
from cuebook.dialects.pipeline.run.action import Given, acting
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.kernel.effects import SendHttp
from cuebook.kernel.outcomes import EffectFailed
from tests.dialects.pipeline.harness import PipelineHarness, http, words
from tests.dialects.pipeline.samples import pipeline, problem, with_step
from tests.support.http_servers import Server, answer

ARGS = "args: {q: x, r: y}\n"


def address(url: str, **args: Any) -> str:
    """The URL that is requested if a document has this URL."""
    made = pipeline(with_step("command: http", f"with: {{url: '{url}'}}", args=ARGS))
    effect = acting(made.steps[1], Scope(made, args), Given(), {}, "")
    assert isinstance(effect, SendHttp)
    return effect.url


@pytest.mark.parametrize(
    ("url", "value", "made"),
    [
        ("https://x.y/users/${q}", "a b", "https://x.y/users/a%20b"),
        ("https://x.y/users/me/${q}/show", "a/other", "https://x.y/users/me/a%2Fother/show"),
        ("https://x.y/users/${q}/show", "1?admin=true#", "https://x.y/users/1%3Fadmin%3Dtrue%23/show"),
        ("https://x.y/users/${q}", "%2e%2e", "https://x.y/users/%252e%252e"),
        ("https://x.y/a?u=${q}", "1&admin=true", "https://x.y/a?u=1%26admin%3Dtrue"),
        ("https://x.y?u=${q}&v=1", "a=b;c/d+e%20#f", "https://x.y?u=a%3Db%3Bc%2Fd%2Be%2520%23f&v=1"),
        ("https://x.y/a?u=${q}", "..", "https://x.y/a?u=.."),
        ("https://x.y/a#${q}", "b c", "https://x.y/a#b%20c"),
        ("https://x.y/v${q}.${q}/", "1", "https://x.y/v1.1/"),
        ("https://x.y/${q}", {"a": [1]}, "https://x.y/%7B%22a%22%3A%5B1%5D%7D"),
        ("https://x.y/${q}", "é", "https://x.y/%C3%A9"),
        ("${q}", "http://h:80/a?b#c", "http://h:80/a?b#c"),
        ("${q}/show/${q}", "https://x.y/a", "https://x.y/a/show/https%3A%2F%2Fx.y%2Fa"),
        ("${q}?a=1", "https://x.y:81", "https://x.y:81?a=1"),
        ("https://${q}/a", "api.x.y", "https://api.x.y/a"),
        ("https://${q}:8080/a", "[::1]", "https://[::1]:8080/a"),
        ("https://${q}", "x.y", "https://x.y"),
        ("https://x.y/@${q}?m=a@b.c", "me", "https://x.y/@me?m=a@b.c"),
    ],
)
def test_a_value_is_one_part_of_a_url(url: str, value: Any, made: str) -> None:
    assert address(url, q=value) == made


@pytest.mark.parametrize(
    ("url", "value", "said"),
    [
        ("https://x.y/a/${q}/b", "..", "its path would contain the segment '..'"),
        ("https://x.y/a/${q}", ".", "the segment '.'"),
        ("https://x.y/a/.${q}", ".", "the segment '..'"),
        ("https://x.y/a/%2e${q}", ".", "the segment '..'"),
        ("https://x.y/a/${q}${q}", ".", "the segment '..'"),
        ("https://x.y/users/me/${q}/show", "../other", "the segment '..'"),
        ("https://x.y/users/me/${q}/show", "a\\..\\b", "the segment '..'"),
        ("https://x.y/users/${q}", "", "an empty segment"),
        ("https://x.y/users/${q}/b", "", "an empty segment"),
        ("https://x.y/users/${q}", "5\n", "a line break"),
        ("https://${q}/a", "x.y:81", "'x.y:81' is not a host"),
        ("https://${q}/a", "x.y/evil?", "is not a host"),
        ("https://${q}/a", "me:hunter2@x.y", "is not a host"),
        ("https://${q}/a", "", "is not a host"),
        ("${q}/a", "https://x.y/?b=", "is not the beginning of a URL"),
        ("${q}/a", "https://x.y#", "is not the beginning of a URL"),
        ("${q}/a", "https://me:hunter2@x.y", "is not the beginning of a URL"),
        ("${q}/a", "x.y", "is not the beginning of a URL"),
    ],
)
def test_what_would_change_another_part_fails_the_step(url: str, value: str, said: str) -> None:
    with pytest.raises(EffectFailed) as caught:
        address(url, q=value)
    failed = caught.value.failed
    assert failed.code == "bad_url"
    assert said in failed.message
    assert failed.message.startswith("line 8: ")
    assert failed.fix
    assert "hunter2" not in failed.message


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1${q}/users/x",
        "http://127.0.0.1:${q}/x",
        "https://${q}.x.y/a",
        "https://api.${q}/a",
        "https://${q}${r}/a",
        "https://${q}:${r}/a",
        "${q}${r}/a",
        "${q}://x.y/a",
        "${q}.x.y/a",
    ],
)
def test_a_part_of_the_server_is_refused_at_load(url: str) -> None:
    found = problem(with_step("command: http", f"with: {{url: '{url}'}}", args=ARGS))
    assert (found.code, found.line) == ("BAD_REFERENCE", 8)
    assert "the server's address" in found.message


@pytest.mark.parametrize(
    "url", ["https://me:hunter2@x.y/a", "https://hunter2@x.y", "https://me:${q}@hunter2/a", "ftp://me:hunter2@x.y"]
)
def test_credentials_in_a_url_are_refused_at_load_and_not_repeated(url: str) -> None:
    found = problem(with_step("command: http", f"with: {{url: '{url}'}}", args=ARGS))
    assert (found.code, found.line) == ("BAD_COMMAND", 8)
    assert "credentials" in found.message
    assert "hunter2" not in f"{found.message} {found.fix}"


@pytest.mark.parametrize("url", ["https:///me:hunter2@x.y", "https:me:hunter2@x.y", "x.y/me:hunter2@"])
def test_what_may_be_a_password_is_not_repeated(url: str) -> None:
    found = problem(with_step("command: http", f"with: {{url: '{url}'}}"))
    assert found.code == "BAD_COMMAND"
    assert "hunter2" not in f"{found.message} {found.fix}"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="/\\")))
def test_no_value_changes_the_rest_of_the_url(value: str) -> None:
    made = address("https://x.y/a/b${q}c/d?e=${q}&f#g", q=value)
    before, _, after = made.partition("?")
    assert before.startswith("https://x.y/a/b")
    assert unquote(before.split("/")[4]) == f"b{value}c"
    assert before.split("/")[5:] == ["d"]
    query, _, fragment = after.partition("#")
    assert (unquote(query.split("&")[0]), query.split("&")[1:], fragment) == (f"e={value}", ["f"], "g")


async def test_the_server_receives_the_url_of_the_document(harness: PipelineHarness) -> None:
    async with Server(answer("ok")) as server:
        row = await harness.do(
            http("a", words(server.url("/users/me/"), ArgRef("q"), "/show?u=", ArgRef("q"))),
            http("b", words(server.url("/users/"), ArgRef("up"), "/show"), on_error="continue"),
            http("c", words("http://127.0.0.1", ArgRef("port"), "/users/x"), on_error="continue"),
            inputs={
                "q": "a/1?admin=true&b#",
                "up": "..",
                "port": server.url("/evil?").removeprefix("http://127.0.0.1"),
            },
            args=[Arg("q"), Arg("up"), Arg("port")],
        )
    assert [seen.target for seen in server.requests] == [
        "/users/me/a%2F1%3Fadmin%3Dtrue%26b%23/show?u=a%2F1%3Fadmin%3Dtrue%26b%23"
    ]
    assert await harness.statuses(row.id) == {"a": "completed", "b": "failed", "c": "failed"}

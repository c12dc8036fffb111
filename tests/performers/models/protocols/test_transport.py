"""Server-sent events decoded from bytes, and other answers of a provider's server."""

from __future__ import annotations

import json

import pytest

from cuebook.kernel.effects import AskModel
from cuebook.performers.models import Retries
from cuebook.performers.models.protocols.transport import Event, EventDecoder, endpoint_url
from tests.performers.models.calls import failure_of, providers_at, reply_of
from tests.performers.models.provider_server import Answer, ProviderServer, anthropic_reply, delta, openai_reply

STREAM = (
    "event: first\ndata: one\n\n: still there\n\ndata: two\ndata:lines\nid: 7\n\ndata\n\nevent: no data\n\ndata: é\n\n"
)
EVENTS = [Event("first", "one"), Event("", "two\nlines"), Event("", ""), Event("", "é")]


def decoded(stream: bytes, size: int) -> list[Event]:
    decoder = EventDecoder(1_000, "test")
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    return [event for piece in pieces for event in decoder.feed(piece)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_found_wherever_the_stream_is_cut(end: str, size: int) -> None:
    assert decoded(STREAM.replace("\n", end).encode(), size) == EVENTS


def test_an_event_that_was_not_finished_is_not_one() -> None:
    assert decoded(b"data: whole\n\ndata: half\n", 5) == [Event("", "whole")]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://a.test/v1", "http://a.test/v1/chat"),
        ("http://a.test/v1/", "http://a.test/v1/chat"),
        ("http://a.test", "http://a.test/chat"),
        ("http://a.test/v1?version=2", "http://a.test/v1/chat?version=2"),
    ],
)
def test_the_path_goes_below_the_base_address(base: str, url: str) -> None:
    assert endpoint_url(base, "/chat") == url


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_header_that_the_user_configured_replaces_ours(protocol: str) -> None:
    reply = openai_reply("ok") if protocol == "openai" else anthropic_reply("ok")
    async with ProviderServer(reply) as server:
        await reply_of(providers_at(server.url, protocol, headers={"authorization": "Basic abc", "X-Team": "red"}))
    assert (server.headers[0]["authorization"], server.headers[0]["x-team"]) == ("Basic abc", "red")
    assert server.headers[0]["user-agent"].startswith("cuebook/")


@pytest.mark.parametrize("line", ["{broken", "[1]", '"text"'])
async def test_an_event_that_is_not_an_object_is_tried_again(line: str) -> None:
    async with ProviderServer(Answer([delta(content="Half"), line]), openai_reply("Whole")) as server:
        reply = await reply_of(providers_at(server.url))
    assert (reply.text, reply.retries) == ("Whole", 1)


async def test_fields_of_another_type_than_the_protocol_says_are_passed_over() -> None:
    odd = {"choices": [{"delta": None, "finish_reason": 3}], "model": 5, "usage": [], "error": None}
    async with ProviderServer(
        Answer([odd, {"choices": "none"}, delta(content="Fine."), delta(finish="stop"), "[DONE]"])
    ) as server:
        assert (await reply_of(providers_at(server.url))).text == "Fine."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("upstream connect error", "test failed (HTTP 502): upstream connect error"),
        ("<html>Bad gateway</html>", "test failed (HTTP 502): Error code: 502"),
        ({"error": "nobody home"}, "test failed (HTTP 502): Error code: 502"),
        ({"error": {"error": {"message": "deep"}}}, "test failed (HTTP 502): deep"),
    ],
)
async def test_an_error_says_what_its_body_says(body: object, words: str) -> None:
    async with ProviderServer(
        Answer([body], status=502, unbroken=True) if isinstance(body, str) else Answer(status=502, body=body)
    ) as server:
        failed = await failure_of(providers_at(server.url), retries=Retries(attempts=1))
    assert failed.message.startswith(words)


async def test_an_error_event_without_a_reason_is_an_error() -> None:
    async with ProviderServer(Answer([{"error": {"code": 500}}])) as server:
        failed = await failure_of(providers_at(server.url), retries=Retries(attempts=1))
    assert (failed.code, failed.details["status"]) == ("model_server_error", 500)


async def test_a_text_that_utf8_cannot_hold_is_refused_before_it_is_sent() -> None:
    async with ProviderServer() as server:
        failed = await failure_of(providers_at(server.url), AskModel(prompt="half of a pair: \ud83d"))
    assert (failed.code, failed.retryable, server.requests) == ("model_bad_request", False, [])


async def test_what_was_said_arrives_as_it_was_said() -> None:
    said = 'Grüße, 日本, 🎈 and "quotes" \\ \u2028.'
    async with ProviderServer(openai_reply(said)) as server:
        reply = await reply_of(providers_at(server.url), AskModel(prompt=said))
    assert reply.text == said
    assert json.dumps(server.requests[0]["messages"][0]["content"]) == json.dumps(said)

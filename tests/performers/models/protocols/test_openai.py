from __future__ import annotations

import asyncio

import pytest

from cuebook.kernel.context import EMPTY, ToolCall
from cuebook.kernel.effects import AskModel, ToolSpec
from cuebook.performers.models import Retries, Timeouts
from tests.performers.models.calls import KEY, Observer, Sleeper, failure_of, providers_at, reply_of
from tests.performers.models.provider_server import Answer, ProviderServer, delta, openai_reply, usage

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def test_a_reply_streams_and_is_counted() -> None:
    observer = Observer()
    async with ProviderServer(openai_reply("Hel", "lo.", tokens=(11, 2))) as server:
        reply = await reply_of(providers_at(server.url), observer=observer)
    assert reply.text == "Hello."
    assert observer.pieces == ["Hel", "lo."]
    assert (reply.usage.input, reply.usage.output) == (11, 2)
    assert (reply.usage.cost, reply.usage.origin) == (None, "unknown")
    assert (reply.finish, reply.model, reply.retries) == ("stop", "test/gpt-test", 0)
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_the_request_says_what_the_effect_says() -> None:
    context = EMPTY.add("system", "One.").add("system", "Two.").add("user", "Earlier").add("assistant", "Yes.")
    effect = AskModel(
        prompt="Now?", context=context, max_tokens=50, temperature=0.5, stop=("END",), schema=SCHEMA, model="test/gpt-9"
    )
    async with ProviderServer(openai_reply('{"city": "Paris"}')) as server:
        reply = await reply_of(providers_at(server.url), effect)
    sent = server.requests[0]
    assert sent["messages"] == [
        {"role": "system", "content": "One.\n\nTwo."},
        {"role": "user", "content": "Earlier"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Now?"},
    ]
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["stop"]) == ("gpt-9", 50, 0.5, ["END"])
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent["response_format"]["json_schema"]["strict"] is True
    assert reply.text == '{"city": "Paris"}'


async def test_newer_models_are_sent_the_newer_limit() -> None:
    async with ProviderServer(openai_reply("x")) as server:
        await reply_of(providers_at(server.url, max_completion_tokens=True))
    assert server.requests[0]["max_completion_tokens"] == 16_384
    assert "max_tokens" not in server.requests[0]


async def test_cached_and_reasoning_tokens_are_parts_of_the_whole() -> None:
    counted = usage(
        100, 40, prompt_tokens_details={"cached_tokens": 64}, completion_tokens_details={"reasoning_tokens": 30}
    )
    async with ProviderServer(Answer([delta(content="x"), delta(finish="stop"), counted, "[DONE]"])) as server:
        used = (await reply_of(providers_at(server.url))).usage
    assert (used.input, used.cached, used.output, used.reasoning) == (100, 64, 40, 30)


async def test_a_cost_that_the_provider_reports_is_taken() -> None:
    counted = usage(10, 5, cost=0.0123)
    async with ProviderServer(Answer([delta(content="x"), delta(finish="stop"), counted, "[DONE]"])) as server:
        reply = await reply_of(providers_at(server.url, reports_cost=True))
    assert (reply.usage.cost, reply.usage.origin) == (0.0123, "reported")
    assert server.requests[0]["usage"] == {"include": True}


async def test_a_known_price_gives_an_estimated_cost() -> None:
    async with ProviderServer(openai_reply("x", tokens=(1_000_000, 100_000))) as server:
        reply = await reply_of(providers_at(server.url, prices="openai"), model="test/gpt-4o")
    assert reply.usage.origin == "estimated"
    assert reply.usage.cost == pytest.approx(2.5 + 1.0)


async def test_tool_calls_are_put_together_from_their_pieces() -> None:
    def part(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, object]:
        return delta(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])

    events = [
        part(0, "a", "search", ""),
        part(0, None, None, '{"q": '),
        part(1, "b", "broken", "[1, 2"),
        part(0, None, None, '"cats"}'),
        delta(finish="tool_calls"),
        usage(9, 9),
        "[DONE]",
    ]
    tool = ToolSpec("search", "Searches.", {"type": "object", "properties": {"q": {"type": "string"}}})
    async with ProviderServer(Answer(events)) as server:
        reply = await reply_of(providers_at(server.url), AskModel(prompt="Find cats", tools=(tool,)))
    assert reply.finish == "tool_calls"
    assert reply.calls == (ToolCall("a", "search", {"q": "cats"}), ToolCall("b", "broken", malformed="[1, 2"))
    assert server.requests[0]["tools"][0]["function"]["name"] == "search"


async def test_calls_and_their_results_are_sent_back() -> None:
    context = (
        EMPTY.add("user", "Find")
        .add("assistant", "", calls=(ToolCall("a", "search", {"q": 1}),))
        .add("tool", "found", call_id="a")
    )
    async with ProviderServer(openai_reply("ok")) as server:
        await reply_of(providers_at(server.url), AskModel(context=context))
    assert server.requests[0]["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "found"},
    ]


async def test_too_many_requests_are_tried_again_after_the_time_asked_for() -> None:
    limited = Answer(status=429, headers={"retry-after": "17"}, body={"error": {"message": "slow down"}})
    sleeper = Sleeper()
    async with ProviderServer(limited, openai_reply("ok")) as server:
        reply = await reply_of(providers_at(server.url), sleeper=sleeper)
    assert (reply.text, reply.retries) == ("ok", 1)
    assert sleeper.slept == [17.0]


async def test_server_errors_are_tried_again_with_growing_waits_and_then_given_up() -> None:
    down = [Answer(status=500, body={"error": {"message": "oops"}}) for _ in range(3)]
    sleeper = Sleeper()
    async with ProviderServer(*down) as server:
        failed = await failure_of(providers_at(server.url), sleeper=sleeper, retries=Retries(attempts=3))
    assert sleeper.slept == [1.0, 2.0]
    assert (failed.code, failed.retryable, failed.details["retries"]) == ("model_server_error", True, 2)
    assert failed.message.endswith(" (tried 3 times).") or failed.message.endswith(" (tried 3 times)")
    assert ". (tried" not in failed.message
    assert failed.details["status"] == 500


async def test_a_wait_longer_than_the_limit_is_not_begun() -> None:
    limited = Answer(status=429, headers={"retry-after": "4000"}, body={"error": {"message": "slow down"}})
    sleeper = Sleeper()
    async with ProviderServer(limited) as server:
        failed = await failure_of(providers_at(server.url), sleeper=sleeper)
    assert sleeper.slept == []
    assert failed.code == "model_rate_limited"


async def test_an_empty_account_is_not_tried_again() -> None:
    empty = Answer(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota"}})
    async with ProviderServer(empty) as server:
        failed = await failure_of(providers_at(server.url))
    assert (failed.code, failed.retryable) == ("model_quota", False)


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_stream_that_breaks_off_is_taken_back_and_asked_for_again(cleanly: bool) -> None:
    broken = Answer([delta(content="Half a"), delta(content=" rep")], drop=not cleanly)
    observer = Observer()
    async with ProviderServer(broken, openai_reply("Whole.")) as server:
        reply = await reply_of(providers_at(server.url), observer=observer)
    assert (reply.text, reply.retries, observer.resets, observer.shown) == ("Whole.", 1, 1, "Whole.")
    assert [code for code, _ in observer.warnings] == ["reply_dropped"]


async def test_an_error_in_the_middle_of_a_stream_is_tried_again() -> None:
    broken = Answer([delta(content="Half"), {"error": {"code": 502, "message": "upstream"}}])
    async with ProviderServer(broken, openai_reply("Whole.")) as server:
        reply = await reply_of(providers_at(server.url))
    assert (reply.text, reply.retries) == ("Whole.", 1)


async def test_a_stream_that_falls_silent_times_out_and_is_asked_for_again() -> None:
    slow = Answer([delta(content="Once")], hang=True)
    observer = Observer()
    async with ProviderServer(slow, openai_reply("Twice.")) as server:
        providers = providers_at(server.url, timeouts=Timeouts(idle=0.2))
        reply = await reply_of(providers, observer=observer)
        await server.closed_early.wait()
    assert (reply.text, reply.retries, observer.resets) == ("Twice.", 1, 1)


async def test_silence_to_the_last_attempt_is_a_failure() -> None:
    async with ProviderServer(Answer(hang=True)) as server:
        providers = providers_at(server.url, timeouts=Timeouts(idle=0.1))
        failed = await failure_of(providers, retries=Retries(attempts=1))
    assert failed.code == "model_timeout"


async def test_a_server_that_is_not_there_is_a_network_failure() -> None:
    async with ProviderServer() as server:
        url = server.url
    failed = await failure_of(providers_at(url), retries=Retries(attempts=2))
    assert (failed.code, failed.retryable) == ("model_network", True)


async def test_the_error_for_a_wrong_key_does_not_contain_the_key() -> None:
    said = f"Incorrect API key provided: {KEY}. Also seen as sk-test*****ghij."
    refused = Answer(status=401, body={"error": {"message": said, "code": "invalid_api_key"}})
    async with ProviderServer(refused) as server:
        failed = await failure_of(providers_at(server.url))
    assert (failed.code, failed.retryable) == ("model_auth", False)
    assert "Incorrect API key" in failed.message
    assert KEY not in str(failed) + str(failed.details)
    assert "ghij" not in str(failed)
    assert failed.fix


async def test_a_reply_cut_at_its_limit_is_a_warning() -> None:
    observer = Observer()
    async with ProviderServer(openai_reply("Once upon", finish="length")) as server:
        reply = await reply_of(providers_at(server.url), AskModel(prompt="Tell", max_tokens=2), observer=observer)
    assert reply.finish == "length"
    assert [code for code, _ in observer.warnings] == ["reply_cut"]


async def test_the_watch_stops_the_stream_and_the_connection() -> None:
    answer = Answer([delta(content="One. "), delta(content="Two. "), delta(content="Three. ")], hang=True)
    observer = Observer(until=lambda shown: "Two" in shown)
    async with ProviderServer(answer) as server:
        reply = await reply_of(providers_at(server.url), observer=observer)
        await asyncio.wait_for(server.closed_early.wait(), 10)
    assert (reply.text, reply.finish) == ("One. Two. ", "watch")
    assert reply.usage.input > 0
    assert reply.usage.output > 0


async def test_a_provider_that_does_not_count_is_estimated() -> None:
    async with ProviderServer(Answer([delta(content="abcdefgh"), delta(finish="stop"), "[DONE]"])) as server:
        reply = await reply_of(providers_at(server.url))
    assert reply.usage.output == 2
    assert reply.usage.cost is None


@pytest.mark.parametrize("text", ["not json", '{"city": 5}', '{"city": "P", "more": 1}'])
async def test_a_reply_that_does_not_follow_the_schema_fails_once(text: str) -> None:
    async with ProviderServer(openai_reply(text)) as server:
        failed = await failure_of(providers_at(server.url), AskModel(prompt="City?", schema=SCHEMA))
    assert failed.code == "schema_mismatch"
    assert failed.details["reply"] == text
    assert failed.details["usage"]["input"] == 7
    assert len(server.requests) == 1


async def test_a_context_that_the_provider_finds_too_long_has_the_same_code_as_one_we_find() -> None:
    refused = Answer(
        status=400, body={"error": {"message": "This model's maximum context length is 8 tokens.", "code": None}}
    )
    async with ProviderServer(refused) as server:
        failed = await failure_of(providers_at(server.url))
    assert failed.code == "context_too_long"


async def test_cancelling_the_call_closes_the_connection() -> None:
    observer = Observer()
    async with ProviderServer(Answer([delta(content="One")], hang=True)) as server:
        task = asyncio.create_task(reply_of(providers_at(server.url), observer=observer))
        await observer.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.closed_early.wait(), 10)

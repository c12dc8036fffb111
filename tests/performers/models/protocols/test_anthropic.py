from __future__ import annotations

import json

from cuebook.kernel.context import EMPTY, ToolCall
from cuebook.kernel.effects import AskModel, ToolSpec
from cuebook.performers.models import Providers, Retries
from tests.performers.models.calls import KEY, Observer, Sleeper, failure_of, providers_at, reply_of
from tests.performers.models.provider_server import (
    Answer,
    ProviderServer,
    anthropic_reply,
    ended,
    started,
    text_block,
    tool_block,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = ToolSpec("search", "Searches.", {"type": "object", "properties": {"q": {"type": "string"}}})


def anthropic_at(server: ProviderServer) -> Providers:
    return providers_at(server.url, "anthropic")


async def test_a_reply_streams_and_input_is_the_total_of_its_parts() -> None:
    observer = Observer()
    answer = Answer(
        [
            started(cache_read_input_tokens=100, cache_creation_input_tokens=20),
            ("ping", {"type": "ping"}),
            *text_block(0, "Bon", "jour."),
            *ended(),
        ]
    )
    async with ProviderServer(answer) as server:
        reply = await reply_of(anthropic_at(server), observer=observer)
    assert (reply.text, reply.finish, reply.model) == ("Bonjour.", "stop", "test/claude-test-1")
    assert observer.pieces == ["Bon", "jour."]
    assert (reply.usage.input, reply.usage.cached, reply.usage.output) == (125, 100, 4)
    assert server.paths == ["/v1/messages"]
    assert KEY in server.headers[0]["authorization"]


async def test_the_stable_beginning_is_marked_for_the_cache() -> None:
    context = EMPTY.add("system", "One.").add("system", "Two.").add("user", "Earlier").add("assistant", "Yes. ")
    async with ProviderServer(anthropic_reply("ok")) as server:
        await reply_of(anthropic_at(server), AskModel(prompt="Now?", context=context, stop=("END",), temperature=0.2))
    sent = server.requests[0]
    mark = {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "One.\n\nTwo.", "cache_control": mark}]
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Earlier"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes.", "cache_control": mark}]},
        {"role": "user", "content": [{"type": "text", "text": "Now?"}]},
    ]
    assert (sent["stop_sequences"], sent["temperature"], sent["max_tokens"]) == (["END"], 0.2, 16_384)


async def test_a_tool_is_called_and_the_results_go_back_in_one_turn() -> None:
    answer = Answer(
        [
            started(),
            *text_block(0, "I will look."),
            *tool_block(1, "t1", "search", '{"q"', ': "cats"}'),
            *tool_block(2, "t2", "search"),
            *ended("tool_use"),
        ]
    )
    async with ProviderServer(answer, anthropic_reply("Done.")) as server:
        providers = anthropic_at(server)
        reply = await reply_of(providers, AskModel(prompt="Find cats", tools=(TOOL,)))
        context = EMPTY.add("user", "Find cats").add("assistant", reply.text, calls=reply.calls)
        context = context.add("tool", "a cat", call_id="t1").add("tool", "none", call_id="t2")
        await reply_of(providers, AskModel(context=context, tools=(TOOL,)))
    assert reply.finish == "tool_calls"
    assert reply.calls == (ToolCall("t1", "search", {"q": "cats"}), ToolCall("t2", "search", {}))
    results = server.requests[1]["messages"][-1]
    assert [part["tool_use_id"] for part in results["content"]] == ["t1", "t2"]
    assert server.requests[1]["messages"][1]["content"][1]["input"] == {"q": "cats"}


async def test_a_schema_goes_out_in_the_native_format() -> None:
    async with ProviderServer(anthropic_reply('{"n": 3}')) as server:
        reply = await reply_of(
            anthropic_at(server), AskModel(prompt="n?", schema=SCHEMA), model="test/claude-sonnet-5-5"
        )
    sent = server.requests[0]["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["properties"]["n"]["type"] == "integer"
    assert "tools" not in server.requests[0]
    assert json.loads(reply.text) == {"n": 3}


async def test_an_older_model_gives_a_structured_reply_through_a_tool() -> None:
    answer = Answer(
        [
            started(),
            *text_block(0, "Sure!"),
            *tool_block(1, "t1", "final_reply", '{"n": ', "4}"),
            *ended("tool_use"),
        ]
    )
    async with ProviderServer(answer) as server:
        reply = await reply_of(
            anthropic_at(server), AskModel(prompt="n?", schema=SCHEMA), model="test/claude-3-haiku-20240307"
        )
    assert server.requests[0]["tool_choice"] == {"type": "tool", "name": "final_reply"}
    assert (json.loads(reply.text), reply.calls, reply.finish) == ({"n": 4}, (), "stop")


async def test_a_reply_through_a_tool_may_be_any_value() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    answer = Answer([started(), *tool_block(0, "t1", "final_reply", '{"value": [1, 2]}'), *ended("tool_use")])
    async with ProviderServer(answer) as server:
        reply = await reply_of(anthropic_at(server), AskModel(prompt="n?", schema=schema), model="test/claude-3-opus")
    assert json.loads(reply.text) == [1, 2]


async def test_an_overloaded_server_is_tried_again() -> None:
    busy = Answer(status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    sleeper = Sleeper()
    async with ProviderServer(busy, anthropic_reply("ok")) as server:
        reply = await reply_of(anthropic_at(server), sleeper=sleeper)
    assert (reply.text, reply.retries, sleeper.slept) == ("ok", 1, [1.0])


async def test_an_error_event_in_the_stream_is_tried_again() -> None:
    event = ("error", {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    observer = Observer()
    async with ProviderServer(Answer([started(), *text_block(0, "Half"), event]), anthropic_reply("ok")) as server:
        reply = await reply_of(anthropic_at(server), observer=observer)
    assert (reply.text, reply.retries, observer.resets) == ("ok", 1, 1)


async def test_a_dropped_stream_is_asked_for_again() -> None:
    broken = Answer([started(), *text_block(0, "Half")], drop=True)
    async with ProviderServer(broken, anthropic_reply("Whole")) as server:
        reply = await reply_of(anthropic_at(server))
    assert (reply.text, reply.retries) == ("Whole", 1)


async def test_a_reply_cut_at_its_limit_is_a_warning() -> None:
    observer = Observer()
    async with ProviderServer(anthropic_reply("Once", reason="max_tokens")) as server:
        reply = await reply_of(anthropic_at(server), observer=observer)
    assert reply.finish == "length"
    assert observer.warnings[0][0] == "reply_cut"


async def test_the_error_for_a_wrong_key_does_not_contain_the_key() -> None:
    said = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    async with ProviderServer(Answer(status=401, body=said)) as server:
        failed = await failure_of(anthropic_at(server))
    assert failed.code == "model_auth"
    assert KEY not in str(failed) + str(failed.details)


async def test_a_prompt_that_is_too_long_says_so() -> None:
    said = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    async with ProviderServer(Answer(status=400, body=said)) as server:
        failed = await failure_of(anthropic_at(server), retries=Retries(attempts=1))
    assert (failed.code, failed.retryable) == ("context_too_long", False)


async def test_a_request_without_any_turn_is_refused_before_the_call() -> None:
    async with ProviderServer() as server:
        failed = await failure_of(anthropic_at(server), AskModel(context=EMPTY.add("system", "Be brief.")))
    assert failed.code == "model_bad_request"
    assert "nothing to answer" in failed.message


async def test_in_a_tool_loop_everything_so_far_is_marked_for_the_cache() -> None:
    """The next request begins with all of it, so a marked result is not paid for in full twice."""
    look = ToolSpec("look", "Looks.", {"type": "object"})
    calls = (ToolCall("1", "look"),)
    context = EMPTY.add("user", "Look.").add("assistant", "", calls=calls).add("tool", "seen", call_id="1")
    async with ProviderServer(anthropic_reply("ok"), anthropic_reply("ok")) as server:
        await reply_of(anthropic_at(server), AskModel(prompt="Look.", tools=(look,)))
        await reply_of(anthropic_at(server), AskModel(context=context, tools=(look,)))
    for sent in server.requests:
        marked = [("cache_control" in part) for message in sent["messages"] for part in message["content"]]
        # What is sent now, and what was sent last.
        assert [at for at, one in enumerate(marked) if one] == sorted({0, len(marked) - 1})


async def test_a_failed_call_is_marked_as_failed() -> None:
    calls = (ToolCall("1", "look"), ToolCall("2", "look"))
    context = EMPTY.add("user", "Look.").add("assistant", "", calls=calls)
    context = context.add("tool", "seen", call_id="1").add("tool", "It is down.", call_id="2", is_error=True)
    async with ProviderServer(anthropic_reply("ok")) as server:
        await reply_of(anthropic_at(server), AskModel(context=context))
    assert [part.get("is_error", False) for part in server.requests[0]["messages"][-1]["content"]] == [False, True]

"""Provider caches over 50 turns of a real conversation, on the wire: equal prefixes, and marks where they belong."""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

import pytest

from cuebook.kernel.context import EMPTY, ToolCall
from cuebook.kernel.conversation import converse
from cuebook.kernel.effects import All, AskModel, CallTool, ToolSpec
from cuebook.kernel.outcomes import Failed, Reply, ToolResult
from cuebook.performers.models import ModelPerformer, Providers
from tests.performers.models.calls import Observer, Sleeper, providers_at
from tests.performers.models.provider_server import (
    Answer,
    ProviderServer,
    anthropic_reply,
    block,
    delta,
    ended,
    openai_reply,
    started,
    usage,
)

TURNS = 50
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "integer"}}})
SEE = ToolSpec("see", "Sees.", {"type": "object"})


def openai_call(number: int) -> Answer:
    function = {"name": "look", "arguments": json.dumps({"at": number})}
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    return Answer([delta(tool_calls=[call]), delta(finish="tool_calls"), usage(100, 10), "[DONE]"])


def anthropic_call(number: int, *, thinks: bool = False) -> Answer:
    first: list[Any] = []
    if thinks:
        first = block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": f"Thought {number}."},
            {"type": "signature_delta", "signature": f"signed{number}"},
        )
    content = {"type": "tool_use", "id": f"call_{number}", "name": "look", "input": {}}
    called = block(1, content, {"type": "input_json_delta", "partial_json": json.dumps({"at": number})})
    return Answer([started(), *first, *called, *ended("tool_use")])


async def talked(
    providers: Providers, *, model: str = "test/gpt-test", max_turns: int = TURNS + 1, effort: Any = None
) -> Reply:
    """A conversation with the real performer; a third of the calls fail."""
    performer = ModelPerformer(providers, sleep=Sleeper())
    ask = AskModel("Look around.", EMPTY.add("system", "You look."), tools=(LOOK, SEE))
    program = converse(ask, {"look": CallTool("look"), "see": CallTool("see")}, max_turns=max_turns, closes=True)
    send: Any = None
    try:
        while True:
            asked = program.send(send)
            send = None
            if isinstance(asked, All):
                send = tuple(_result(one) for one in asked.branches)
            elif isinstance(asked, AskModel):
                send = await performer.perform(asked, Observer().call(model=model, effort=effort))
                assert not isinstance(send, Failed), send
    except StopIteration as stop:
        reply: Reply = stop.value.reply
        return reply


def _result(branch: Any) -> ToolResult:
    at = branch.arguments["at"]
    return ToolResult(f"Result {at}: é " + "x" * 100, is_error=at % 3 == 0)


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(part) for name, part in value.items() if name != "cache_control"}
    return [unmarked(part) for part in value] if isinstance(value, list) else value


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks, value.values()))
    return sum(map(marks, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_every_request_begins_with_the_bytes_of_the_one_before(protocol: Literal["openai", "anthropic"]) -> None:
    call, last = (openai_call, openai_reply) if protocol == "openai" else (anthropic_call, anthropic_reply)
    async with ProviderServer(*(call(n) for n in range(1, TURNS + 1)), last("Done.")) as server:
        assert (await talked(providers_at(server.url, protocol))).text == "Done."
    sent = [json.dumps(unmarked(request["messages"])) for request in server.requests]
    assert len(sent) == TURNS + 1
    for earlier, later in itertools.pairwise(sent):
        assert later.startswith(earlier[:-1]), "all but the closing bracket"
    fixed = [{k: v for k, v in unmarked(request).items() if k != "messages"} for request in server.requests]
    assert all(one == fixed[0] for one in fixed), "tools, system and settings stay as they are"


async def test_anthropic_marks_the_tools_the_system_text_and_the_end_of_what_is_stable() -> None:
    async with ProviderServer(*(anthropic_call(n) for n in range(1, TURNS + 1)), anthropic_reply("Done.")) as server:
        await talked(providers_at(server.url, "anthropic"))
    for number, request in enumerate(server.requests):
        assert marks(request) <= 4, "the provider allows four"
        assert marks(request["tools"]) == marks(request["tools"][-1]) == 1
        assert marks(request["system"]) == 1
        messages = request["messages"]
        marked = [at for at, message in enumerate(messages) if marks(message)]
        assert marked == ([0] if number == 0 else [len(messages) - 3, len(messages) - 1])
        assert all("cache_control" in messages[at]["content"][-1] for at in marked), "on the last part of the turn"
    results = [part for message in server.requests[-1]["messages"] for part in message["content"]]
    failed = [part.get("is_error", False) for part in results if part["type"] == "tool_result"]
    assert failed == [n % 3 == 0 for n in range(1, TURNS + 1)]


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_the_closing_turn_keeps_the_prefix_and_forbids_calls(protocol: Literal["openai", "anthropic"]) -> None:
    call, last = (openai_call, openai_reply) if protocol == "openai" else (anthropic_call, anthropic_reply)
    async with ProviderServer(call(1), call(2), last("So far, nothing.")) as server:
        reply = await talked(providers_at(server.url, protocol), max_turns=2)
    assert reply.text == "So far, nothing."
    closing = server.requests[-1]
    assert closing["tool_choice"] == ("none" if protocol == "openai" else {"type": "none"})
    assert unmarked(closing["tools"]) == unmarked(server.requests[0]["tools"])
    assert all("tool_choice" not in request for request in server.requests[:-1])


# --- reasoning ---


async def test_openai_is_told_the_effort() -> None:
    async with ProviderServer(openai_reply("Done."), openai_reply("Done.")) as server:
        await talked(providers_at(server.url), effort="high")
        await talked(providers_at(server.url))
    assert server.requests[0]["reasoning_effort"] == "high"
    assert "reasoning_effort" not in server.requests[1]


async def test_anthropic_gets_its_reasoning_back_with_the_calls() -> None:
    answers = [anthropic_call(n, thinks=True) for n in (1, 2)]
    async with ProviderServer(*answers, anthropic_reply("Done.")) as server:
        await talked(providers_at(server.url, "anthropic"), model="test/claude-sonnet-4-5", effort="medium")
    for request in server.requests:
        assert request["thinking"] == {"type": "enabled", "budget_tokens": 8_192}
    replies = [message for message in server.requests[-1]["messages"] if message["role"] == "assistant"]
    assert [reply["content"][0] for reply in unmarked(replies)] == [
        {"type": "thinking", "thinking": f"Thought {n}.", "signature": f"signed{n}"} for n in (1, 2)
    ]


async def test_later_models_of_anthropic_are_told_the_effort_and_reason_as_they_like() -> None:
    async with ProviderServer(anthropic_call(1), anthropic_reply("Done.")) as server:
        await talked(providers_at(server.url, "anthropic"), model="test/claude-opus-4-6", effort="low")
    for request in server.requests:
        assert request["thinking"] == {"type": "adaptive"}
        assert request["output_config"] == {"effort": "low"}


async def test_reasoning_is_left_out_where_earlier_turns_have_none() -> None:
    """A budgeted model rejects a call without the reasoning before it, for example after a turn of another model."""
    async with ProviderServer(anthropic_call(1), anthropic_reply("Done.")) as server:
        await talked(providers_at(server.url, "anthropic"), model="test/claude-haiku-4-5", effort="low")
    assert ["thinking" in request for request in server.requests] == [True, False]


def test_a_call_keeps_its_reasoning_in_the_context() -> None:
    thought = ({"type": "thinking", "thinking": "Hm.", "signature": "s"},)
    context = EMPTY.add("assistant", "", calls=(ToolCall("1", "look"),), thinking=thought)
    assert context.digest != EMPTY.add("assistant", "", calls=(ToolCall("1", "look"),)).digest
    assert context.block is not None
    assert context.block.thinking == thought

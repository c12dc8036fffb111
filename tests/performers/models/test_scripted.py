from __future__ import annotations

import asyncio

import pytest

from cuebook.kernel.context import ToolCall
from cuebook.testing import Final, Line, ModelError, Request, Says, ScriptedModel, ScriptEnded, TextDelta, Tokens, Turn

REQUEST = Request("m", (Turn("user", "hi"),), 100)


async def said(model: ScriptedModel, request: Request = REQUEST) -> tuple[list[str], Final]:
    chunks = [chunk async for chunk in model.stream(request)]
    assert isinstance(chunks[-1], Final)
    return [chunk.text for chunk in chunks[:-1] if isinstance(chunk, TextDelta)], chunks[-1]


async def test_a_list_is_answered_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", "two"])
    assert [(await said(model))[0] for _ in range(2)] == [["one"], ["two"]]
    assert model.requests == [REQUEST, REQUEST]


async def test_the_end_of_the_script_is_an_error_that_says_so() -> None:
    model = ScriptedModel(["one"])
    await said(model)
    with pytest.raises(ScriptEnded, match="has 1 replies"):
        await said(model)


async def test_a_script_may_begin_again() -> None:
    model = ScriptedModel(["a", "b"], cycle=True)
    assert [(await said(model))[0][0] for _ in range(5)] == ["a", "b", "a", "b", "a"]


async def test_a_function_sees_the_request() -> None:
    async def later(request: Request) -> Line:
        return Says(request.messages[-1].text.upper())

    assert (await said(ScriptedModel(lambda request: request.model)))[0] == ["m"]
    assert (await said(ScriptedModel(later)))[0] == ["HI"]


async def test_text_comes_in_chunks_of_the_size_asked_for() -> None:
    assert (await said(ScriptedModel(["abcdefg"], chunk=3)))[0] == ["abc", "def", "g"]
    assert (await said(ScriptedModel([Says("abcd", chunk=1)])))[0] == ["a", "b", "c", "d"]
    assert (await said(ScriptedModel([""])))[0] == []


async def test_details_of_a_reply_are_passed_on() -> None:
    call = ToolCall("1", "look", {"at": "it"})
    tokens = Tokens(5, 6, cached=1, reasoning=2)
    _, final = await said(ScriptedModel([Says("x", calls=(call,), tokens=tokens, cost=0.5, model="real")]))
    assert final == Final("tool_calls", tokens, (call,), "real", 0.5)
    _, final = await said(ScriptedModel([Says("x", no_tokens=True, finish="length")]))
    assert (final.tokens, final.finish) == (None, "length")


async def test_errors_and_drops_are_raised() -> None:
    model = ScriptedModel([ModelError("rate", "slow down", retry_after=3.0), Says("abcdef", drop_after=3)], chunk=2)
    with pytest.raises(ModelError) as caught:
        await said(model)
    assert (caught.value.kind, caught.value.retryable, caught.value.retry_after) == ("rate", True, 3.0)
    stream = model.stream(REQUEST)
    assert [await anext(stream), await anext(stream)] == [TextDelta("ab"), TextDelta("c")]
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    assert caught.value.kind == "dropped"


async def test_a_reply_waits_until_it_is_let_go() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([Says("abcdef", wait_for=gate, pause_at=2)], chunk=3)
    stream = model.stream(REQUEST)
    assert await anext(stream) == TextDelta("ab")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    assert await waiting == TextDelta("c")
    assert await anext(stream) == TextDelta("def")
    await stream.aclose()

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuebook.kernel.context import EMPTY
from cuebook.kernel.effects import AskModel, ToolSpec
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer, Providers
from cuebook.performers.models.local import MOST_TOOLS, LocalModel, choice_of, shared_engine
from cuebook.performers.models.model import Final, ModelError, Request, TextDelta, Turn
from cuebook.performers.models.weights import find_weights
from tests.performers.models.calls import Observer, failure_of, reply_of

_MISSING = (
    "the weights are not installed: run `cuebook models install local`"
    if find_weights() is None
    else "xllamacpp is not installed"
    if importlib.util.find_spec("xllamacpp") is None
    else ""
)
embedded = [pytest.mark.embedded, pytest.mark.skipif(bool(_MISSING), reason=_MISSING)]

TOOL = ToolSpec(
    "weather",
    "Tells the weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]},
)


def marked(test):
    for mark in embedded:
        test = mark(test)
    return test


def providers() -> Providers:
    return Providers(lambda name: None)


def request(text: str, max_tokens: int = 8) -> Request:
    return Request("smollm2-135m", (Turn("user", text),), max_tokens)


@marked
async def test_it_answers_token_by_token_at_no_cost() -> None:
    observer = Observer()
    reply = await reply_of(providers(), AskModel(prompt="Say hello.", max_tokens=6), observer=observer, model="local")
    assert reply.text
    assert len(observer.pieces) > 1
    assert "".join(observer.pieces) == reply.text
    assert (reply.usage.cost, reply.usage.origin) == (0.0, "reported")
    assert reply.usage.input > 20
    assert reply.usage.output == 6
    assert (reply.finish, reply.model) == ("length", "local/smollm2-135m")
    assert observer.warnings[0][0] == "reply_cut"


@marked
async def test_the_same_question_gets_the_same_answer() -> None:
    effect = AskModel(prompt="Name a colour.", max_tokens=6)
    assert (await reply_of(providers(), effect, model="local")).text == (
        await reply_of(providers(), effect, model="local/smollm2-135m")
    ).text


@marked
async def test_a_schema_holds_it() -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["colour", "n"],
        "additionalProperties": False,
    }
    reply = await reply_of(providers(), AskModel(prompt="Pick.", schema=schema, max_tokens=60), model="local")
    assert json.loads(reply.text)["colour"] in ("red", "blue")


@marked
async def test_a_schema_it_cannot_follow_is_a_failure() -> None:
    failed = await failure_of(providers(), AskModel(prompt="Pick.", schema={"type": "colour"}), model="local")
    assert failed.code == "schema_mismatch", "it was asked in words instead, and checked"


@marked
async def test_with_tools_it_calls_one_or_answers() -> None:
    effect = AskModel(prompt="What is the weather in Paris?", tools=(TOOL,), max_tokens=80)
    reply = await reply_of(providers(), effect, model="local")
    if reply.calls:
        assert reply.finish == "tool_calls"
        assert reply.calls[0].name == "weather"
        assert set(reply.calls[0].arguments) == {"city"}
    else:
        assert reply.text


async def test_more_tools_than_it_can_choose_among_are_refused() -> None:
    tools = tuple(ToolSpec(f"tool_{number}", "", {"type": "object"}) for number in range(MOST_TOOLS + 1))
    failed = await failure_of(providers(), AskModel(prompt="What is the weather?", tools=tools), model="local")
    assert failed.code == "tools_unsupported"
    assert "5 tools" in failed.message


@marked
async def test_the_watch_stops_it_and_usage_is_still_counted() -> None:
    observer = Observer(until=lambda shown: len(shown) > 10)
    reply = await reply_of(
        providers(), AskModel(prompt="Tell a long story.", max_tokens=2_000), observer=observer, model="local"
    )
    assert reply.finish == "watch"
    assert 0 < reply.usage.output < 50
    assert (reply.usage.cost, reply.usage.origin) == (0.0, "reported")


@marked
async def test_closing_the_stream_frees_the_engine_for_the_next_request() -> None:
    model = LocalModel()
    stream = model.stream(request("Tell a very long story.", 4_000))
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            if isinstance(chunk, TextDelta) and chunk.text:
                break
    # If the first were still running, this one would have to wait for thousands of tokens.
    chunks = [chunk async for chunk in model.stream(request("Hi", 2))]
    assert isinstance(chunks[-1], Final)


@marked
async def test_it_does_not_hold_up_the_event_loop() -> None:
    turns = 0

    async def spin() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.005)

    spinning = asyncio.create_task(spin())
    await reply_of(providers(), AskModel(prompt="Say hello.", max_tokens=10), model="local")
    spinning.cancel()
    assert turns > 5


@marked
async def test_several_at_once_share_one_engine_and_take_turns() -> None:
    effects = [AskModel(prompt=f"Say {word}.", max_tokens=3) for word in ("one", "two", "three")]
    replies = await asyncio.gather(*(reply_of(providers(), effect, model="local") for effect in effects))
    assert all(reply.usage.output == 3 for reply in replies)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("cuebook-local-model") == 1


@marked
async def test_input_that_does_not_fit_is_counted_exactly_and_refused() -> None:
    failed = await failure_of(providers(), AskModel(prompt="word " * 9_000), model="local")
    assert failed.code == "context_too_long"
    assert failed.details["exact"] is True
    assert failed.details["input_tokens"] > 9_000
    assert failed.details["window"] == 8_192


@marked
async def test_the_tokenizer_is_closed_to_others() -> None:
    weights = find_weights()
    assert weights is not None
    engine = await asyncio.to_thread(shared_engine, weights)
    count = await asyncio.to_thread(engine.count_text, "hello world")
    assert count == 2
    right, engine._key = engine._key, "wrong"
    try:
        with pytest.raises(ModelError):
            await asyncio.to_thread(engine.count_text, "hello world")
    finally:
        engine._key = right


@marked
async def test_a_long_prompt_can_be_stopped_while_it_is_read() -> None:
    model = LocalModel(reuse_prompt=False)
    stream = model.stream(request("word and " * 1_500, 4))
    first = await anext(stream)
    assert first == TextDelta("")
    await stream.aclose()
    chunks = [chunk async for chunk in model.stream(request("Hi", 1))]
    assert isinstance(chunks[-1], Final)


@marked
async def test_other_weights_that_fail_do_not_spoil_the_engine(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(ModelError, match="could not be loaded"):
        [chunk async for chunk in LocalModel(broken).stream(request("Hi"))]
    chunks = [chunk async for chunk in LocalModel().stream(request("Hi", 1))]
    assert isinstance(chunks[-1], Final)


@marked
def test_a_process_ends_while_it_generates_and_says_nothing() -> None:
    code = """
import asyncio, sys
from cuebook.performers.models.local import LocalModel
from cuebook.performers.models.model import Turn, Request
async def main():
    stream = LocalModel().stream(Request("m", (Turn("user", "Tell a long story."),), 4000))
    async for chunk in stream:
        if getattr(chunk, "text", ""):
            sys.exit(0)
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@marked
def test_a_run_without_a_model_is_estimated_at_nothing() -> None:
    estimate = ModelPerformer(providers()).estimate(AskModel(prompt="Hello"), Settings())
    assert (estimate.cost, estimate.output_tokens) == (0.0, estimate.output_tokens)
    assert estimate.input_tokens + estimate.output_tokens <= 8_192


def test_a_choice_is_read_as_a_call_or_an_answer() -> None:
    asked = Request("m", (Turn("user", "x"),), 10, tools=(TOOL,))
    choice = choice_of(asked)
    assert choice is not None
    text, calls = choice.read('{"tool": "weather", "arguments": {"city": "Paris"}}')
    assert (text, calls[0].name, calls[0].arguments) == ("", "weather", {"city": "Paris"})
    assert choice.read('{"answer": "Sunny"}') == ("Sunny", ())
    assert choice.read('{"answer": "Sun') == ('{"answer": "Sun', ())
    assert choice_of(request("x")) is None


def test_a_choice_carries_the_definitions_that_its_schemas_refer_to() -> None:
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    asked = Request("m", (), 10, tools=(ToolSpec("t", "", parameters),), schema={"type": "integer"})
    choice = choice_of(asked)
    assert choice is not None
    assert choice.schema["$defs"] == {"A": {"type": "string"}}
    assert choice.read('{"answer": 5}') == ("5", ())


async def test_without_weights_the_failure_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUEBOOK_LOCAL_WEIGHTS", str(tmp_path / "none.gguf"))
    failed = await failure_of(providers(), AskModel(context=EMPTY, prompt="x"), model="local")
    assert failed.code == "weights_missing"
    assert "cuebook models install local" in failed.fix


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
async def test_a_file_that_is_not_a_model_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF but not really")
    monkeypatch.setenv("CUEBOOK_LOCAL_WEIGHTS", str(file))
    failed = await failure_of(providers(), "x", model="local")
    assert failed.code == "model_not_installed"
    assert "could not be loaded" in failed.message


@marked
async def test_a_free_text_comes_to_its_end_by_itself() -> None:
    prompt = "Write a formal thank-you letter to Ada for a book, in three sentences."
    reply = await reply_of(providers(), AskModel(prompt=prompt, max_tokens=400), model="local")
    assert reply.finish == "stop", reply.text


@marked
async def test_a_long_text_does_not_repeat_itself() -> None:
    reply = await reply_of(
        providers(), AskModel(prompt="Write a long story about a dragon.", max_tokens=400), model="local"
    )
    words = reply.text.split()
    runs = [tuple(words[at : at + 6]) for at in range(len(words) - 5)]
    assert len(set(runs)) > 0.9 * len(runs), reply.text


@marked
async def test_a_grammar_is_kept_to() -> None:
    grammar = 'root ::= "complaint" | "question"'
    prompt = "Is this message a complaint or a question? Answer with one word.\n\nThe lamp does not turn on."
    reply = await reply_of(providers(), AskModel(prompt=prompt, grammar=grammar), model="local")
    assert reply.text in ("complaint", "question")

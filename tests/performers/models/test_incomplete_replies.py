"""A reply that was refused, is empty, was cut or never ends is a failure or a warning, whatever the provider."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import AskModel, Watch
from cuebook.performers.models import Providers
from cuebook.testing import Says, ScriptedModel
from tests.performers.models.calls import Observer, failure_of, providers_at, reply_of
from tests.performers.models.provider_server import (
    Answer,
    ProviderServer,
    anthropic_reply,
    delta,
    openai_reply,
    started,
)

REPLIES: dict[str, Callable[..., Answer]] = {"openai": openai_reply, "anthropic": anthropic_reply}


def ending(protocol: str, reason: str, *texts: str) -> Answer:
    named: dict[str, Any] = {"finish" if protocol == "openai" else "reason": reason}
    return REPLIES[protocol](*texts, **named)


REFUSALS = [("openai", "content_filter"), ("openai", "SAFETY"), ("anthropic", "refusal")]


@pytest.mark.parametrize(("protocol", "reason"), REFUSALS)
@pytest.mark.parametrize("lenient", [False, True])
async def test_a_refusal_is_a_failure_that_was_paid_for(protocol: str, reason: str, lenient: bool) -> None:
    async with ProviderServer(ending(protocol, reason, "I cannot help with that.")) as server:
        failed = await failure_of(providers_at(server.url, protocol), AskModel(prompt="x", lenient=lenient))
    assert (failed.code, failed.retryable, len(server.requests)) == ("model_refused", False, 1)
    assert "I cannot help with that." in failed.message
    assert failed.details["usage"]["output"] > 0


async def test_a_refusal_in_a_field_of_its_own_is_one_too() -> None:
    refusal = Answer([delta(refusal="No, "), delta(refusal="thanks."), delta(finish="stop"), "[DONE]"])
    async with ProviderServer(refusal) as server:
        failed = await failure_of(providers_at(server.url))
    assert failed.code == "model_refused"
    assert "No, thanks." in failed.message


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_an_reply_empty_is_a_failure(protocol: str) -> None:
    for text in ("", " \n"):
        async with ProviderServer(REPLIES[protocol](text)) as server:
            failed = await failure_of(providers_at(server.url, protocol))
        assert (failed.code, failed.retryable) == ("reply_empty", True)


async def test_a_reply_that_was_cut_before_its_first_word_says_so() -> None:
    async with ProviderServer(openai_reply("", finish="length")) as server:
        failed = await failure_of(providers_at(server.url), AskModel(prompt="x", max_tokens=20))
    assert failed.code == "reply_empty"
    assert "cut at 20 tokens" in failed.message
    assert "max_tokens" in failed.fix


@pytest.mark.parametrize("effect", [AskModel(prompt="x", lenient=True), AskModel(prompt="x", watch=Watch("any"))])
async def test_a_dialect_that_judges_replies_itself_is_given_an_empty_one_with_a_warning(effect: AskModel) -> None:
    for line, warned in ((Says(" "), ["reply_empty"]), (Says("", (ToolCall("1", "look"),)), []), (Says("Yes."), [])):
        observer = Observer()
        reply = await reply_of(Providers.only(ScriptedModel([line])), effect, observer=observer)
        assert (reply.text, [code for code, _ in observer.warnings]) == (line.text, warned)


@pytest.mark.parametrize(
    ("protocol", "reason"), [("openai", "length"), ("openai", "MAX_TOKENS"), ("anthropic", "max_tokens")]
)
async def test_a_cut_reply_is_a_warning(protocol: str, reason: str) -> None:
    observer = Observer()
    async with ProviderServer(ending(protocol, reason, "Half a")) as server:
        reply = await reply_of(providers_at(server.url, protocol), observer=observer)
    assert (reply.finish, [code for code, _ in observer.warnings]) == ("length", ["reply_cut"])


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_an_end_that_is_not_known_is_a_warning_that_names_it(protocol: str) -> None:
    observer = Observer()
    async with ProviderServer(ending(protocol, "cosmic_rays", "All of it.")) as server:
        reply = await reply_of(providers_at(server.url, protocol), observer=observer)
    ((code, words),) = observer.warnings
    assert (reply.text, reply.finish, code) == ("All of it.", "stop", "unknown_finish")
    assert "cosmic_rays" in words


async def test_an_end_by_an_error_is_tried_again() -> None:
    async with ProviderServer(openai_reply("Half", finish="error"), openai_reply("Whole")) as server:
        reply = await reply_of(providers_at(server.url))
    assert (reply.text, reply.retries) == ("Whole", 1)


# --- without end ------------------------------------------------------------------------------------

PIECE = "x" * 16_384
LIMIT = 1 << 18


def called(index: int, arguments: str) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "id": "a", "function": {"name": "t", "arguments": arguments}}])


def block_delta(part: dict[str, Any]) -> tuple[str, Any]:
    return "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": part}


TOOL = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
BEGIN = ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": TOOL})

ENDLESS: dict[str, tuple[str, Any]] = {
    "text": ("openai", itertools.repeat(delta(content=PIECE))),
    "arguments of a call": ("openai", itertools.repeat(called(0, PIECE))),
    "calls": ("openai", (called(number, "") for number in itertools.count())),
    "a line": ("openai", itertools.chain(["\r"], itertools.repeat(PIECE))),
    "text of the other protocol": (
        "anthropic",
        itertools.chain([started()], itertools.repeat(block_delta({"type": "text_delta", "text": PIECE}))),
    ),
    "arguments of the other protocol": (
        "anthropic",
        itertools.chain(
            [started(), BEGIN], itertools.repeat(block_delta({"type": "input_json_delta", "partial_json": PIECE}))
        ),
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_provider_that_sends_without_end_is_cut_off(what: str) -> None:
    protocol, events = ENDLESS[what]
    answer = Answer(events, unbroken=what == "a line")
    limit = LIMIT >> 4 if what == "calls" else LIMIT
    async with ProviderServer(answer) as server:
        providers = providers_at(server.url, protocol, reply_limit=limit)
        failed = await failure_of(providers)
    assert (failed.code, failed.retryable, len(server.requests)) == ("reply_too_large", False, 1)
    assert f"{limit:,} bytes" in failed.message
    assert server.sent < 64 * LIMIT, "it was not read for long"


async def test_a_model_of_any_other_kind_is_held_to_the_limit() -> None:
    providers = Providers(lambda name: None, models={"test": ScriptedModel(["x" * 50])}, reply_limit=40)
    assert (await failure_of(providers)).code == "reply_too_large"


# --- servers that want no key -----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_server_that_wants_no_key_is_sent_none(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-of-another-provider")
    async with ProviderServer(REPLIES[protocol]("Hello.")) as server:
        reply = await reply_of(providers_at(server.url, protocol, key=None))
    assert reply.text == "Hello."
    assert not {"authorization", "x-api-key"} & set(server.headers[0])
    assert "sk-of" not in str(server.headers[0])


# --- who could not answer, and who would not --------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "test failed (HTTP 500): "), (503, "test failed (HTTP 503): "), (400, "test refused the request: ")],
)
async def test_a_provider_that_could_not_answer_did_not_refuse(status: int, words: str) -> None:
    answer = Answer(status=status, body={"error": {"message": "The disk is full."}})
    observer = Observer()
    async with ProviderServer(*[answer] * 5) as server:
        failed = await failure_of(providers_at(server.url), observer=observer)
    assert failed.message.startswith(f"{words}The disk is full")
    assert ("tried 5 times" in failed.message) == (status != 400)
    told = [] if status == 400 else [(number, 5, f"{words}The disk is full.") for number in (2, 3, 4, 5)]
    assert [(data["number"], data["of"], data["reason"]) for _, data in observer.notes] == told

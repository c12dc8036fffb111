"""Prompts of MCP servers as text: real servers as child processes in the sandbox, and on the network."""

from __future__ import annotations

import sys
from hashlib import sha256

import pytest

from cuebook.kernel.effects import ReadSource
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Description, Limits
from cuebook.kernel.run import Settings
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.mcp import McpServer, connection
from cuebook.performers.sources import SourcePerformer
from tests.performers.mcp.harness import GOOD, SECRET, McpHarness, Trusting
from tests.performers.mcp.http_servers import listening, on_the_network
from tests.performers.tools.calls import ToolCaller

HERE = McpServer("good", command=(sys.executable, GOOD))


async def read(texts: SourcePerformer, prompt: str, caller: ToolCaller | None = None) -> Source | Failed:
    return await texts.perform(ReadSource(f"mcp:{prompt}"), (caller or ToolCaller()).call())


async def text(texts: SourcePerformer, prompt: str, caller: ToolCaller | None = None) -> str:
    found = await read(texts, prompt, caller)
    assert isinstance(found, Source), found
    return str(found.content)


async def failure(texts: SourcePerformer, prompt: str, caller: ToolCaller | None = None) -> Failed:
    failed = await read(texts, prompt, caller)
    assert isinstance(failed, Failed), failed
    return failed


async def described(texts: SourcePerformer, prompt: str) -> Description:
    description = await texts.describe(ReadSource(f"mcp:{prompt}"), Settings())
    assert isinstance(description, Description), description
    return description


# --- what is read ---


async def test_a_prompt_is_the_text_of_its_messages(harness: McpHarness):
    texts = harness.texts(HERE)
    found = await read(texts, "good/greeting")
    assert isinstance(found, Source)
    assert str(found.content) == "Greet {{name}} kindly."
    assert found.digest == sha256(b"Greet {{name}} kindly.").hexdigest()
    caller = ToolCaller()
    assert await text(texts, "good/two_parts", caller) == "First.\n\nSecond."
    assert caller.warnings == ["prompt_cut"]
    assert len(harness.sandbox.started) == 1


async def test_where_several_roles_speak_each_is_named(harness: McpHarness):
    said = await text(harness.texts(HERE), "good/dialogue")
    assert said == "[user]\nWhat is tea?\n\n[assistant]\nA plant.\n\n[user]\nSay more."


async def test_a_server_on_the_network_gives_prompts_like_any_other(harness: McpHarness):
    with on_the_network() as address:
        server = McpServer("web", url=address, secret_headers={"X-Token": "env:TOKEN"})
        texts = harness.texts(server)
        description = await described(texts, "web/greeting")
        assert description.actions == (
            Action("tool", "web.prompt:greeting", True),
            Action("egress", f"POST {address}", True),
            Action("secret", "env:TOKEN", True),
        )
        assert SECRET not in str(description)
        assert await text(texts, "web/greeting") == "Greet {{name}} kindly."
        assert (await failure(texts, "web/nothing")).code == "not_found"
        assert (await failure(texts, "web/slow", ToolCaller(limits=Limits(seconds=0.5)))).code == "timeout"
        assert harness.sandbox.started == []
        await harness.close()


# --- trust ---


async def test_nothing_is_started_before_a_person_has_agreed(harness: McpHarness):
    harness.trust = Trusting(all=False)
    texts = harness.texts(HERE)
    description = await described(texts, "good/greeting")
    assert description.actions == (Action("tool", "good.prompt:greeting", reads_only=True),)
    (trust,) = description.trusts
    assert (trust.subject, trust.ask_first) == ("mcp server good", True)
    assert description.bound == {"server": trust.digest}
    assert (await failure(texts, "good/greeting")).code == "not_trusted"
    assert harness.sandbox.started == []
    harness.trust.digests[trust.subject] = trust.digest
    assert await text(texts, "good/greeting") == "Greet {{name}} kindly."


async def test_nothing_is_started_to_describe_a_prompt_of_a_server_that_was_agreed_to(harness: McpHarness):
    await described(harness.texts(HERE), "good/greeting")
    assert harness.sandbox.started == []


async def test_nothing_is_sent_over_the_network_before_a_person_has_agreed(harness: McpHarness):
    harness.trust = Trusting(all=False)
    async with listening(lambda request: (200, {}, b"{}")) as (url, requests):
        texts = harness.texts(McpServer("web", url=url))
        assert (await described(texts, "web/p")).trusts[0].prompt == "Use the tool server 'web'?"
        assert (await failure(texts, "web/p")).code == "not_trusted"
        assert requests == []


# --- what is not there ---


@pytest.mark.parametrize(
    ("prompt", "words", "fix"),
    [
        ("goood/greeting", "no tool server 'goood'", "Did you mean good?"),
        ("other/greeting", "no tool server 'other'", "[mcp.other]"),
        ("good/greetin", "no prompt 'greetin'", "Did you mean greeting?"),
        ("good/xyz", "no prompt 'xyz'", "It has: about, dialogue, greeting"),
    ],
)
async def test_an_unknown_server_or_prompt_is_not_found(harness: McpHarness, prompt: str, words: str, fix: str):
    failed = await failure(harness.texts(HERE), prompt)
    assert failed.code == "not_found"
    assert words in failed.message
    assert fix in failed.fix


async def test_an_unknown_server_is_reported_before_any_approval(harness: McpHarness):
    failed = await harness.texts(HERE).describe(ReadSource("mcp:other/p"), Settings())
    assert isinstance(failed, Failed)
    assert failed.code == "not_found"


async def test_a_server_without_prompts_has_none(harness: McpHarness):
    failed = await failure(harness.texts_by_hand("greets"), "s/p")
    assert (failed.code, failed.fix) == ("not_found", "It has no prompts at all.")


async def test_without_servers_the_scheme_is_unknown():
    texts = SourcePerformer([], http=HttpPerformer())
    assert (await failure(texts, "good/greeting")).code == "bad_source"


# --- what goes wrong ---


async def test_a_prompt_that_needs_arguments_or_is_refused_says_so(harness: McpHarness):
    failed = await failure(harness.texts(HERE), "good/about")
    assert failed.code == "needs_arguments"
    assert "(topic)" in failed.message
    failed = await failure(harness.texts_by_hand("refuses_prompt"), "s/p")
    assert failed.code == "prompt_refused"
    assert "not on a Sunday" in failed.message


async def test_a_prompt_that_is_too_long_is_not_taken(harness: McpHarness):
    failed = await failure(harness.texts(HERE), "good/lengthy")
    assert failed.code == "too_large"
    assert "The prompt good/lengthy" in failed.message


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("dies_at_once", "server_failed"),
        ("dies_in_prompt", "dropped"),
        ("garbage", "server_failed"),
        ("lies_in_prompt", "bad_result"),
    ],
)
async def test_what_a_bad_server_does_is_a_typed_outcome(harness: McpHarness, name: str, code: str):
    failed = await failure(harness.texts_by_hand(name), "s/p")
    assert failed.code == code
    assert failed.details["server"] == "s"
    assert failed.retryable == (code == "dropped")
    assert len(harness.sandbox.started) <= 2


@pytest.mark.parametrize("name", ["silent", "deaf_in_first_prompt"])
async def test_a_server_that_never_answers_is_given_its_time_and_no_more(harness: McpHarness, name: str):
    texts = harness.texts_by_hand(name, str(harness.workspace / "mark"))
    failed = await failure(texts, "s/p", ToolCaller(limits=Limits(seconds=1.5)))
    assert (failed.code, failed.retryable) == ("timeout", True)
    assert "within 1.5 seconds" in failed.message
    assert len(harness.sandbox.started) == 1


async def test_a_server_that_died_is_asked_once_more(harness: McpHarness):
    texts = harness.texts_by_hand("dies_in_first_prompt", str(harness.workspace / "mark"))
    assert await text(texts, "s/p") == "second"
    assert len(harness.sandbox.started) == 2


async def test_a_server_that_hung_is_started_again_for_the_next(harness: McpHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "DOUBT_SECONDS", 0.5)
    texts = harness.texts_by_hand("deaf_in_first_prompt", str(harness.workspace / "mark"))
    assert (await failure(texts, "s/p", ToolCaller(limits=Limits(seconds=5.0)))).code == "timeout"
    assert await text(texts, "s/p") == "second"
    assert len(harness.sandbox.started) == 2

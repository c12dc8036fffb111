"""Effects are plain values that say what they are, what they may change, and whether they may be repeated."""

from __future__ import annotations

import pytest

from cuebook.kernel.effects import AskHuman, AskModel, Breakpoint, CallTool, Effect, Now, RunCommand, SendHttp, Wait


@pytest.mark.parametrize(
    ("effect", "fingerprint"),
    [
        (CallTool("search", {"q": "x"}), "CallTool search"),
        (RunCommand(("git", "push")), "RunCommand git"),
        (SendHttp("post", "https://example.org/a"), "SendHttp POST"),
        (AskModel("Write a poem.", model="test/one"), "AskModel test/one"),
        (AskModel("Write a poem."), "AskModel"),
        (AskHuman("Well?", "confirm"), "AskHuman confirm"),
        (Breakpoint("2"), "Breakpoint 2"),
        (Wait(channel="news"), "Wait news"),
        (Now(), "Now"),
    ],
)
def test_a_fingerprint_contains_what_the_author_can_see_and_no_prose(effect: Effect, fingerprint: str) -> None:
    assert effect.fingerprint == fingerprint


@pytest.mark.parametrize(
    ("effect", "changes", "repeatable"),
    [
        (CallTool("send"), True, False),
        (CallTool("send", idempotent=True), True, True),
        (CallTool("search", reads_only=True), False, True),
        (AskModel("?"), False, True),
        (Now(), False, True),
    ],
)
def test_an_effect_says_whether_it_changes_the_world_and_may_be_repeated(
    effect: Effect, changes: bool, repeatable: bool
) -> None:
    assert (effect.changes, effect.repeatable) == (changes, repeatable)

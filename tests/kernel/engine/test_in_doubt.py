"""A person who decides about an effect in doubt sees everything that would be repeated."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.effects import Browse, CallNode, CallTool, Effect, RunCommand, SecretUse, SendHttp
from cuebook.kernel.engine.in_doubt import parts_of, words_of

SECRET = (SecretUse("env.TOKEN", "env:MINE", "Bearer {}"),)


@pytest.mark.parametrize(
    ("effect", "words", "parts"),
    [
        (
            RunCommand(("sh", "-c", "rm x"), "below", {"A": "1"}, "in", secrets=SECRET, preview={"to undo it": "?"}),
            "run sh -c 'rm x'",
            {
                "command": "sh -c 'rm x'",
                "folder": "below",
                "environment": "A=1",
                "stdin": "in",
                "secrets": "env.TOKEN: Bearer [secret env:MINE]",
                "to undo it": "?",
            },
        ),
        (
            SendHttp("post", "https://x/y", {"A": "1"}, "body", preview={"output of a": "long"}),
            "send POST https://x/y",
            {"request": "POST https://x/y", "headers": "A: 1", "body": "body"},
        ),
        (CallTool("s.t", {"a": 1}), "call s.t", {"tool": "s.t", "arguments": '{"a":1}'}),
        (RunCommand(("true",)), "run true", {"command": "true"}),
        (
            CallNode("command", "run", {"argv": ["true"]}, node="shop"),
            "command run on node shop",
            {"node": "shop", "action": "command run", "arguments": '{"argv":["true"]}'},
        ),
        (CallNode("door", "open"), "door open on a node that offers door", {"action": "door open"}),
    ],
)
def test_an_effect_is_described_in_full(effect: Effect, words: str, parts: dict[str, str]) -> None:
    assert (words_of(effect), parts_of(effect)) == (words, parts)


def test_an_effect_without_its_own_description_is_shown_as_it_is() -> None:
    effect: Any = Browse("click", {"selector": "#a"})
    assert words_of(effect) == effect.fingerprint
    assert '"selector":"#a"' in parts_of(effect)["effect"]

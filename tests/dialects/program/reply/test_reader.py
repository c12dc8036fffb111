"""Parsing a reply: the canonical form, its other spellings, and the positions of errors."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects import program
from cuebook.dialects.program.reply.items import (
    Artifact,
    Assign,
    Call,
    Check,
    Prose,
    Return,
    SaveArtifact,
    Step,
    Trigger,
    Var,
    What,
    Yield,
    YieldCheck,
)
from cuebook.dialects.program.reply.reader import ReplyError, ReplyReader, parse_reply
from cuebook.dialects.program.values.expressions import Literal, Ref
from cuebook.kernel.errors import BadInput

REPLY = """\
recap – the user said 'Bob'
plan – greet Bob
`Var[$name, "Bob"]`
trig? no
`SaveArtifact($log, "the log", "content...")`
trig? no
`Step["Main:03:QUE"]` to be kind: `Say("Hello Bob")`
trig? `Trigger["Desk.Refund:T1:CND"]` since he asked, `Refund($name)`
yld? yes, Refund must run
what? nothing odd
`Step["Main:04:YLD"]` yld call
"""


def test_the_seeds_form_is_read_into_typed_items() -> None:
    reply = parse_reply(REPLY)
    assert (reply.recap, reply.plan) == ("the user said 'Bob'", "greet Bob")
    kinds = [type(item) for item in reply.items[2:]]
    assert kinds == [
        Var, Check, SaveArtifact, Check, Step, Prose, Call, Trigger, Prose, Call, YieldCheck, What, Step, Yield,
    ]  # fmt: skip
    assert reply.terminator == reply.items[-1]
    assert [(step.playbook, step.line, step.code) for step in reply.steps] == [
        ("Main", "03", "QUE"),
        ("Main", "04", "YLD"),
    ]
    trigger = next(item for item in reply.items if isinstance(item, Trigger))
    assert (trigger.playbook, trigger.id, trigger.kind) == ("Desk.Refund", "T1", "CND")


def test_every_item_has_its_place_in_the_text() -> None:
    for item in parse_reply(REPLY).items:
        words = REPLY[item.start : item.end]
        if isinstance(item, (Step, Var, Call, SaveArtifact, Trigger)):
            assert words[0] == words[-1] == "`"
        elif isinstance(item, Yield):
            assert words.strip() == "yld call"


def test_groups_end_where_the_triggers_are_looked_at() -> None:
    groups = parse_reply(REPLY).groups
    assert [type(group.check) for group in groups] == [Check, Check, Trigger, type(None), type(None)]
    assert [len(group.actions) for group in groups] == [1, 1, 3, 2, 2]
    assert isinstance(groups[3].yield_check, YieldCheck)


@pytest.mark.parametrize(
    ("line", "target", "name"),
    [
        ("yld user", "user", ""),
        ("yld for human", "user", ""),
        ("yld for call", "call", ""),
        ("yld return", "return", ""),
        ("yld finished", "return", ""),
        ("yld for meeting 100", "meeting", "100"),
        ("yld for agent 1001", "agent", "1001"),
        ("yld for Strategic Mind", "agent", "Strategic Mind"),
        ("  yld exit  ", "exit", ""),
    ],
)
def test_yields_have_several_spellings(line: str, target: str, name: str) -> None:
    found = parse_reply(f"recap – r\nplan – p\n{line}").terminator
    assert isinstance(found, Yield)
    assert (found.target, found.name) == (target, name)


@pytest.mark.parametrize("dash", ["–", "—", "-", ":"])
def test_recap_and_plan_have_several_dashes(dash: str) -> None:
    reply = parse_reply(f"recap {dash} one\nplan{dash} two\nyld user")
    assert (reply.recap, reply.plan) == ("one", "two")


@pytest.mark.parametrize(
    ("directive", "item"),
    [
        ("Var[$n:int, 3]", Var("n", Literal(3), "int")),
        ("Var[$n:list[str], []]", None),
        ("Artifact[$a, 'summary', $text]", Artifact("a", Literal("summary"), Ref("text"))),
        ("$x:float = Rate($y)", Assign("x", Call("Rate", (Ref("y"),)), "float")),
        ("$x = 3", Var("x", Literal(3))),
        ("Return[]", Return(None)),
        ("Return[0]", Return(Literal(0))),
        ("Step['Main:02.01']", Step("Main", "02.01")),
        ('Trigger["Offer:01:CND"]', Trigger("Offer", "T1", "CND")),
        ("$x == 3", Prose("`$x == 3`")),
        ("items[0]", Prose("`items[0]`")),
    ],
)
def test_directives(directive: str, item: object) -> None:
    text = f"recap – r\nplan – p\n`{directive}`\nyld user"
    found = parse_reply(text).items[2]
    assert text[found.start : found.end] == f"`{directive}`"
    if item is not None:
        bare = {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("start", "end", "call")}
        assert bare == {name: getattr(item, name) for name in bare}
        assert type(found) is type(item)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("recap – r\nplan – p\n`Var[$x, ]`\nyld user", 3, 9, "value"),
        ('recap – r\nplan – p\n  `Say("a)`\nyld user', 3, 8, "not closed"),
        ("recap – r\nplan – p\n`Say((1)`\nyld user", 3, 5, "not closed"),
        ("recap – r\nplan – p\n`Say(1))`\nyld user", 3, 8, "unexpected token"),
        ("recap – r\nplan – p\n`Return(3)`", 3, 8, "square brackets"),
        ("recap – r\nplan – p\nyld", 3, 1, "no target"),
        ("recap – r\nplan – p\nall done", 3, 9, "neither yields nor returns"),
        ("", 1, 1, "neither yields nor returns"),
    ],
)
def test_an_error_has_its_position(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ReplyError) as error:
        parse_reply(text)
    assert (error.value.line, error.value.column) == (line, column)
    assert words in error.value.message
    assert error.value.fix


def test_an_apostrophe_within_a_word_does_not_begin_a_string() -> None:
    reply = parse_reply("recap – r\nplan – p\n`Return[it's Bob's turn]` `Var[$__, 'done']`\nyld return")
    assert isinstance(reply.terminator, Yield)
    assert [type(item) for item in reply.items[2:4]] == [Return, Var]


def test_a_say_has_a_recipient_and_a_message() -> None:
    both, alone = (parse_reply(f"`{say}`\nyld user").items[0] for say in ('Say("meeting 1", "Hi")', 'Say("Hi")'))
    assert isinstance(both, Call)
    assert isinstance(alone, Call)
    assert (both.said_to, both.message) == (Literal("meeting 1"), Literal("Hi"))
    assert (alone.said_to, alone.message) == (Literal("user"), Literal("Hi"))


def test_items_come_as_soon_as_they_are_finished() -> None:
    reader = ReplyReader()
    assert reader.feed("recap – r\nplan – p\n`Say(") != []
    assert reader.feed('"user", "Hi`]") ') == []
    assert [type(item) for item in reader.feed("`")] == [Call]
    assert reader.feed(" yld us") == []
    assert [type(item) for item in reader.feed("er\nmore")] == [Yield]
    assert reader.finish() == []
    assert reader.after is not None


def test_the_package_offers_reading_and_verifying() -> None:
    assert program.parse_reply is parse_reply
    assert {"parse_reply", "verify_reply", "lint", "Listing"} <= set(program.__all__)
    assert all(callable(getattr(program, name)) for name in program.__all__ if name != "PROGRAM")
    with pytest.raises(AttributeError):
        _ = program.parse_replies


@pytest.mark.parametrize("text", [None, b"yld user", 3])
def test_a_reply_must_be_a_string(text: Any) -> None:
    with pytest.raises(BadInput, match=f"A reply must be a str, got {type(text).__name__}"):
        parse_reply(text)

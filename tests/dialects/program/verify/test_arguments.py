"""Parsing and verifying a reply from outside: a listing, a position and a state in all accepted forms."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from typing import Any

import pytest

from cuebook.dialects.program import Listing, Position, ReplyError, State, parse_reply, verify_reply
from cuebook.dialects.program.parse import parse
from cuebook.dialects.program.reply import reader
from cuebook.dialects.program.verify import verifier
from cuebook.kernel.errors import BadInput

LINES = ["01:QUE Say(user, Ask for a $name:str)", "02:YLD for user", "03:QUE Say(user, Greet $name)", "04:YLD for exit"]
ROWS = [[number, *rest.split(" ", 1)] for number, _, rest in (line.partition(":") for line in LINES)]
STEPS = "\n".join(f"- {line}" for line in LINES)
PROGRAM = f"# Desk\nGreets.\n\n## Other() -> None\n### Steps\n- 01:RET\n\n## Main() -> None\n### Steps\n{STEPS}\n"

ASKS = 'recap – new\nplan – ask\n`Step["Main:01:QUE"]` `Say("user", "Your name?")`\ntrig? no\n`Step["Main:02:YLD"]` yld user'
GREETS = (
    'recap – told\nplan – greet\n`Var[$name, "Ada"]`\ntrig? no\n`Step["Main:03:QUE"]` `Say("user", "Hello")`\n'
    'trig? no\n`Step["Main:04:YLD"]` yld for exit'
)
JUMPS = ASKS.replace("02:YLD", "03:QUE")


@pytest.mark.parametrize("module", [reader, verifier], ids=["parse_reply", "verify_reply"])
def test_the_examples_in_the_documentation_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0


@pytest.mark.parametrize(
    "listing",
    [
        LINES,
        ROWS,
        [tuple(row) for row in ROWS],
        iter(LINES),
        "\n".join(LINES),
        STEPS,
        f"## Main() -> None\nGreets.\n### Steps\n{STEPS}",
        PROGRAM,
        parse(PROGRAM, "desk.pbasm"),
        parse(PROGRAM, "desk.pbasm").agents["Desk"].playbooks["Main"],
        Listing.of_rows("Main", ROWS),
    ],
    ids=lambda one: f"{type(one).__name__}-{len(str(one))}",
)
def test_a_listing_in_any_form(listing: Any) -> None:
    found = verify_reply(listing, "01", None, ASKS)
    assert (found.ok, found.rules, found.position) == (True, (), Position("02", "done", ("01#1",)))


def test_a_listing_without_a_name_is_of_the_playbook_that_the_reply_names() -> None:
    mixed = ASKS.replace("Main:02", "Other:02")
    assert verify_reply(LINES, None, None, mixed).rules == ("C1:R",)


@pytest.mark.parametrize("listing", [["01"], [["01"]], ["first do this"], "# Desk\n\n## \n"])
def test_an_invalid_listing_is_refused(listing: Any) -> None:
    with pytest.raises(BadInput):
        verify_reply(listing, None, None, ASKS)


@pytest.mark.parametrize(
    ("position", "rules"),
    [
        (None, ()),
        ("03", ()),
        ("3", ()),
        ("Main:03", ()),
        ("Desk.Main:03:QUE", ()),
        (Position("02", "done"), ()),
        ({"line": "02", "status": "done"}, ()),
        ("01", ("C4:R",)),
        ("02", ("C4:R",)),
        (Position(""), ("C4:R",)),
        ({"line": "2"}, ("C4:R",)),
    ],
)
def test_a_position_in_any_form(position: Any, rules: tuple[str, ...]) -> None:
    assert verify_reply(LINES, position, None, GREETS).rules == rules


def test_an_invalid_position_is_refused() -> None:
    with pytest.raises(BadInput, match="'the start' is not a line"):
        verify_reply(LINES, "the start", None, GREETS)


def test_without_a_position_everything_after_the_first_step_is_judged() -> None:
    refused = verify_reply(LINES, reply=JUMPS).rejected
    assert refused is not None
    assert (refused.rule, refused.because, refused.line) == ("C5", "C7", "01")
    assert JUMPS[refused.start : refused.end] == '`Step["Main:03:QUE"]`'


@pytest.mark.parametrize(
    ("state", "rules"),
    [
        (None, ()),
        ({}, ()),
        (State(), ()),
        ({"other": 1}, ("V3:R",)),
        ({"size": 3}, ()),
        ({"$size": 3}, ()),
        ({"variables": {"size": 3}}, ()),
        ({"variables": {"$size": 3}, "call_stack": ["Main:02"], "agents": [], "meetings": []}, ()),
        ({"variables": {}}, ("V3:R",)),
        ({"variables": {"size": 3}, "playbooks": {}}, ()),
        (State(variables={}), ("V3:R",)),
        ({"variables": 3, "size": 1}, ()),
    ],
)
def test_a_state_in_any_form(state: State | Mapping[str, Any] | None, rules: tuple[str, ...]) -> None:
    text = 'recap – r\nplan – p\n`Step["Main:01:EXE"]` `Var[$twice, $size * 2]`\ntrig? no\nyld call'
    assert verify_reply(["01:EXE $twice:int = twice the $size", "02:RET"], "01", state, text).rules == rules


def test_a_reply_as_text_and_as_it_was_read_have_the_same_verdicts() -> None:
    for text in (ASKS, JUMPS, f"{ASKS}\nand more"):
        assert verify_reply(LINES, "01", None, text) == verify_reply(LINES, "01", None, parse_reply(text))


def test_an_unparsable_reply_raises_an_error_and_gets_a_verdict() -> None:
    text = 'recap – r\nplan – p\n`Var[$x, "open]`\nyld user'
    with pytest.raises(ReplyError) as caught:
        parse_reply(text)
    assert (caught.value.rule, caught.value.line, caught.value.column) == ("S2", 3, 10)
    assert verify_reply(LINES, None, None, text).rules == ("S2:R",)


def test_the_verdicts_are_iterated_in_the_order_of_the_text() -> None:
    found = verify_reply(LINES, "01", None, 'recap – r\n`Step["Main:01:EXE"]` `Say("user", "Hm")`\nyld user')
    assert [(one.rule, one.policy) for one in found.verdicts] == [("S1", "F"), ("C3", "F"), ("T1", "F")]
    assert all(one.words for one in found.verdicts)
    assert list(found) == list(found.verdicts)

"""Properties of the reply reader for any text: only its own errors, linear work, and the same items however it is split."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.reply.items import Defect, ReplyItem
from cuebook.dialects.program.reply.reader import Reply, ReplyError, ReplyReader, parse_reply
from cuebook.dialects.program.verify.verdicts import KnownTrigger, Signature, State
from cuebook.dialects.program.verify.verifier import verify_reply
from tests.support.sampling import many

PIECES = (
    "`", "``", "\n", " ", "recap – so", "plan - so", "trig? no", "trig? ", "trig on $x? no", "yld? no", "yld ", "yld for user",
    "what? ", "Step[", '`Step["Main:01:QUE"]`', '`Step["Main:02.01:CND"]`', '`Step["Other:01:EXE"]`', "`Var[$x, ", "`Var[$__, ",
    "]`", "`Say(", ")`", '"', "'", '"""', "\\", "$x", "$x = ", "[", "]", "(", ")", "{", "}", ",", ":", ".", "1", "-", "not ",
    '`Var[$x, {1: "\ud800", None: 9999999999999999999999}]`', "`Return[", '`Trigger["Main:T1:CND"]`', "`Artifact[$a, ", "`SaveArtifact(", "it's", "f'", "==", "é", "\ud800", "\x00", "\r",
)  # fmt: skip
texts = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))

LISTING = Listing.of_rows(
    "Main",
    [
        ("01", "QUE", "Say(user, Hello $x:int)"),
        ("02", "CND", "While $x < 3"),
        ("02.01", "CND", "If $x"),
        ("02.01.01", "EXE", "$x = $x + 1"),
        ("02.02", "CND", "Otherwise"),
        ("02.02.01", "YLD", "for user"),
        ("02.03", "JMP", "02"),
        ("03", "RET", "$x"),
    ],
)
STATE = State(
    variables={"x": 1},
    artifacts={"a": False},
    playbooks={"Main": Signature()},
    triggers={"Main:T1": KnownTrigger("CND", "When $x > 1")},
)


def items_of(chunks: list[str]) -> tuple[list[ReplyItem], int | None]:
    reader = ReplyReader()
    items = [item for chunk in chunks for item in reader.feed(chunk)]
    return items + reader.finish(), reader.after


@given(texts)
@settings(max_examples=many(150, 600), deadline=None)
def test_any_text_is_parsed_or_refused_with_a_position(text: str) -> None:
    found = read(text)
    if isinstance(found, ReplyError):
        lines = text[: found.position].split("\n")
        assert (found.line, found.column) == (len(lines), len(lines[-1]) + 1)
        assert 0 <= found.position <= len(text)
    else:
        assert found.terminator is not None
        assert not any(isinstance(item, Defect) for item in found.items)
        assert sum(len(group.actions) for group in found.groups) <= len(found.items)


def read(text: str) -> Reply | ReplyError:
    try:
        return parse_reply(text)
    except ReplyError as error:
        return error


@given(texts, st.data())
@settings(max_examples=many(150, 600), deadline=None)
def test_the_items_do_not_depend_on_how_the_text_is_split(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    whole = items_of([text])
    assert items_of(pieces) == whole
    assert items_of(list(text)) == whole


@given(texts, st.sampled_from(["", "01", "02.01", "02.02.01", "99"]), st.booleans())
@settings(max_examples=many(150, 600), deadline=None)
def test_every_text_has_verdicts(text: str, line: str, done: bool) -> None:
    position = Position(line, "done" if done else "arrived")
    result = verify_reply(LISTING, position, STATE, text)
    assert result.ok == (result.terminator is not None)
    assert sum(verdict.policy == "R" for verdict in result.verdicts) <= 1
    if not result.ok:
        assert result.verdicts[-1].policy == "R"
        for one in result.verdicts[-1].legal:
            again = verify_reply(LISTING, result.position, STATE, f'`Step["Main:{one.number}:{one.code}"]` yld call')
            assert "C4:R" not in again.rules


# --- work ---------------------------------------------------------------------------------------------------

UNITS = (
    *(piece for piece in PIECES if piece.strip()),
    "`a(", "`$x:y[", "`a", "a.", "((", "-", "not ", "1+", "'a", '`Say("', "`Var[$x, [", "$x.a", "`a`", "$x = `", "`Say('''", "a'b",
    "`Step[a      ", '`Say("a" ', "`Var[$x, a ", "yld for user\n", '`Step["Main:01:QUE"]` `Var[$x, [1, 2]]`\ntrig? no\n', "is not in ",
)  # fmt: skip


def work(function: Callable[[], Any]) -> int:
    """How many lines of the dialect's code run in a call."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "dialects/program" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("before", ["", "`Var[$x, ", '`Say("user", '])
@pytest.mark.parametrize("unit", UNITS)
def test_reading_takes_linear_work(unit: str, before: str) -> None:
    short, long = (before + unit * times for times in (20, 80))
    assert work(lambda: items_of([long])) <= 4.4 * work(lambda: items_of([short])) + 200
    assert work(lambda: items_of(list(long))) <= 4.4 * work(lambda: items_of(list(short))) + 200


@pytest.mark.parametrize("before", ["", "`Var[$x, ", '`Say("user", '])
def test_a_long_text_is_parsed_in_linear_time(before: str) -> None:
    """Work inside regular expressions is not counted: if it were more than linear, this would not finish."""
    for unit in UNITS:
        items_of([before + unit * (50_000 // len(unit))])


def test_a_listing_with_a_long_number_is_built_with_linear_work() -> None:
    def built(times: int) -> int:
        rows = [("01", "EXE", "a"), (".".join(["01"] * times), "EXE", "b")]
        return work(lambda: Listing.of_rows("Main", rows))

    assert built(800) <= 4.4 * built(200)
    Listing.of_rows("Main", [("01", "EXE", "a"), (".".join(["01"] * 200_000), "EXE", "b")])


@pytest.mark.parametrize(
    ("number", "code"), [("{:04}", "TNK"), ("01", "CND"), ("01", "TNK")], ids=["numbers", "one condition", "one number"]
)
def test_a_long_reply_to_a_long_listing_is_verified_with_linear_work(number: str, code: str) -> None:
    def verified(times: int) -> int:
        numbers = [number.format(one) for one in range(1, times + 1)]
        made = Listing.of_rows("Main", [(one, code, "Think") for one in numbers])
        steps = "".join(f'`Step["Main:{one}:{code}"]` so\ntrig? no\n' for one in numbers[:90])
        return work(lambda: verify_reply(made, Position(""), None, f"{steps}yld call"))

    verified(10)
    assert verified(6400) <= 2 * verified(1600)


def test_a_step_per_line_takes_linear_work() -> None:
    def verified(times: int) -> int:
        numbers = [f"{one:04}" for one in range(1, times + 1)]
        made = Listing.of_rows("Main", [(one, "TNK", "Think") for one in numbers])
        steps = "".join(f'`Step["Main:{one}:TNK"]` so\ntrig? no\n' for one in numbers)
        return work(lambda: verify_reply(made, Position(""), None, f"{steps}yld call"))

    assert verified(800) <= 4.4 * verified(200)


def test_a_long_listing_is_built_with_linear_work() -> None:
    def built(times: int) -> int:
        rows = [row for n in range(times) for row in _loop(n)]
        return work(lambda: Listing.of_rows("Main", rows))

    assert built(160) <= 4.4 * built(40)


def _loop(number: int) -> list[tuple[str, str, str]]:
    top = f"{number:04}"
    return [
        (top, "CND", "While it is so"),
        (f"{top}.01", "CND", "If yes"),
        (f"{top}.01.01", "QUE", "Say(user, Yes)"),
        (f"{top}.02", "CND", "Otherwise"),
        (f"{top}.02.01", "YLD", "for user"),
        (f"{top}.03", "JMP", top),
    ]

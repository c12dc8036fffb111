"""Conditions: how they are parsed, refused at load, and evaluated. The matrix is Lobster's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.pipeline.model import ArgRef, Condition, Constant, Operation, StepRef
from cuebook.dialects.pipeline.parse import read
from cuebook.dialects.pipeline.parse.conditions import LONGEST, MOST_OPERATORS
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import Result
from cuebook.kernel.context import Text
from tests.dialects.pipeline.samples import pipeline, problem, problems

ARGS = {"count": {"default": 3}, "name": {"default": "tea"}, "token": {"secret": True}}


def document(condition: Any) -> str:
    steps = [
        {"id": "data", "command": "cli x"},
        {"id": "it", "command": "cli x", "condition": condition},
        {"id": "later", "command": "cli x"},
    ]
    return json.dumps({"name": "A", "args": ARGS, "steps": steps}, indent=1)


def parsed(text: Any) -> Condition:
    found = pipeline(document(text)).steps[1].condition
    assert found is not None
    return found


def holds(text: Any, data: Any = None, **args: Any) -> bool:
    made = pipeline(document(text))
    scope = Scope(made, {"count": 3, "name": "tea", **args})
    scope.results["data"] = Result(Text(json.dumps(data)))
    return scope.holds(made.steps[1].condition)


DATA = StepRef("data", ("json",))
LONG = 1234567890123456789


def test_long_whole_numbers_are_compared_digit_by_digit() -> None:
    assert holds(f"$data.json == {LONG} && !($data.json != {LONG})", LONG)
    assert not holds(f"$data.json == {LONG + 1}", LONG)
    assert holds(f"$data.json < {LONG + 1}", LONG)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("true", Constant(True)),
        ("null", Constant(None)),
        ("-1.5", Constant(-1.5)),
        ("12", Constant(12)),
        ("-1234567890123456789012", Constant(-1234567890123456789012)),
        ("1e3", Constant(1000.0)),
        ("'it\\'s'", Constant("it's")),
        ('"a \\\\ b"', Constant("a \\ b")),
        ("$data.json", DATA),
        ("${data.json}", DATA),
        ("${count}", ArgRef("count")),
        ("!$data.json", Operation("!", (DATA,))),
        ("!!$data.json", Operation("!", (Operation("!", (DATA,)),))),
        ("$data.json == ok", Operation("==", (DATA, Constant("ok")))),
        ("!$data.json == true", Operation("==", (Operation("!", (DATA,)), Constant(True)))),
        ("(((1)))", Constant(1)),
        (
            "1 || 2 && 3",
            Operation("||", (Constant(1), Operation("&&", (Constant(2), Constant(3))))),
        ),
        (
            "(1 || 2) && 3",
            Operation("&&", (Operation("||", (Constant(1), Constant(2))), Constant(3))),
        ),
        ("1 && 2 && 3", Operation("&&", (Operation("&&", (Constant(1), Constant(2))), Constant(3)))),
        ("$data.json.a<=2", Operation("<=", (StepRef("data", ("json", "a")), Constant(2)))),
    ],
)
def test_how_a_condition_is_parsed(text: str, made: Condition) -> None:
    assert parsed(text) == made


def test_a_boolean_needs_no_quotes() -> None:
    assert parsed(True) == Constant(True)
    assert parsed(False) == Constant(False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("approved", "'approved' is neither a reference nor a string"),
        ("tea == 'tea'", "'tea' is neither a reference nor a string"),
        ("!approved", "'approved' is neither a reference nor a string"),
        ("1 < 2 < 3", "unexpected '<'"),
        ("1 2", "unexpected '2'"),
        ("(1", "')' is missing"),
        ("1)", "unexpected ')'"),
        ("()", "unexpected ')'"),
        ("1 &&", "it is incomplete"),
        ("&& 1", "unexpected '&&'"),
        ("1 & 2", "unexpected '& 2'"),
        ("1 = 2", "unexpected '= 2'"),
        ("'never ends", "unexpected "),
        ("$data", "unexpected "),
        ("1 + 2", "unexpected "),
        ("1abc", "unexpected "),
        ("__import__('os')", "there is no function '__import__'"),
        ("1" + "0" * 400, "is too large"),
        ("!" * (MOST_OPERATORS + 1) + "1", "more than 100 operators"),
        ("(" * (MOST_OPERATORS + 1) + "1" + ")" * (MOST_OPERATORS + 1), "more than 100 operators"),
        (" && ".join(["1"] * (MOST_OPERATORS + 2)), "more than 100 operators"),
        ("1" + " " * LONGEST + "&& 1", "more than 10,000 characters"),
    ],
)
def test_an_invalid_condition_is_refused_at_load(text: str, said: str) -> None:
    found = problem(document(text))
    assert found.code == "BAD_CONDITION"
    assert said in found.message
    line = next(number for number, one in enumerate(document(text).split("\n"), 1) if '"condition"' in one)
    assert found.line == line


@pytest.mark.parametrize("text", ["$nobody.json", "!$nobody.skipped", "true || $nobody.json", "${nobody.json} == 1"])
def test_an_unknown_step_is_an_error_anywhere_in_a_condition(text: str) -> None:
    assert problem(document(text)).code == "UNKNOWN_REFERENCE"


def test_a_later_step_and_the_step_itself_are_errors() -> None:
    assert [one.code for one in problems(document("$later.json && $it.json"))] == [
        "FORWARD_REFERENCE",
        "CIRCULAR_REFERENCE",
    ]


def test_a_condition_must_be_a_string() -> None:
    assert problem(document(3)).code == "SCHEMA"
    assert problem(document("")).code == "SCHEMA"
    assert problem(document(" ")).code == "SCHEMA"


@pytest.mark.parametrize(
    ("text", "data", "wanted"),
    [
        ("$data.json.count > 3", {"count": 5}, True),
        ("$data.json.count > 3", {"count": 1}, False),
        ("$data.json.val < 10", {"val": 2}, True),
        ("$data.json.val >= 5", {"val": 5}, True),
        ("$data.json.val <= 5", {"val": 5}, True),
        ("$data.json.val > 5", {"val": 5}, False),
        ("$data.json.a >= 1 && $data.json.b < 100", {"a": 5, "b": 20}, True),
        ("$data.json.a >= 9 || $data.json.b < 100", {"a": 5, "b": 20}, True),
        ("$data.json.val > 3", {"val": "hello"}, False),
        ("$data.json.val < 3", {"val": "hello"}, False),
        ("$data.json.val > 3", {"val": "5"}, True),
        ("$data.json.val > 3", {"val": " 5.5 "}, True),
        ("$data.json.val > 3", {"val": "1_0"}, False),
        ("$data.json.val > 3", {"val": ""}, False),
        ("$data.json.val > 3", {"val": "+5."}, True),
        ("$data.json.val < 3", {"val": ".5e0"}, True),
        ("$data.json.val > 1", {"val": "inf"}, False),
        ("$data.json.val > 1", {"val": "1e999"}, False),
        ("$data.json.val > 1", {"val": "Infinity"}, False),
        ("$data.json.val > 0", {"val": "\u0661"}, False),
        ("$data.json.val > 1", {"val": "9" * 5_000}, False),
        ("$data.json.val > 9007199254740992", {"val": 9007199254740993}, True),
        ("$data.json.val > 9007199254740992", {"val": "9007199254740993"}, True),
        ("$data.json.val <= '9007199254740992'", {"val": 9007199254740993}, False),
        ("$data.json.val < 1.5", {"val": 1}, True),
        ("$data.json.val > 0", {"val": True}, False),
        ("$data.json.val >= 0", {"val": None}, False),
        ("$data.json.val >= 0", {"val": []}, False),
        ("$data.json.status == 'ok'", {"status": "ok"}, True),
        ("$data.json.status == ok", {"status": "ok"}, True),
        ("$data.json.status != ok", {"status": "ok"}, False),
        ("$data.json.n == '1'", {"n": 1}, False),
        ("$data.json.n == 1", {"n": 1.0}, True),
        ("$data.json.n == 1", {"n": True}, False),
        ("$data.json.n == true", {"n": True}, True),
        ("$data.json.n == null", {"n": None}, True),
        ("$data.json.missing == null", {}, True),
        ("$data.json.a == $data.json.b", {"a": {"x": [1, {"y": 2}]}, "b": {"x": [1, {"y": 2}]}}, True),
        ("$data.json.a == $data.json.b", {"a": {"x": [1]}, "b": {"x": [True]}}, False),
        ("$data.json.a == $data.json.b", {"a": [], "b": {}}, False),
        ("$data.json.0 == 7", [7, 8], True),
        ("$data.json.a", {"a": 0}, False),
        ("$data.json.a", {"a": ""}, False),
        ("$data.json.a", {"a": "false"}, True),
        ("$data.json.a", {"a": []}, True),
        ("$data.json.a", {"a": {}}, True),
        ("!$data.json.a", {"a": None}, True),
        ("!$data.json.a == true", {"a": False}, True),
        ("!($data.json.a && $data.json.b)", {"a": 1, "b": 0}, True),
        ("true", None, True),
        ("false || !false", None, True),
        ("${count} == 3 && ${name} == tea", None, True),
        ("${count} > 5", None, False),
    ],
)
def test_how_a_condition_is_evaluated(text: str, data: Any, wanted: bool) -> None:
    assert holds(text, data) is wanted


@given(st.text("$data.json{}()!&|=<>'\"\\ 019truefalsenull", max_size=60))
def test_any_text_is_a_condition_or_is_refused_with_a_reason(text: str) -> None:
    found = read(document(text), "a.json")
    if found.pipeline is None:
        assert all(one.message and one.line for one in found.errors)
        return
    condition = found.pipeline.steps[1].condition
    scope = Scope(found.pipeline, {"count": 3, "name": "tea"})
    scope.results["data"] = Result(Text('{"a": 1}'))
    assert scope.holds(condition) in (True, False)

"""Paths into results, and conditions on the values there."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.model import Match
from cuebook.dialects.graph.paths import as_json, find, holds, missing, same, unmatched

DATA: dict[str, Any] = {
    "a": {"b": 1, "none": None, "list": [{"x": 1}, {"x": None}, {"y": 2}, 3]},
    "empty": [],
    "rows": [{"cells": [{"v": 1}, {"v": 2}]}, {"cells": [{"v": 3}]}],
    "text": "abc",
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.b", (1,)),
        ("all:a.b", (1,)),
        ("a.none", (None,)),
        ("rows[*].cells[*].v", (1, 2, 3)),
        ("empty[*].x", ()),
        ("any:a.list[*].x", (1, None)),
        ("any:a.list[*].nothing", ()),
    ],
)
def test_what_is_there(path: str, values: tuple[Any, ...]) -> None:
    assert find(DATA, path).values == values
    assert find(DATA, path).problem == ""


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "empty path"),
        ("any:", "empty path"),
        ("some:a", "unknown prefix 'some' (expected 'all' or 'any')"),
        ("a..b", "malformed segment ''"),
        ("a[0]", "malformed segment 'a[0]'"),
        ("kebab-case.x", "malformed segment 'kebab-case'"),
        ("a.missing", "missing segment 'missing'"),
        ("a.none.x", "null encountered before segment 'x'"),
        ("text.x", "expected object before segment 'x', got string"),
        ("a[*]", "expected array at 'a', got object"),
        ("a.none[*]", "expected array at 'none', got null"),
        ("a.list[*].x", "missing segment 'x'"),
        ("any:missing[*].x", "missing segment 'missing'"),
    ],
)
def test_what_is_not_there(path: str, problem: str) -> None:
    assert find(DATA, path).problem == problem


def test_a_path_into_results_may_begin_with_a_kebab() -> None:
    assert find({"first-look": {"x": 1}}, "first-look.x", of_nodes=True).values == (1,)
    assert find({"a": {"b-c": 1}}, "a.b-c", of_nodes=True).problem == "malformed segment 'b-c'"


def test_required_values_must_not_be_null() -> None:
    assert missing(["a.b", "empty[*].x", "any:a.list[*].x"], DATA) == ""
    assert missing(["a.none", "any:empty[*]"], DATA) == (
        "output_required: 'a.none' is null; 'any:empty[*]' (any:) has no element that is there"
    )


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        (Match("a.b", "equals", 1.0), ""),
        (Match("a.b", "equals", True), "'a.b' equals true, got 1"),
        (Match("a.b", "in", [3, 2]), "'a.b' in [3,2], got 1"),
        (Match("text", "matches", "^b"), "'text' matches /^b/, got \"abc\""),
        (Match("text", "matches", "b"), ""),
        (Match("empty[*]", "equals", 1), ""),
        (Match("any:empty[*]", "equals", 1), "'any:empty[*]' (any:) has no element that equals 1"),
        (Match("any:rows[*].cells[*].v", "equals", 3), ""),
        (Match("rows[*].cells[*].v", "in", [1, 2]), "'rows[*].cells[*].v' in [1,2], got 3"),
    ],
)
def test_what_values_must_be(match: Match, problem: str) -> None:
    assert unmatched([match], DATA) == (f"output_matches: {problem}" if problem else "")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        (None, None, True),
        (None, False, False),
        ("1", 1, False),
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ([], {}, False),
    ],
)
def test_values_are_the_same_as_in_json(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal


def test_values_are_written_as_javascript_does() -> None:
    assert as_json({"n": 5.0, "m": 0.5, "t": True, "z": None, "l": [1.0, "a"]}) == (
        '{"n":5,"m":0.5,"t":true,"z":null,"l":[1,"a"]}'
    )


def test_no_pattern_holds_the_process() -> None:
    """A backtracking engine would not return before the test's time limit."""
    assert not holds(Match("s", "matches", "^(a+)+$"), "a" * 100_000 + "!")
    assert holds(Match("s", "matches", "^(a+)+$"), "a" * 100_000)

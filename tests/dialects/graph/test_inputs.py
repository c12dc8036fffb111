"""The inputs contract: types are kept, defaults are filled in, and all problems are reported together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.graph import GRAPH
from cuebook.dialects.graph.inputs import taken, typed, typed_value
from cuebook.kernel.errors import BadInput
from tests.dialects.graph.samples import loaded

DECLARED = {
    "topic": {"type": "string", "required": True},
    "depth": {"type": "number", "default": 2, "enum": [1, 2, 3.5]},
    "loud": {"type": "boolean"},
    "labels": {"type": "string[]", "enum": [["a", "b"], ["c"]]},
    "tone": {"type": "string", "enum": ["dry", "warm"]},
}
BOOK = loaded(("inputs", DECLARED))
OPEN = loaded()


def accepted(**given: Any) -> dict[str, Any]:
    return GRAPH.accept(BOOK, {"topic": "tea", **given})


def refused(**given: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        GRAPH.accept(BOOK, given)
    return caught.value


def test_given_values_win_and_defaults_fill_the_rest() -> None:
    assert accepted() == {"topic": "tea", "depth": 2}
    assert accepted(depth=1, loud=False, labels=["c"], tone="dry") == {
        "topic": "tea", "depth": 1, "loud": False, "labels": ["c"], "tone": "dry",
    }  # fmt: skip


def test_null_counts_as_absent() -> None:
    assert accepted(depth=None, loud=None) == {"topic": "tea", "depth": 2}
    assert "Missing input: topic (string)." in str(refused(topic=None))


def test_an_empty_string_is_a_string() -> None:
    assert accepted(topic="")["topic"] == ""


def test_undeclared_inputs_pass_through_unchanged() -> None:
    extra = {"rules": ["Be short."], "dryRun": True, "nothing": None, "deep": {"a": [1, {"b": None}]}}
    assert accepted(**extra) == {"topic": "tea", "depth": 2, **extra}


def test_a_workflow_that_declares_nothing_accepts_anything() -> None:
    assert GRAPH.accept(OPEN, {"a": [1], "b": None}) == {"a": [1], "b": None}
    assert GRAPH.accept(OPEN, {}) == {}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("topic", 5, "topic must be a text, not 5"),
        ("topic", ["a"], 'topic must be a text, not ["a"]'),
        ("depth", "2", 'depth must be a number, not "2"'),
        ("depth", True, "depth must be a number, not true"),
        ("depth", 4, "depth must be one of 1, 2, 3.5, not 4"),
        ("loud", "true", 'loud must be true or false, not "true"'),
        ("loud", 1, "loud must be true or false, not 1"),
        ("labels", "a", 'labels must be a list of strings, not "a"'),
        ("labels", ["a", 1], 'labels must be a list of strings, not ["a", 1]'),
        ("labels", ["b", "a"], 'labels must be one of ["a", "b"], ["c"], not ["b", "a"]'),
        ("tone", "Dry", 'tone must be one of "dry", "warm", not "Dry"'),
        ("tone", "x" * 100, f'not "{"x" * 39}…'),
        ("depth", float("nan"), "depth cannot be represented in JSON"),
        ("depth", float("inf"), "depth cannot be represented in JSON"),
        ("other", float("-inf"), "other cannot be represented in JSON"),
        ("other", {"a": [float("nan")]}, "other cannot be represented in JSON"),
        ("other", {1: 2}, "other cannot be represented in JSON"),
        ("other", b"a", "other cannot be represented in JSON"),
        ("other", 10**400, "other cannot be represented in JSON"),
        ("topic", "\ud800", "topic cannot be represented in JSON"),
        ("other", {"\ud800": 1}, "other cannot be represented in JSON"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_refused_by_name(name: str, value: Any, says: str) -> None:
    assert says in str(refused(**{"topic": "tea", name: value}))


def test_equal_numbers_are_equal_and_true_is_not_a_number() -> None:
    assert accepted(depth=1.0)["depth"] == 1.0
    assert accepted(depth=3.5)["depth"] == 3.5
    book = loaded(("inputs", {"a": {"type": "boolean", "enum": [True]}}))
    with pytest.raises(BadInput, match="must be one of true, not false"):
        GRAPH.accept(book, {"a": False})


def test_all_problems_are_reported_together() -> None:
    error = refused(depth="deep", loud=3, tone="wet")
    assert error.message == (
        'Missing input: topic (string). Invalid inputs: depth must be a number, not "deep"; '
        'loud must be true or false, not 3; tone must be one of "dry", "warm", not "wet".'
    )
    assert error.fix == "Pass --topic VALUE."


def test_a_misspelt_required_name_is_pointed_out() -> None:
    assert refused(topci="tea").fix == "'topci' is not declared. Did you mean 'topic'?"


def test_infinitely_nested_values_are_refused() -> None:
    deep: list[Any] = []
    deep.append(deep)
    assert "other cannot be represented in JSON" in str(refused(topic="a", other=deep))


def test_a_tuple_is_a_list() -> None:
    assert accepted(labels=("a", "b"))["labels"] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("topic", "5", "5"),
        ("depth", "2", 2),
        ("depth", "3.5", 3.5),
        ("depth", "two", "two"),
        ("depth", "true", "true"),
        ("depth", "NaN", "NaN"),
        ("loud", "true", True),
        ("loud", "yes", "yes"),
        ("labels", "a, b", ["a", "b"]),
        ("labels", '["a, b"]', ["a, b"]),
        ("labels", "[1]", "[1]"),
        ("labels", "", []),
    ],
)
def test_a_value_written_as_text_is_read_as_its_type(name: str, text: str, value: Any) -> None:
    declared = {one.name: one for one in BOOK.declared or ()}
    assert typed(declared[name], text) == value


@given(st.dictionaries(st.sampled_from([*DECLARED, "x"]) | st.text(max_size=3), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
)))  # fmt: skip
def test_anything_is_accepted_or_refused(given: dict[str, Any]) -> None:
    import msgspec

    try:
        accepted = GRAPH.accept(BOOK, given)
    except BadInput:
        return
    assert msgspec.json.decode(msgspec.json.encode(accepted)) == accepted


def test_only_true_requests_a_dry_run() -> None:
    workflow = loaded()
    assert typed_value(workflow, "dryRun", "True") is True
    assert typed_value(workflow, "dryRun", "false") is False
    with pytest.raises(BadInput, match="dryRun must be true or false"):
        typed_value(workflow, "dryRun", "yes")


def test_undeclared_inputs_are_accepted_unless_they_look_misspelt() -> None:
    workflow = loaded(("inputs", {"message": {"type": "string"}}))
    assert [taken(workflow, name) for name in ("message", "other", "dryRun", "mesage")] == [True, True, True, False]

"""Values as replies write them: how they are parsed and evaluated."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.dialects.program.values.evaluate import (
    DoesNotCoerce,
    NotComputable,
    coerced,
    condition_of,
    evaluate,
    type_name,
)
from cuebook.dialects.program.values.expressions import ExpressionError, Words, call_of, expression_of, refs_of
from tests.support.sampling import many

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=many(100, 400), deadline=None)
def test_a_python_literal_evaluates_to_itself(value: Any) -> None:
    assert evaluate(expression_of(repr(value)), {}) == value


@given(st.text())
@settings(max_examples=many(100, 400), deadline=None)
def test_a_text_is_an_expression_or_its_own_error(text: str) -> None:
    at = 0
    try:
        list(refs_of(expression_of(text)))
    except ExpressionError as error:
        at = error.at
    assert 0 <= at <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 - 4 / 2", "2 ** 3 ** 2", "-2 ** 2", "7 // 2 % 3", "1 < 2 < 3", "3 > 2 > 2", "not 1 == 2 and 3 in [3]",
        "'a' + 'b' * 2", "[1, 2, 3][1:]", "[1, 2, 3][-1]", "{'a': {'b': 5}}['a']['b']", "{1: 2}[1]", "1 if 0 else 2", "'x' not in 'abc'",
        "len('abc') + max(1, 2)", "None is None", "(1, 2)[0]", "'a' 'b'", "r'\\n'", "'\\u00e9\\x41\\101'", "'''it's'''",
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_python(text: str) -> None:
    expected = eval(compile(ast.parse(text, mode="eval"), "", "eval"))
    found = evaluate(expression_of(text), {})
    assert found == (list(expected) if isinstance(expected, tuple) else expected)


def test_references_are_resolved_and_a_dollar_in_a_string_is_none() -> None:
    expression = expression_of('$order.items[$n]["price"] * 2 if $n >= 0 else "$none"')
    assert list(refs_of(expression)) == ["n", "order", "n"]
    assert evaluate(expression, {"n": 1, "order": {"items": [{}, {"price": 4}]}}) == 8


def test_the_keys_of_a_table_are_strings_as_in_json() -> None:
    table = evaluate(expression_of('{1: "a", "b": 2, null: 3}'), {})
    assert table == {"1": "a", "b": 2, "null": 3}
    assert evaluate(expression_of("$t[1]"), {"t": table}) == "a"


@pytest.mark.parametrize("text", ["true", "false", "null"])
def test_json_constants_are_known(text: str) -> None:
    assert evaluate(expression_of(text), {}) is {"true": True, "false": False, "null": None}[text]


@pytest.mark.parametrize("text", ["valid", "an unusual fact, isn't it", "Bob Smith (junior)"])
def test_words_without_quotes_are_text(text: str) -> None:
    assert expression_of(text) == Words(text)


@pytest.mark.parametrize(
    "text",
    ["", "3 +", "$x + ", "[1, 2", '"open', "2024-01-05", "$a $b", "f(1, x=1, 2)", "1e999", "lambda: 3 [", "f'{x}'"],
)
def test_an_invalid_value_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        expression_of(text)


@pytest.mark.parametrize("text", ["(" * 100, "-" * 100 + "1", "$x" + ".a" * 300, "1" + "+1" * 300, "9" * 400])
def test_a_value_has_bounds(text: str) -> None:
    with pytest.raises(ExpressionError):
        expression_of(text)


@pytest.mark.parametrize(
    "text",
    ["9 ** 9 ** 9", "'a' * 10000000", "[0] * 1000 * 1000 * 1000", "1 / 0", "$missing", "open('x')", "'%s' % 3", "[1][5]", "1 + 'a'"],
)  # fmt: skip
def test_values_that_must_not_be_computed_are_left_alone(text: str) -> None:
    with pytest.raises(NotComputable):
        evaluate(expression_of(text), {})


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("[[[[0] * 200] * 200] * 200] * 3", 0),
        ("[$x, $x]", [["a" * 1_000_000] * 3]),
        ('{"a": [$x] * 3}', ["a" * 1_000_000] * 2),
        ("str([$x] * 1000)", [0] * 100_000),
    ],
)
def test_a_value_larger_than_it_looks_is_not_computed(text: str, x: Any) -> None:
    with pytest.raises(NotComputable):
        evaluate(expression_of(text), {"x": x})


def test_a_deeply_nested_list_is_refused() -> None:
    deep: Any = []
    for _ in range(50):
        deep = evaluate(expression_of("[$x]"), {"x": deep})
    with pytest.raises(NotComputable):
        evaluate(expression_of(f"{'[' * 55}$x{']' * 55}"), {"x": deep})


def test_a_long_list_is_computed() -> None:
    assert len(evaluate(expression_of("$x + [['a', {'b': 1}]]"), {"x": [[1, "b"]] * 10_000})) == 10_001


def test_a_call_has_its_arguments_by_place_and_by_name() -> None:
    call = call_of('Desk.Book($date, seat="3A", $row=[1])')
    assert call.name == "Desk.Book"
    assert len(call.args) == 1
    assert [name for name, _ in call.named] == ["seat", "row"]


@pytest.mark.parametrize(
    ("text", "variables", "holds"),
    [
        ("When $x > 15", {"x": 20}, True),
        ("If $x.total <= 3 and not $done", {"x": {"total": 3}, "done": False}, True),
        ("When $x becomes > 15.", {"x": 3}, False),
        ("$name == 'Bob'", {"name": "Bob"}, True),
    ],
)
def test_a_condition_on_variables_is_computed(text: str, variables: dict[str, Any], holds: bool) -> None:
    condition = condition_of(text)
    assert condition is not None
    assert evaluate(condition, variables) is holds


@pytest.mark.parametrize(
    "text", ["When the user is rude", "When $x is too big", "If so", "When $x > limit", "", "$x > Rate(3)"]
)
def test_a_condition_that_must_be_judged_is_left_to_a_model(text: str) -> None:
    assert condition_of(text) is None


@pytest.mark.parametrize(
    ("value", "type", "made", "changed"),
    [
        ("3", "int", 3, True), (3.0, "int", 3, True), (3, "float", 3, False), ("2.5", "number", 2.5, True),
        (3, "str", "3", True), (True, "string", "true", True), ("TRUE", "bool", True, True), (0, "bool", False, True),
        ('["a"]', "List[str]", ["a"], True), ({}, "dict", {}, False), (None, "int", None, False), ("x", "Order", "x", False),
        ("4.0", "int", 4, True), ("5", "Optional[int]", 5, True), (5, "int | None", 5, False),
    ],
)  # fmt: skip
def test_a_value_is_converted_to_its_type(value: Any, type: str, made: Any, changed: bool) -> None:
    found = coerced(value, type)
    assert (found.value, found.changed, found.value.__class__) == (made, changed, made.__class__)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("many", "int"),
        (2.5, "int"),
        (True, "int"),
        ("x", "float"),
        ("perhaps", "bool"),
        ("a", "list"),
        ([], "dict"),
        ({}, "float"),
    ],
)
def test_a_value_that_cannot_be_converted_is_refused(value: Any, type: str) -> None:
    with pytest.raises(DoesNotCoerce):
        coerced(value, type)


def test_types_have_several_names() -> None:
    assert [type_name(one) for one in ("Integer", "dict[str, int]", "tuple", "Artifact", "Seat")] == [
        "int", "dict", "list", "artifact", "",
    ]  # fmt: skip

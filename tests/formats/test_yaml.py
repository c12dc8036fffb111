"""YAML 1.2 and JSON: values, their lines, and protection against harmful input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.formats.builder import Limits
from cuebook.formats.json import read_json
from cuebook.formats.values import Malformed, Value, shown
from cuebook.formats.yaml import read_yaml

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from([
    "a: ", "- ", "\n", "  ", "\n  ", "b", ": ", "{", "}", "[", "]", ",", "'", '"', "&x ", "*x", "!!int ", "!y ", "|\n",
    ">-\n", "---\n", "...\n", "%YAML 1.1\n", "# c\n", "? ", "<<: *x\n", "1", "0x", "~", "\t", "\u2028", "\ufeff", "\0",
    "\x85", "é", "\\ud800",
])  # fmt: skip
JSON_PIECES = st.sampled_from(
    ["{", "}", "[", "]", ",", ":", '"a"', '"b', "1", "-", "0", ".5", "e9", "true", "null", "nul", " ", "\n", "\\", "NaN", '"\\ud800"']
)  # fmt: skip


def refused(text: str, *, is_json: bool = False, limits: Limits | None = None) -> Malformed:
    with pytest.raises(Malformed) as caught:
        (read_json if is_json else read_yaml)(text, *([limits] if limits else []))
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("on", "on"), ("True", True), ("false", False), ("tRue", "tRue"),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("-0x1F", "-0x1F"), ("0b1", "0b1"), ("+12", 12), ("-12", -12),
        ("1_000", "1_000"), ("12:30:00", "12:30:00"), ("2026-01-01", "2026-01-01"),
        ("1e3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-.5e-1", -0.05), (".", "."), ("1e", "1e"), ("٣", "٣"),
        ("~", None), ("", None), ("Null", None), ("nULL", "nULL"), ("=", "="), ("<<", "<<"),
        ("!!str 5", "5"), ("!!int '5'", 5), ("! 5", "5"), ("'5'", "5"), ('"\\u00e9"', "é"), ("!!float 5", 5.0),
        (str(2**64), 2**64), (str(2**63 - 1), 2**63 - 1),
    ],
)  # fmt: skip
def test_a_scalar_is_what_the_core_schema_says(text: str, value: Any) -> None:
    found = read_yaml(f"a: {text}\n").plain["a"]
    assert (found, type(found)) == (value, type(value))


def test_infinity_and_nan_are_floats() -> None:
    assert read_yaml("[.inf, -.INF]").plain == [float("inf"), float("-inf")]
    assert str(read_yaml(".NaN").plain) == "nan"


def test_values_and_names_know_their_lines() -> None:
    for root in (
        read_yaml("\ufeff# c\na: 1\nb:\n  - x\n  -\n    c: y\n"),
        read_json('\n{"a": 1,\n"b": ["x",\n\n{"c": "y"}]}'),
    ):
        assert root.line == 2
        assert root.lines == {"a": 2, "b": 3}
    root = read_yaml("a: 1\nb:\n  - x\n  -\n    c: y\n")
    assert [one.line for one in root.fields["b"].items] == [3, 5]
    assert root.fields["b"].items[1].lines == {"c": 5}


def test_a_merge_key_is_a_name_like_any_other() -> None:
    assert read_yaml("a: &x {b: 1}\nc: {<<: *x}\n").plain == {"a": {"b": 1}, "c": {"<<": {"b": 1}}}


def test_a_name_is_what_was_written() -> None:
    assert read_yaml("1: a\ntrue: b\n~: c\n").plain == {"1": "a", "true": "b", "~": "c"}


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "--- \n..."])
def test_nothing_is_null(text: str) -> None:
    assert read_yaml(text).plain is None


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is defined twice. Remove one of them; the first is on line 1."),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: !date 2020\n", 1, "unknown tag '!date'"),
        ("a: !!python/object:os.system {}\n", 1, "unknown tag"),
        ("a: !!int x\n", 1, "'x' is not a valid int"),
        ("a: !!seq {}\n", 1, "unknown tag"),
        ("? [a]\n: b\n", 1, "a name must be a string"),
        ("? &x [a]\n: b\n", 1, "a name must be a string"),
        ("a: [1]\nb: {*x : 1}\n", 2, "unknown alias '*x'"),
        ("x: &x [a]\n? *x\n: b\n", 1, "a name must be a string"),
        ("a: &x [*x]\n", 1, "circular alias '*x'"),
        ("a: 1\nb: *x\n", 2, "unknown alias '*x'"),
        ("a: b: c\n", 1, "invalid YAML: mapping values are not allowed here"),
        ("a: [1\n", 2, "invalid YAML"),
        ("a:\n\tb: 1\n", 2, "a tab where YAML allows only spaces. Use spaces instead of the tab."),
        ("a:\n  - x\n \t- y\n", 3, "a tab where YAML allows only spaces."),
        ("a: 1\nb: \x01\n", 2, "invalid YAML: special characters are not allowed"),
        ("a: 1\nb: \ud800\n", 2, "this is not valid text"),
        ('a: 1\nb: "\\ud800"\n', 2, "half of a surrogate pair is missing"),
        (f"a: {'1' * 400}\n", 1, "this number has 400 characters"),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, line: int, says: str) -> None:
    error = refused(text)
    assert says in f"{error.message}. {error.fix}"
    assert error.line == line
    assert error.fix


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "a value is missing"),
        ('{"a": 1,\n"a": 2}', 2, "'a' is defined twice"),
        ('{"a": 1,\n}', 2, "expected a name in double quotes"),
        ("[1,\n]", 2, "invalid value"),
        ("[1 2]", 1, "',' is missing"),
        ('{"a" 1}', 1, "':' is missing"),
        ("[NaN]", 1, "invalid value"),
        ("[Infinity]", 1, "invalid value"),
        ("[01]", 1, "invalid value"),
        ("[1.]", 1, "invalid value"),
        ("[+1]", 1, "invalid value"),
        ("{}\n{}", 2, "there is more text after the value"),
        ('["a\nb"]', 1, "invalid control character"),
        ('["a', 1, "unterminated string"),
        ('["\\x"]', 1, "invalid \\escape"),
        ('["\\ud800"]', 1, "half of a surrogate pair is missing"),
        ("{'a': 1}", 1, "expected a name in double quotes"),
        ("[1] # c", 1, "there is more text after the value"),
    ],
)
def test_json_is_read_strictly(text: str, line: int, says: str) -> None:
    error = refused(text, is_json=True)
    assert says in str(error)
    assert error.line == line


def test_a_few_references_cannot_expand_without_limit() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n"
    assert "this is nested too deeply or has too many values" in str(refused(bomb))


@pytest.mark.parametrize(("opens", "is_json"), [("[", False), ("[", True), ('{"a":', True), ("{a: ", False)])
def test_deep_nesting_is_refused(opens: str, is_json: bool) -> None:
    assert "this is nested too deeply or has too many values" in str(refused(opens * 100_000, is_json=is_json))


def test_limits_are_the_callers() -> None:
    assert read_yaml("[[1]]", Limits(depth=2)).plain == [[1]]
    assert "too many values" in str(refused("[[1]]", limits=Limits(depth=1)))
    assert "too many values" in str(refused("[1, 2, 3]", limits=Limits(values=3)))


def test_a_value_is_shown_in_a_few_words() -> None:
    assert [shown(one) for one in read_yaml("[a, [], {}, ~, 1]").items] == [
        "'a'",
        "a list",
        "a table",
        "nothing",
        "'1'",
    ]
    assert shown(Value(1, "str", "x" * 100)) == "a string of 100 characters"


@given(PLAIN)
@example({"": {"": [{}]}})
def test_json_comes_back_as_it_was_by_either_reader(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1), json.dumps(value, ensure_ascii=False)):
        assert read_json(text).plain == value
    assert read_yaml(json.dumps(value)).plain == value


def test_only_what_ends_a_line_in_yaml_1_2_ends_one() -> None:
    root = read_yaml("a: one\u2028two\x85three\u2029 \ue000\nb: '\x85'\n")
    assert root.plain == {"a": "one\u2028two\x85three\u2029 \ue000", "b": "\x85"}
    assert root.lines == {"a": 1, "b": 2}


@given(PLAIN)
def test_yaml_comes_back_as_it_was_written(value: Any) -> None:
    assert read_yaml(block(value, 0)).plain == value


def block(value: Any, indent: int) -> str:
    """A value in block style, one entry per line."""
    space = "\n" + "  " * indent
    if isinstance(value, dict) and value:
        return "".join(f"{space}{json.dumps(name)}: {block(one, indent + 1)}" for name, one in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{space}- {block(one, indent + 1)}" for one in value)
    return json.dumps(value)


@given(st.lists(PIECES | WORDS, max_size=25).map("".join))
def test_no_text_raises_anything_else(text: str) -> None:
    for read in (read_yaml, read_json):
        line = 1
        try:
            json.dumps(read(text).plain, ensure_ascii=False).encode()
        except Malformed as error:
            line = error.line
        assert 1 <= line <= len(text) + 2


@given(st.lists(JSON_PIECES, max_size=20).map("".join))
def test_json_is_accepted_exactly_where_python_accepts_it(text: str) -> None:
    try:
        wanted: Any = json.loads(text, object_pairs_hook=_once, parse_constant=_no)
        json.dumps(wanted, ensure_ascii=False).encode()
    except ValueError:
        wanted = Malformed
    try:
        got = read_json(text).plain
    except Malformed:
        got = Malformed
    assert got == wanted


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def _no(word: str) -> None:
    raise ValueError(word)


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        ("a:\n  - b\n c: d\n", 3, "Indent the line"),
        ("a: 1\n b: 2\n", 2, "Indent the line"),
        ("a: [1, 2\nb: 3\n", 2, "Close the open bracket"),
        ("a: 'x\n", 2, "Close the open quotation mark"),
        ("a: 1\nb\nc: 2\n", 3, "Write the line before it as NAME: VALUE"),
        ("key: - a\n", 1, "Start the list on a new line."),
        ('a: "x\\q"\n', 1, "Write two backslashes for one"),
        ("a: @x\n", 1, "Put a string that contains ': ' or begins with one of"),
    ],
)
def test_the_fix_for_a_mistake_is_reported_with_its_line(text: str, line: int, fix: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_yaml(text)
    assert (caught.value.line, caught.value.fix[: len(fix)]) == (line, fix)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name:\tb\n", {"name": "b"}),
        ("name: \t 'b'\t# said\n", {"name": "b"}),
        ("-\ta\n- \tb\n", ["a", "b"]),
        ("a:\t\n  b:\t|\n    x\ty\n", {"a": {"b": "x\ty\n"}}),
        ("a: 1\n\t\n \t # said\nb: 2\t\n", {"a": 1, "b": 2}),
        ("a:\t&x b\nc\t:\t*x\n", {"a": "b", "c": "b"}),
    ],
)
def test_tabs_may_separate_the_parts_of_a_line(text: str, found: Any) -> None:
    assert read_yaml(text).plain == found


@pytest.mark.parametrize("text", ["\ta: b\n", "a:\n\tb: 1\n", "a:\n  - b\n\t- c\n", "-\t- a\n", "-\ta: 1\n"])
def test_tabs_are_not_indentation(text: str) -> None:
    with pytest.raises(Malformed):
        read_yaml(text)

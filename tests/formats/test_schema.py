"""JSON Schema: which schemas can be used, and how data mismatches are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.formats import schema as schema_module
from cuebook.formats.schema import flaws, mismatches, worst_mismatch


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}},
        {"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
        {"$anchor": "top", "items": {"$ref": "#top"}},
        {"properties": {"a": {"$ref": "#"}}},
        {"enum": [{"$ref": "https://example.com"}]},
        {"type": "string", "pattern": "^(a+)+$"},
    ],
)
def test_a_schema_that_can_be_used_has_no_flaw(schema: dict[str, Any]) -> None:
    assert flaws(schema) == []


@pytest.mark.parametrize(
    ("schema", "code", "says"),
    [
        ({"type": "text"}, "INVALID_OUTPUT_SCHEMA", "'text' is not valid under any of the given schemas at $.type"),
        ({"properties": {"a": 5}}, "INVALID_OUTPUT_SCHEMA", "at $.properties.a"),
        ({"required": "a"}, "INVALID_OUTPUT_SCHEMA", "at $.required"),
        ({"$ref": "https://example.com/a.json"}, "INVALID_OUTPUT_SCHEMA", "https://example.com/a.json"),
        ({"$ref": "other.json"}, "INVALID_OUTPUT_SCHEMA", "other.json"),
        ({"allOf": [{"$ref": "#/$defs/a"}]}, "INVALID_OUTPUT_SCHEMA", "#/$defs/a"),
        ({"items": {"pattern": "(?=a)"}}, "UNSUPPORTED_REGEX", "(?=a)"),
        ({"patternProperties": {"(": {}}}, "UNSUPPORTED_REGEX", "("),
        (
            {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
            "INVALID_OUTPUT_SCHEMA",
            "cannot be used together",
        ),
    ],
)
def test_a_flaw_has_a_code_and_a_reason(schema: dict[str, Any], code: str, says: str) -> None:
    ((found, reason),) = flaws(schema)
    assert found == code
    assert says in reason


@pytest.mark.parametrize(
    ("schema", "data", "wanted"),
    [
        ({"type": "object", "required": ["a"]}, {}, ["$: 'a' is a required property"]),
        ({"properties": {"a": {"type": "string"}}}, {"a": None}, ["$.a: None is not of type 'string'"]),
        ({"properties": {"a": {"type": "number"}}}, {"a": True}, ["$.a: True is not of type 'number'"]),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 1.0}, []),
        ({"properties": {"a": {"enum": [1]}}}, {"a": True}, ["$.a: True is not one of [1]"]),
        ({"properties": {"a": {"pattern": "^b"}}}, {"a": "ab"}, ["$.a: 'ab' does not match '^b'"]),
        ({"properties": {"a": {"pattern": r"^\d$"}}}, {"a": "٣"}, [r"$.a: '٣' does not match '^\\d$'"]),
        ({"patternProperties": {"^n_": {"type": "number"}}}, {"n_a": "x", "b": "x"}, ["$.n_a: 'x' is not of type 'number'"]),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": 2}, ["$: 'b' is not expected"]),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, {"na": 1}, []),
        ({"additionalProperties": {"type": "string"}}, {"b": 2}, ["$.b: 2 is not of type 'string'"]),
        ({"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}}, ["x", 1], ["$[1]: 1 is not of type 'string'"]),
        ({"uniqueItems": True}, [{"a": 1, "b": [2]}, 3, {"b": [2.0], "a": 1}], ["$: items 0 and 2 are the same"]),
        ({"uniqueItems": True}, [1, True, "1", 0, False, [1], [True], {"a": 1}, {"a": True}, None, 1.5], []),
        ({"uniqueItems": True}, [2**53, 2**53 + 1, 1e300, -0.0, 0], ["$: items 3 and 4 are the same"]),
        ({"uniqueItems": False}, [1, 1], []),
        ({"uniqueItems": True}, {"a": 1}, []),
    ],
)  # fmt: skip
def test_data_is_checked_whole(schema: dict[str, Any], data: Any, wanted: list[str]) -> None:
    assert mismatches(schema, data) == wanted


def test_the_number_of_reported_mismatches_is_limited() -> None:
    assert len(mismatches({"items": {"type": "string"}}, list(range(50)))) == 5


def test_no_pattern_blocks_the_process() -> None:
    schema = {
        "properties": {"a": {"pattern": "^(a+)+$"}},
        "patternProperties": {"^(b+)+$": {}},
        "additionalProperties": False,
    }
    found = mismatches(schema, {"a": "a" * 10_000 + "!", "b" * 10_000 + "!": 1})
    assert len(found) == 2
    assert all(len(one) < 400 for one in found[1:])


def test_a_check_against_a_circular_schema_ends() -> None:
    assert mismatches({"$ref": "#"}, {}) == ["$: the schema cannot be checked: it has a circular reference"]


def test_many_items_are_compared_in_one_go() -> None:
    """Comparing all pairs would take far longer than a test may."""
    items = [{"a": number} for number in range(30_000)]
    assert mismatches({"uniqueItems": True}, items) == []
    assert mismatches({"uniqueItems": True}, [*items, {"a": 7.0}]) == ["$: items 7 and 30000 are the same"]


def test_nested_alternatives_are_not_checked_without_limit() -> None:
    names: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 40):
        names[f"d{number}"] = {"anyOf": [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    schema = {"$defs": names, "$ref": "#/$defs/d39"}
    assert "it takes too many steps" in mismatches(schema, 1)[0]
    assert mismatches(schema, "fits") == []
    # What is long because there is much of it is checked to its end.
    rows = {"type": "array", "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}}
    assert mismatches(rows, [{"a": number} for number in range(20_000)]) == []


def test_a_check_stops_after_a_counted_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    nested: dict[str, Any] = {"type": "integer"}
    for _ in range(12):
        nested = {"anyOf": [nested, nested]}
    assert mismatches(nested, "x") == ["$: 'x' is not valid under any of the given schemas"]
    monkeypatch.setattr(schema_module, "_FEWEST_STEPS", 100)
    monkeypatch.setattr(schema_module, "_MOST_STEPS", 200)
    assert "it takes too many steps" in mismatches(nested, "x")[0]
    assert mismatches({"type": "integer"}, "x") == ["$: 'x' is not of type 'integer'"], "each check counts for itself"


@pytest.mark.parametrize(
    ("pattern", "fits", "differs"),
    [
        (r"^\p{Lu}\p{L}*$", "Émile", "émile"),  # JSON Schema reads patterns with the flag u
        (r"^[\p{Greek}\d]+$", "α1", "a1"),
        (r"^\u{1F600}$", "😀", "u"),
        (r"^\d+$", "12", "٣"),
    ],
)
def test_an_untrusted_pattern_is_read_as_json_schema_defines(pattern: str, fits: str, differs: str) -> None:
    schema = json.dumps({"properties": {"a": {"pattern": pattern}}})
    assert worst_mismatch(schema, {"a": fits}, set()) is None
    found = worst_mismatch(schema, {"a": differs}, set())
    assert found is not None
    assert (found.path, found.keyword) == (("a",), "pattern")


@pytest.mark.parametrize("pattern", ["(?=x)", r"\Ax\Z", "(?i)x", r"\p{Nothing}"])
def test_an_untrusted_pattern_that_cannot_be_used_is_not_checked(pattern: str) -> None:
    patterned = {"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": False}
    for schema in ({"properties": {"a": {"pattern": pattern}}}, patterned):
        assert worst_mismatch(json.dumps(schema), {"a": "y"}, set()) is None


def test_an_ignored_path_is_not_a_mismatch() -> None:
    schema = json.dumps({"properties": {"a": {"properties": {"b": {"type": "string"}}}, "c": {"type": "string"}}})
    assert worst_mismatch(schema, {"a": {"b": 1}}, {("a",)}) is None
    assert worst_mismatch(schema, {"a": {"b": 1}, "c": 2}, {("a", "b")}) == (
        ("c",),
        "2 is not of type 'string'",
        "type",
        "string",
    )


def test_a_schema_is_read_by_the_draft_that_it_names() -> None:
    tuples = {"items": [{"type": "string"}], "additionalItems": False}
    assert flaws(tuples), "a list of items is not valid in 2020-12"
    named = {"$schema": "http://json-schema.org/draft-07/schema#", **tuples}
    assert flaws(named) == []
    assert mismatches(named, ["a", 1]) == ["$: Additional items are not allowed (1 was unexpected)"]


def test_many_kinds_of_many_items_are_checked_completely() -> None:
    kinds = [
        {
            "type": "object",
            "required": ["kind", "n"],
            "properties": {"kind": {"const": f"k{number}"}, "n": {"type": "integer"}},
        }
        for number in range(40)
    ]
    things = [{"kind": f"k{number % 40}", "n": number} for number in range(500)]
    assert mismatches({"type": "array", "items": {"oneOf": kinds}}, things) == []

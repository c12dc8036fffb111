"""What data a reply comes to."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.replies import NOTHING, data_of, found_in

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"x": 1}', {"x": 1}),
        ("  [1, 2]\n", [1, 2]),
        ("7", 7),
        ("null", None),
        ('Here:\n```json\n{"x": 1}\n```\nor\n```\n{"x": 2}\n```', {"x": 2}),
        ('It is {"x": {"y": "}"}} and no more.', {"x": {"y": "}"}}),
        ('First {"x": 1}, then {"x": 2}.', {"x": 2}),
        ('A quote " before {"x": 1}', {"x": 1}),
        ("no data here", NOTHING),
        ("{not json}", NOTHING),
        ("NaN", NOTHING),
        ("", NOTHING),
        ("{" * 100_000, NOTHING),
    ],
)
def test_json_is_found(text: str, value: Any) -> None:
    assert found_in(text) == value


def test_without_a_schema() -> None:
    assert data_of("All is well.", None) == ({"summary": "All is well."}, "")
    assert data_of('{"x": 1}', None) == ({"x": 1}, "")
    assert data_of('So: {"x": 1}', None) == ({"summary": 'So: {"x": 1}', "x": 1}, "")
    assert data_of('So: {"summary": "short"}', None) == ({"summary": "short"}, "")


def test_with_a_schema() -> None:
    assert data_of('{"x": 1}', SCHEMA) == ({"x": 1}, "")
    assert data_of("All is well.", SCHEMA) == ({"summary": "All is well."}, "the reply holds no JSON")
    data, problem = data_of('{"x": "1"}', SCHEMA)
    assert data == {"x": "1"}
    assert "is not of type 'integer'" in problem
    assert data_of("[1]", {"type": "array"}) == ({"value": [1]}, "")

"""The data of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.run.replies import NOTHING, TOO_DEEP, data_of, found_in

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def nested(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = {"a": made}
    return made


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
        ("{" + "y```a\n" * 200_000, NOTHING),
        ("```a\n" * 200_000, NOTHING),
        ("Here is the list:\n```json\n[1, 2, 3]\n```\nand that is all of it.", [1, 2, 3]),
        ('It is:\r\n```json\r\n"yes"\r\n```\r\nwhich I am quite sure of, as you see.', "yes"),
        ('```json\n{"x": 1}\n```\nThen try it:\n```sh\nls {} | wc\n```', {"x": 1}),
        ('```json\n{"x": 1}\n```\nThen:\n```sh\n{ ls; }\n```', {"x": 1}),
        ('The result is {"x": 1} (see {this} and {that}).', {"x": 1}),
        ('Escaped \\{"x": 1} and {"y": "\\"}"}', {"y": '"}'}),
        ("See [1] and [2] for what others say about it all.", NOTHING),
        ('{"a":' * 100 + "1" + "}" * 100, nested(100)),
        ('{"a":' * 101 + "1" + "}" * 101, TOO_DEEP),
        ('{"a":' * 600 + "1" + "}" * 600, TOO_DEEP),
        ("[" * 100_000 + "]" * 100_000, TOO_DEEP),
        ('{"x": 1} is it, not ' + '{"a":' * 600 + "1" + "}" * 600, {"x": 1}),
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
    assert data_of("[" * 200 + "]" * 200, SCHEMA)[1] == "the reply holds JSON nested more than 100 deep"

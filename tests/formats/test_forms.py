"""Forms: the fields of a schema, and the one check of what was filled in."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.formats.forms import example, fields_of, filled_in
from cuebook.kernel.errors import BadInput

WINDOW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "minutes": {"type": "integer", "minimum": 1, "title": "How long?"},
        "why": {"type": "string", "description": "For the log."},
        "quiet": {"type": "boolean", "default": False},
        "team": {"enum": ["web", "data"]},
    },
    "required": ["minutes", "team"],
    "additionalProperties": False,
}


def test_an_object_of_single_values_has_fields() -> None:
    found = {one.name: (one.title, one.kind, one.required) for one in fields_of(WINDOW)}
    assert found == {
        "minutes": ("How long?", "integer", True),
        "why": ("why", "text", False),
        "quiet": ("quiet", "boolean", False),
        "team": ("team", "choice", True),
    }
    assert example(WINDOW) == '{"minutes":1,"why":"...","quiet":false,"team":"web"}'


@pytest.mark.parametrize(
    "schema",
    [True, {"type": "array"}, {"type": "object"}, {"type": "object", "properties": {"a": {"type": "array"}}}, {}],
)
def test_other_schemas_are_answered_as_json(schema: Any) -> None:
    assert fields_of(schema) == ()


def test_an_answer_may_be_json_text_or_a_value() -> None:
    assert filled_in(WINDOW, ' {"minutes": 5, "team": "web"} ') == '{"minutes":5,"team":"web"}'
    assert filled_in(WINDOW, {"minutes": 5, "team": "web"}) == '{"minutes":5,"team":"web"}'
    assert filled_in({"type": "string"}, "5") == '"5"'
    assert filled_in({"type": "integer"}, "5") == "5"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("five", "must be JSON"),
        ('{"minutes": 0, "team": "web"}', "minutes"),
        ('{"minutes": 5}', "team"),
        ('{"minutes": 5, "team": "web", "more": 1}', "more"),
    ],
)
def test_a_wrong_answer_says_what_is_wrong_and_shows_a_right_one(given: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as error:
        filled_in(WINDOW, given)
    assert '"minutes"' in error.value.fix

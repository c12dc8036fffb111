"""The inputs of a Markdown run: which values are accepted, and how they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.markdown.inputs import accept, unknown
from cuebook.dialects.markdown.parse import parse
from cuebook.kernel.errors import BadInput

BOOK = parse(
    """\
# Tea

## INPUTS

- `kind` (string): Which
- `cups` (number: 2): How many
- `sweet` (boolean: no): With sugar
- `size` (enum: small, large): Which size

## STEP 1: Brew

Brew.
""",
    "tea.md",
)
GIVEN = {"kind": "green", "size": "small"}


def accepted(**given: Any) -> dict[str, Any]:
    return accept(BOOK, {**GIVEN, **given})


def refused(given: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        accept(BOOK, given)
    return caught.value


def test_defaults_replace_missing_inputs() -> None:
    assert accepted() == {"kind": "green", "cups": "2", "sweet": "false", "size": "small"}


def test_an_invalid_default_is_reported_with_its_line() -> None:
    book = parse("# T\n\n## INPUTS\n\n- `a` (number: x): A\n\n## STEP 1: B\n\nB\n", "t.md")
    with pytest.raises(BadInput, match=r'^Invalid input: a must be a number, not "x" \(its default on line 5\)\.'):
        accept(book, {})
    assert accept(book, {"a": 1}) == {"a": "1"}


def test_none_means_the_default() -> None:
    assert accepted(cups=None)["cups"] == "2"


def test_all_missing_inputs_are_reported_together() -> None:
    error = refused({})
    assert error.message == "Missing inputs: kind (string), size (one of small, large)."
    assert error.fix == "Pass --kind VALUE --size VALUE."


def test_a_required_input_must_not_be_empty_and_an_optional_one_may() -> None:
    assert "Missing input: kind" in refused({**GIVEN, "kind": ""}).message
    book = parse("# T\n\n## INPUTS\n\n- `a` (string: x): A\n\n## STEP 1: B\n\nB\n", "t.md")
    assert accept(book, {"a": ""}) == {"a": ""}


@pytest.mark.parametrize(
    ("given", "kept"), [("5", "5"), (5, "5"), (5.0, "5.0"), (" 1e3 ", "1e3"), ("-.5", "-.5"), ("007", "007")]
)
def test_a_number_is_stored_as_written(given: Any, kept: str) -> None:
    assert accepted(cups=given)["cups"] == kept


@pytest.mark.parametrize("given", ["five", "", "1_000", "nan", "inf", True, [1], "5 cups", "٣"])
def test_an_invalid_number_is_refused(given: Any) -> None:
    assert "cups must be a number" in refused({**GIVEN, "cups": given}).message


@pytest.mark.parametrize(
    ("given", "kept"), [("YES", "true"), (True, "true"), ("on", "true"), (1, "true"), ("off", "false"), (0, "false")]
)
def test_a_boolean_is_stored_as_true_or_false(given: Any, kept: str) -> None:
    assert accepted(sweet=given)["sweet"] == kept


def test_a_choice_must_be_one_of_its_options() -> None:
    error = refused({"kind": "green", "size": "Small", "sweet": "perhaps"})
    assert error.message == (
        'Invalid inputs: sweet must be true or false, not "perhaps"; size must be one of small, large, not "Small".'
    )


def test_values_are_stored_as_text() -> None:
    assert accepted(kind={"a": [1, True, None]})["kind"] == '{"a": [1, true, null]}'
    assert accepted(kind="ünï {{size}}")["kind"] == "ünï {{size}}"


def test_text_that_cannot_be_encoded_is_refused() -> None:
    assert "kind is not valid text" in str(refused({**GIVEN, "kind": "\udcff"}))
    assert "kind is of type object" in str(refused({**GIVEN, "kind": object()}))


def test_undeclared_names_are_kept_with_a_warning() -> None:
    inputs = accepted(knd="x", other=1)
    assert (inputs["knd"], inputs["other"]) == ("x", "1")
    assert unknown(BOOK, inputs) == [
        "The playbook has no input 'knd'. Did you mean 'kind'?",
        "The playbook has no input 'other'.",
    ]

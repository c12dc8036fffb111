"""Conversion of a document to JSON, and back to Markdown without losing anything."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.markdown import convert
from cuebook.dialects.markdown.convert import Unwritable, from_json, result_object, to_json
from cuebook.dialects.markdown.parse import parse, read
from tests.dialects.markdown.strategies import DOCUMENTS, TEXTS, definitions
from tests.support.sampling import many

SMALL: dict[str, Any] = {"title": "Tea", "steps": [{"number": 1, "label": "1", "title": "Brew", "content": "Brew."}]}


def without_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_lines(inner) for key, inner in value.items() if key != "line"}
    return [without_lines(inner) for inner in value] if isinstance(value, list) else value


def changed(**fields: Any) -> dict[str, Any]:
    """The small definition with other fields in its step."""
    definition = copy.deepcopy(SMALL)
    definition["steps"][0] |= fields
    return definition


def refused(definition: Any) -> str:
    with pytest.raises(Unwritable) as caught:
        from_json(definition, "tea.json")
    return str(caught.value)


# --- to JSON ------------------------------------------------------------------------------------------


def test_empty_fields_are_omitted_where_the_format_omits_them() -> None:
    assert to_json(parse("# Tea\n\n## STEP 1: Brew\n", "tea.md")) == {
        "title": "Tea",
        "description": "",
        "system_prompt": "",
        "inputs": [],
        "steps": [
            {
                "number": 1,
                "label": "1",
                "title": "Brew",
                "content": "",
                "output_var": "",
                "extract_field": "",
                "is_branching": False,
                "line": 3,
            }
        ],
        "artifact_type": "",
    }


def test_the_result_contains_all_problems() -> None:
    result = result_object(read("# Tea\n\n## STEP 2: Brew\n"))
    assert (result["valid"], result["errors"]) == (True, [])
    assert result["warnings"] == [{"line": 3, "message": "Non-sequential step number: expected 1, got 2"}]
    nothing = result_object(read("x"))
    assert (nothing["valid"], nothing["definition"], nothing["warnings"]) == (False, None, [])
    assert [list(error) for error in nothing["errors"]] == [["message"], ["message"]]


# --- back -----------------------------------------------------------------------------------------------


def test_a_definition_is_written_as_an_author_would() -> None:
    definition = {
        "title": "Tea",
        "description": "For a rainy day.",
        "system_prompt": "Be brief.",
        "inputs": [
            {"name": "kind", "type": "enum", "options": ["green", "black"], "description": "Which"},
            {"name": "cups", "type": "number", "default": "2"},
        ],
        "steps": [
            {
                "number": 1,
                "title": "Brew",
                "content": "Brew {{kind}} tea.",
                "prompt_ref": {"prompt_id": "library:brew"},
                "elicitation": {"type": "input", "prompt": "How?", "default": 'so "so"'},
                "output_var": "pot",
                "output_type": "enum",
                "output_options": ["weak", "strong"],
                "extract_field": "taste",
                "branches": [
                    {
                        "condition": {"variable": "kind", "operator": "==", "value": "green"},
                        "steps": [{"number": 1, "label": "1a", "title": "Cool", "content": "Let it cool."}],
                    },
                    {"condition": None, "steps": []},
                ],
            },
            {"number": 2, "title": "Buy", "tool_call": {"connection_name": "the, shop", "tool_name": "buy"}},
        ],
        "artifact_type": "markdown",
    }
    assert (
        from_json(definition)
        == """\
# Tea

For a rainy day.

## SYSTEM

Be brief.

## INPUTS

- `kind` (enum: green, black): Which
- `cups` (number: 2)

## STEP 1: Brew

@prompt(library:brew)
@elicit(input, "How?", default:"so \\"so\\"")

Brew {{kind}} tea.

@output(pot: enum, "weak", "strong", extract:"taste")

```if kind == "green"```

### STEP 1a: Cool

Let it cool.

```else```

```endif```

## STEP 2: Buy

@tool("the, shop", buy)

## ARTIFACTS

type: markdown
"""
    )


@pytest.mark.parametrize("text", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_every_playbook_survives_conversion_to_json_and_back(text: str) -> None:
    assert_survives(text)


@settings(max_examples=many(75, 300), deadline=None)
@given(TEXTS)
def test_any_valid_text_survives_conversion_to_json_and_back(text: str) -> None:
    assert_survives(text)


def assert_survives(text: str) -> None:
    parsed = read(text)
    if parsed.definition is None or any(
        "\ud800" <= one <= "\udfff" for one in text
    ):  # a file cannot contain a lone surrogate
        return
    result = result_object(parsed)
    written = from_json(result)
    again = to_json(parse(written, "written"))
    assert without_lines(again) == without_lines(result["definition"])
    assert from_json(again) == written


@settings(max_examples=many(75, 300), deadline=None)
@given(definitions())
def test_a_definition_survives_conversion_or_is_refused_by_field_name(definition: dict[str, Any]) -> None:
    try:
        text = from_json(definition)
    except Unwritable as refusal:
        problems = refusal.problems
    else:
        assert_same(definition, to_json(parse(text, "written")))
        return
    assert all(problem.code == "unwritable" and problem.message for problem in problems)


def assert_same(given: Any, got: Any) -> None:
    """Every given field is there again; omitted fields may be derived from the others."""
    if isinstance(given, dict):
        for key, value in given.items():
            assert_same(value, got.get(key))
    elif isinstance(given, list) and given:
        assert len(given) == len(got)
        for one, other in zip(given, got, strict=True):
            assert_same(one, other)
    else:
        assert given == got or not (given or got)


def test_most_definitions_can_be_written() -> None:
    """The property above is worthless if it holds only because most definitions are refused."""
    written = 0

    @settings(max_examples=100, database=None, derandomize=True, deadline=None)
    @given(definitions())
    def count(definition: dict[str, Any]) -> None:
        nonlocal written
        try:
            from_json(definition)
        except Unwritable:
            return
        written += 1

    count()
    assert written > 50


def test_beyond_z_a_branch_is_written_without_a_heading() -> None:
    block = "\n".join(f'```{"elif" if n else "if"} kind == "{n}"```\nx{n}' for n in range(30))
    assert_survives(f"# Tea\n\n## STEP 1: Brew\n\n{block}\n```endif```\n")


def test_a_playbook_that_only_fits_without_blank_lines_has_none() -> None:
    block = '```if k == "a"```\nx\n```elif k == "b"```\n@output(y)\n```else```\nz\n```endif```\n'
    text = "# Tea\nBrew.\n## SYSTEM\ns\n## INPUTS\n- `k` (enum: a, b)\n"
    text += "".join(f"## STEP {number}: S\nt\n{block}" for number in range(1, 2_130))
    assert 190_000 < len(text) < 200_000
    assert_survives(text)


@settings(max_examples=many(75, 300), deadline=None)
@given(TEXTS)
def test_any_playbook_can_be_written_without_blank_lines(text: str) -> None:
    with patch.object(convert, "SIZE_LIMIT", 0):
        assert_survives(text)


@pytest.mark.parametrize("heading", ["## INPUTS", "## STEP 3: No", "### STEP 1b: No", "# No"])
def test_a_text_that_begins_like_a_heading_stays_a_text(heading: str) -> None:
    block = f'```if a == ""```\n### STEP 1a: A\n  {heading}\n```endif```'
    text = f"# T\n  {heading}\n## SYSTEM\n  {heading}\n## STEP 1: A\n  {heading}\n{block}\n"
    assert read(text).valid
    assert_survives(text)


# --- what cannot be written -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"content": "a\n## STEP 2: Not meant\nb"}, "steps[0].content"),
        ({"content": "a\n@output(x)\nb"}, "steps[0].content"),
        ({"content": 'a\n```if x == ""```\nb'}, "steps[0].content"),
        ({"content": "a  \nb"}, "steps[0].content"),
        ({"content": "a\r\nb"}, "steps[0].content"),
        ({"title": "two\nlines"}, "steps[0].title"),
        ({"label": "2"}, "steps[0].label"),
        ({"output_options": ["a"], "output_var": "x"}, "steps[0].output_options"),
        ({"extract_field": "x"}, "steps[0].extract_field"),
        ({"output_var": "two words"}, "steps[0].output_var"),
        ({"prompt_ref": {"prompt_id": "http://x"}}, "steps[0].prompt_ref"),
        ({"prompt_ref": {"prompt_id": " x "}}, "steps[0].prompt_ref.prompt_id"),
        ({"tool_call": {"connection_name": "", "tool_name": "x"}}, "steps[0].tool_call"),
        ({"tool_call": {"connection_name": "a\"b',c", "tool_name": "x"}}, "steps[0].tool_call.connection_name"),
        ({"tool_call": {"connection_name": "a", "tool_name": "b", "arguments": "{\n}"}}, "steps[0].tool_call"),
        ({"elicitation": {"type": "input", "prompt": 'a "b"'}}, "steps[0].elicitation.prompt"),
        ({"elicitation": {"type": "ask", "prompt": "a"}}, "steps[0].elicitation"),
        ({"elicitation": {"type": "confirm", "default": "x"}}, "elicitation.default"),
        ({"is_branching": True}, "steps[0].is_branching"),
        ({"branches": [{"condition": None, "steps": []}]}, "steps[0].branches[0].condition cannot"),
        (
            {"branches": [{"condition": {"variable": "a", "operator": "==", "value": "", "source": "step_output"}}]},
            "steps[0].branches[0].condition.source",
        ),
        (
            {"branches": [{"condition": {"variable": "a", "operator": "<", "value": ""}, "steps": []}]},
            "steps[0].branches[0].condition.operator: Invalid enum value '<'",
        ),
    ],
)
def test_a_field_that_the_format_cannot_express_is_refused_by_name(fields: dict[str, Any], where: str) -> None:
    message = refused(changed(**fields))
    assert message.startswith("tea.json: ")
    assert where in message


@pytest.mark.parametrize(
    ("definition", "where"),
    [
        (SMALL | {"title": ""}, "title: No title found"),
        (SMALL | {"title": "a\n# b"}, "title cannot be written"),
        (SMALL | {"steps": []}, "steps: No steps found"),
        (SMALL | {"description": "a\n## INPUTS"}, "description cannot be written"),
        (SMALL | {"system_prompt": "a\n## b"}, "system_prompt cannot be written"),
        (SMALL | {"artifact_type": "pdf"}, "artifact_type cannot be written"),
        (SMALL | {"inputs": [{"name": "a"}, {"name": "a"}]}, "inputs: Duplicate input name"),
        (SMALL | {"inputs": [{"name": "a b"}]}, "inputs cannot be written"),
        (SMALL | {"inputs": [{"name": "a", "type": "json"}]}, "inputs[0].type cannot be written"),
        (SMALL | {"inputs": [{"name": "a", "default": "(x)"}]}, "inputs cannot be written"),
        (SMALL | {"inputs": [{"name": "a", "required": False}]}, "inputs[0].required cannot be written"),
        (SMALL | {"inputs": [{"name": "a", "type": "enum", "options": ["a,b"]}]}, "inputs[0].options"),
        (SMALL | {"extra": 1}, "definition: Object contains unknown field `extra`"),
        (SMALL | {"title": 1}, "title: Expected `str`, got `int`"),
        (changed(number="1"), "steps[0].number: Expected `int`, got `str`"),
        (changed(number=10**5000), "steps[0].number: Expected `int` <= 999999999999999"),
        (SMALL | {"description": "x" * 200_000}, "definition: Document exceeds 200KB size limit"),
        ({"definition": None}, "definition: Expected `object`, got `null`"),
        (None, "definition: Expected `object`, got `null`"),
        ([], "definition: Expected `object`, got `array`"),
        ({1: 2}, "definition: "),
    ],
)
def test_an_invalid_definition_is_refused_by_field_name(definition: Any, where: str) -> None:
    assert where in refused(definition)


def test_branches_within_branches_are_refused() -> None:
    condition = {"variable": "a", "operator": "==", "value": ""}
    inner = {"number": 1, "label": "1a", "title": "x", "branches": [{"condition": condition, "steps": []}]}
    message = refused(changed(branches=[{"condition": condition, "steps": [inner]}]))
    assert "steps[0].branches[0].steps[0].branches cannot be written: a sub-step cannot have branches." in message
    deep: Any = changed()["steps"][0]
    for _ in range(20_000):
        deep = {"number": 1, "title": "x", "branches": [{"condition": None, "steps": [deep]}]}
    assert "steps" in refused({"title": "Tea", "steps": [deep]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["number", "label", "title", "content", "branches", "elicitation", "tool_call", "output_var"])


@settings(deadline=None)
@given(st.one_of(JSON, st.dictionaries(FIELDS, JSON, max_size=3).map(lambda fields: changed(**fields))))
def test_any_json_is_written_or_refused_and_nothing_else(definition: Any) -> None:
    try:
        text = from_json(definition)
    except InvalidPlaybook:
        return
    assert read(text).valid

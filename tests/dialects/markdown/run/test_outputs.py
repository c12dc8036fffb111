"""The stored part of a reply: fields, searched from its end, and options in their declared spelling."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.markdown.model import Output
from cuebook.dialects.markdown.run.outputs import capture, extracted, objects, option_in
from cuebook.kernel.ports import Store
from tests.dialects.markdown.harness import MarkdownHarness

FENCED = 'Here:\n\n```json\n{"f": "fenced"}\n```\n'


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"f": "x"}', "x"),
        ('It is {"f": "x"}, I think.', "x"),
        (FENCED, "fenced"),
        (f'First {{"f": "bare"}}. {FENCED}', "fenced"),
        (f'{FENCED} Or rather {{"f": "bare"}}.', "bare"),
        ('{"f": "draft"} and then {"f": "final"}', "final"),
        ('{"f": "kept"} and then {"g": 1}', "kept"),
        ('{"a": {"b": {"c": 1}}, "f": "x"}', "x"),
        ('{"f": "top", "g": {"f": "inside"}}', "top"),
        ('{"f": "top"} {"g": {"f": "inside"}}', "top"),
        ('{"g": {"f": "first"}, "h": [1, {"f": "second"}]}', "second"),
        ('{"g": {"f": "outer", "h": {"f": "inner"}}}', "inner"),
        ('[{"f": "one"}, {"f": "two"}]', "two"),
        ('{"list": [{"f": "one"}, {"f": "two"}, ', "two"),
        ('{"f": <type>} and {"f": "real"}', "real"),
        ("{'f': 'no'} {\"f\": \"yes\"} {f: 1} {", "yes"),
        ('{"f": "a \\"quoted\\" {brace}"}', 'a "quoted" {brace}'),
        ('{"f": true}', "true"),
        ('{"f": 12}', "12"),
        ('{"f": -0.5}', "-0.5"),
        ('{"f": ["a", 1, null]}', '["a",1,null]'),
        ('{"f": {"b": 1, "a": "ü"}}', '{"b":1,"a":"ü"}'),
        ('{"f": ""}', ""),
        ('{"f": "two\nlines\tand a tab"}', "two\nlines\tand a tab"),
        ('{"f": 1.50}', "1.5"),
        ('{"f": 1e400} {"g": {"f": "finite"}}', "finite"),
        ('```json\n{"g": [1, {"h": {}}], "f": ["a", {"b": []}]}\n```\nThat is all.', '["a",{"b":[]}]'),
        ('{\n  "f"\n:\n"x"}', "x"),
        ('{"f": "half \\ud83d pair \\ud83d\\ude00"}', "half � pair 😀"),
    ],
)
def test_a_field_is_found_anywhere_in_the_reply(reply: str, value: str) -> None:
    assert extracted(reply, "f").value == value
    assert extracted(reply, "f").warnings == ()


@pytest.mark.parametrize(
    "reply", ["no JSON", "", '{"g": 1}', '{"f": NaN}', '{"f": [-1e999]}', '{"f": 1', '"f"', '["f"]', '{"f": "x" "y"}']
)
def test_the_whole_reply_is_kept_if_there_is_no_such_field(reply: str) -> None:
    found = extracted(reply, "f")
    assert found.value == reply
    assert found.warnings == ('no JSON object in the reply has a field "f", so the whole reply is kept.',)


def test_null_is_empty_and_gives_a_warning() -> None:
    found = extracted('{"f": null}', "f")
    assert (found.value, found.warnings) == ("", ('the field "f" is null, so nothing is kept.',))


@pytest.mark.parametrize(
    "reply",
    ['{"a":' * 20_000, '{"a":[' * 20_000, "{" * 100_000, 'x{"' * 50_000, '{"k":' * 30_000 + "1" + "}" * 30_000],
    ids=["open objects", "open arrays", "braces", "quotes", "too deep"],
)
def test_a_reply_made_to_be_slow_or_deep_is_given_up_on(reply: str) -> None:
    assert extracted(reply, "f").value == reply


def test_a_deep_value_that_cannot_be_written_is_left_in_its_reply() -> None:
    reply = '{"f": ' + "[" * 900 + "]" * 900 + "}"
    assert extracted(reply, "f").value in (reply, "[" * 900 + "]" * 900)


@given(
    st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.none(), min_size=1), st.text(alphabet="ab {}")
)
def test_any_object_is_found_in_any_prose(before: str, value: dict[str, object], after: str) -> None:
    assert value in objects(before.replace("{", "(") + json.dumps(value) + after)


@given(st.text() | st.lists(st.sampled_from(['{"f":', "{", "}", '"', "[", "]", "1", ",", "\\", "x"])).map("".join))
def test_extraction_never_fails_and_gives_storable_text(reply: str) -> None:
    extracted(reply.encode("utf-8", "replace").decode(), "f").value.encode()


OPTIONS = ("low", "High", "C++", "yes!")


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("low", "low"), (" low\n", "low"), ("LOW.", "low"), ('"low"', "low"), ("`High`", "High"), ("**high**", "High"),
        ("'High'.", "High"), ("high!", "High"), ("“low”", "low"), ("C++", "C++"), ("c++.", "C++"), ("yes!", "yes!"),
        ("Yes!", "yes!"), ("medium", None), ("low or high", None), ("", None), ("It is low.", None),
    ],
)  # fmt: skip
def test_an_option_is_recognised_and_kept_as_declared(said: str, option: str | None) -> None:
    assert option_in(said, OPTIONS) == option


def test_options_that_differ_by_case_are_distinguished() -> None:
    assert [option_in(said, ("A", "a")) for said in ("a", "A", "a.")] == ["a", "A", "a"]


def test_a_value_that_is_not_an_option_is_kept_with_a_warning() -> None:
    found = capture(Output("s", "enum", ("low", "high")), "perhaps")
    assert (found.value, found.warnings) == ("perhaps", ('"perhaps" is not one of low, high; it is kept unchanged.',))


def test_an_extracted_value_is_compared_with_the_options_too() -> None:
    output = Output("s", "enum", ("low", "high"), "level")
    assert capture(output, '{"level": "HIGH"}').value == "high"
    assert capture(output, "High.").value == "high", "also where the reply is the bare option"
    assert len(capture(output, "High.").warnings) == 1


@pytest.mark.parametrize("type_", ["", "string", "number", "boolean", "json", "text"])
def test_other_types_change_nothing_of_what_is_kept(type_: str) -> None:
    assert capture(Output("s", type_), " Yes.\n").value == " Yes.\n"


async def test_a_missing_field_is_a_warning_of_the_step(store: Store) -> None:
    text = '# E\n\n## STEP 1: A\n\nAsk.\n\n@output(level: enum, "low", "high", extract:"level")\n\n## STEP 2: B\n\n{{level}}\n'
    harness = MarkdownHarness(store, ["I cannot say.", "End"])
    row = await harness.run(text)
    assert row.status == "completed"
    assert harness.prompts[1] == "I cannot say."
    assert await harness.warnings(row.id) == [
        'Step 1, @output(level): no JSON object in the reply has a field "level", so the whole reply is kept.',
        'Step 1, @output(level): "I cannot say." is not one of low, high; it is kept unchanged.',
    ]

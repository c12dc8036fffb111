"""Values that steps can use beyond an earlier output: error output, headers, the run, functions, and declared schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.check import beyond_format, check
from cuebook.dialects.pipeline.parse import parse
from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import Moment
from cuebook.kernel.run import RunRow
from tests.dialects.pipeline.harness import PipelineHarness
from tests.support.http_servers import Server, answer


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[PipelineHarness]:
    made = PipelineHarness(tmp_path)
    yield made
    await made.close()


async def run(harness: PipelineHarness, steps: str, **more: Any) -> RunRow:
    harness.pipeline = parse(f"name: V\nargs: {{word: {{default: a b}}}}\nsteps:\n{steps}", "pipeline.yml")
    return await harness.do(**more)


async def said(harness: PipelineHarness, steps: str, **more: Any) -> dict[str, str]:
    row = await run(harness, steps, **more)
    assert row.status == "completed", row.error
    return await harness.outputs(row.id)


# --- results ---


async def test_error_output_and_truncation_are_fields_of_a_result(harness: PipelineHarness) -> None:
    found = await said(
        harness,
        """\
  - {id: a, command: "cli sh -c 'echo out; echo err >&2; exit 3'", on_error: continue}
  - {id: b, command: 'cli echo "${a.stderr}|${a.truncated}"', condition: $a.exit_code == 3 && !$a.truncated}
""",
    )
    assert found["b"] == "err|false\n"


async def test_headers_are_found_in_any_case(harness: PipelineHarness) -> None:
    async with Server(answer("{}", headers=[("X-Next-Page", "2"), ("Content-Type", "application/json")])) as server:
        found = await said(
            harness,
            f"  - {{id: a, command: 'http {server.url()}'}}\n"
            """\
  - {id: b, command: 'cli echo ${a.headers.x-next-page} ${a.headers.X-Next-Page}', condition: $a.headers.none == null}
""",
        )
    assert found["b"] == "2 2\n"


async def test_a_cut_output_is_used_only_if_the_author_accepts_it(harness: PipelineHarness) -> None:
    steps = """\
  - {id: a, command: cli seq 1 100, output: {type: text, max_bytes: 10%s}}
  - {id: b, command: cli wc -c, stdin: $a.stdout}
  - {id: c, command: cli echo cut, condition: $a.truncated}
"""
    refused = await run(harness, steps % "")
    assert refused.error is not None
    assert refused.error.code == "incomplete_output"
    assert "truncated: accept" in refused.error.fix
    found = await said(harness, steps % ", truncated: accept")
    assert (found["b"].strip(), found["c"]) == ("10", "cut\n")


def test_json_cannot_be_accepted_cut() -> None:
    text = "name: N\nsteps:\n  - {id: a, command: cli true, output: {type: json, truncated: accept}}\n"
    assert [one.code for one in check(text, "p.yml") if one.severity == "error"] == ["SCHEMA"]


# --- functions ---


@pytest.mark.parametrize(
    ("condition", "held"),
    [
        ("length($a.json.items) == 2", True),
        ("length($a.json.name) >= 3 && !contains($a.json.items, 3)", True),
        ("contains($a.json.items, 2)", True),
        ("contains($a.json.name, 'oh')", True),
        ("contains($a.json, 'items')", True),
        ("contains($a.json.none, 'x')", False),
        ("default($a.json.none, 7) == 7", True),
        ("default($a.json.name, 7) == 7", False),
        ("trim($a.json.padded) == x", True),
        ("length(trim(default($a.json.none, '  ab '))) == 2", True),
        ("default($skipped.json.x, 'no') == no", True),
    ],
)
async def test_functions_in_conditions(harness: PipelineHarness, condition: str, held: bool) -> None:
    found = await said(
        harness,
        f"""\
  - {{id: skipped, command: cli true, condition: false}}
  - {{id: a, command: cli cat, stdin: '{{"items": [1, 2], "name": "john", "padded": " x "}}', output: json}}
  - id: b
    command: cli echo held
    condition: {condition!r}
""",
    )
    assert ("b" in found) is held


async def test_functions_in_text_keep_a_word_a_word(harness: PipelineHarness) -> None:
    found = await said(
        harness,
        """\
  - {id: a, command: cli printf ' x y '}
  - {id: b, command: 'cli printf %s/ ${trim(a.stdout)} ${default(word, "none")} ${default($a.exit_code, 9)} ${length(word)}'}
""",
        inputs={"word": "a b"},
    )
    assert found["b"] == "x y/a b/0/3/"


async def test_a_function_that_cannot_be_computed_fails_the_step(harness: PipelineHarness) -> None:
    row = await run(
        harness, "  - {id: a, command: cli true}\n  - {id: b, command: cli true, condition: length($a.exit_code) > 1}\n"
    )
    assert row.error is not None
    assert (row.error.code, "length($a.exit_code)" in row.error.message) == ("missing_value", True)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("lenght($a.stdout) > 1", "at character 1: there is no function 'lenght'"),
        ("true && contains($a.stdout)", "at character 9: contains takes 2 operands, but has 1"),
        ("length($a.stdout", "at character 17: ')' is missing"),
        ("trim() == x", "at character 6: unexpected ')'"),
        ("$a.exit_code = 1", "at character 14: unexpected '= 1'"),
    ],
)
def test_a_mistake_in_a_condition_names_its_place(condition: str, words: str) -> None:
    text = f"name: N\nsteps:\n  - {{id: a, command: cli true}}\n  - id: b\n    command: cli true\n    condition: {condition!r}\n"
    (found,) = [one for one in check(text, "p.yml") if one.severity == "error"]
    assert (found.code, found.line, words in found.message) == ("BAD_CONDITION", 6, True), found.message


@pytest.mark.parametrize(
    "inside", ["trim(a.stdout", "upper(word)", "trim(nothing)", "trim(a.stdou)", "1 + (2)", "trim(tok)"]
)
def test_a_mistake_in_braces_is_found_at_load(inside: str) -> None:
    text = "name: N\nargs: {word: {default: x}, tok: {secret: true}}\nsteps:\n  - {id: a, command: cli true}\n"
    text += f"  - id: b\n    command: cli echo ${{{inside}}}\n"
    found = [one for one in check(text, "p.yml") if one.severity == "error"]
    assert [one.line for one in found][:1] == [6]


# --- paths and schemas ---

SCHEMA = """\
name: N
steps:
  - id: a
    command: cli true
    output:
      type: json
      schema:
        type: object
        additionalProperties: %s
        properties:
          title: {type: string}
          items: {type: array, items: {type: object, properties: {name: {type: string}}, additionalProperties: false}}
          other: {$ref: "#/$defs/other"}
        $defs: {other: {type: object, properties: {deep: {type: integer}}, additionalProperties: false}}
  - id: b
    command: cli echo ${a.json.%s}
"""


@pytest.mark.parametrize(
    ("path", "suggested"),
    [
        ("titel", "title"),
        ("items.0.nam", "name"),
        ("items.length", ""),
        ("title.x", ""),
        ("other.depe", "deep"),
    ],
)
def test_a_path_that_the_schema_rules_out_is_refused(path: str, suggested: str) -> None:
    (found,) = [one for one in check(SCHEMA % ("false", path), "p.yml") if one.severity == "error"]
    assert (found.code, found.line) == ("UNKNOWN_REFERENCE", 16)
    assert suggested in found.fix


@pytest.mark.parametrize("path", ["title", "items", "items.0.name", "other.deep", "other"])
def test_a_path_that_the_schema_has_is_accepted(path: str) -> None:
    assert not [one for one in check(SCHEMA % ("false", path), "p.yml") if one.severity != "note"]


def test_a_path_that_an_open_schema_does_not_mention_is_a_warning() -> None:
    (found,) = [one for one in check(SCHEMA % ("true", "titel"), "p.yml") if one.severity != "note"]
    assert (found.code, found.severity, "title" in found.fix) == ("NOT_IN_SCHEMA", "warning", True)


# --- the run ---


async def test_the_date_of_a_run_stays_what_it_was_at_its_start(harness: PipelineHarness) -> None:
    steps = "  - {id: a, command: 'cli echo ${run.date}'}\n  - {id: gate, command: cli true, approval: required}\n"
    row = await run(harness, f"{steps}  - {{id: b, command: 'cli echo ${{run.date}}'}}\n")
    await harness.decide(row.id, "approve")
    found = await harness.outputs(row.id)
    assert found["a"] == found["b"]
    moments = [one for one in await harness.events(row.id, Performed) if isinstance(one.outcome, Moment)]
    assert [f"{datetime.fromtimestamp(one.outcome.at, UTC):%F}" for one in moments] == [found["a"].strip()]


def test_unknown_facts_of_a_run_are_refused_and_a_step_may_still_be_called_run() -> None:
    text = "name: N\nsteps:\n  - {id: a, command: 'cli echo ${run.idd}'}\n"
    (found,) = [one for one in check(text, "p.yml") if one.severity == "error"]
    assert (found.code, found.fix) == ("UNKNOWN_REFERENCE", "Did you mean 'id'?")
    named = "name: N\nsteps:\n  - {id: run, command: cli true}\n  - {id: b, command: 'cli echo ${run.stdout}'}\n"
    assert not [one for one in check(named, "p.yml") if one.severity == "error"]


def test_the_published_format_has_none_of_this() -> None:
    text = "name: N\nsteps:\n  - {id: a, command: cli true, state: {x: 1}, output: {type: text, truncated: accept}}\n"
    found = [problem.message for problem in beyond_format(parse(text, "p.yml"))]
    assert any("'state'" in one for one in found)
    assert any("'output.truncated'" in one for one in found)

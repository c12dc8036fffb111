"""Findings of the checker: errors, warnings, and notes on possible surprises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cuebook.dialects.pipeline as package
from cuebook.dialects.children import CODES as CHILDREN
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.pipeline.check import CODES, check, sarif
from tests.dialects.pipeline.samples import FULL, MINIMAL, pipeline, with_step


def found(text: str) -> list[tuple[int | None, str]]:
    return [(one.line, one.code) for one in check(text, "a.yml")]


def test_possible_surprises_are_noted() -> None:
    assert found(FULL) == [
        (11, "NO_EFFECT"),
        (21, "NO_POSTCONDITION"),
        (35, "NO_POSTCONDITION"),
        (41, "MAY_BE_SKIPPED"),
        (41, "NO_ROLLBACK"),
        (54, "MAY_BE_SKIPPED"),
        (54, "NO_POSTCONDITION"),
    ]
    assert {one.severity for one in check(FULL, "a.yml") if one.code != "MAY_BE_SKIPPED"} == {"note"}


@pytest.mark.parametrize(
    ("step", "warns"),
    [
        ("command: cli cat, stdin: $a.stdout", True),
        ("command: cli cat, stdin: $a.stdout, condition: $first.exit_code == 0", True),
        ("command: cli cat, stdin: $a.stdout, condition: '!$a.skipped'", False),
        ("command: cli cat, stdin: $a.stdout, condition: '${on}'", False),
        ("command: cli cat, stdin: $a.stdout, condition: $b.approved", False),
        ("command: 'cli echo \"${a.skipped}\"'", False),
        ("command: cli cat, stdin: $first.stdout", False),
    ],
)
def test_a_step_that_depends_on_a_skippable_step_is_warned_about(step: str, warns: bool) -> None:
    text = f"""
name: A
args: {{on: {{default: true}}}}
steps:
  - {{id: first, command: cli ls, effect: read}}
  - {{id: a, command: cli ls, effect: read, condition: '${{on}}'}}
  - {{id: b, command: cli ls, effect: read, condition: '${{on}}', approval: required}}
  - {{id: c, {step}, effect: read}}
"""
    assert [one.code for one in check(text, "a.yml")] == (["MAY_BE_SKIPPED"] if warns else [])


def test_a_selector_is_warned_about_because_no_step_sees_elements() -> None:
    post = "{type: dom_contains, text: Sold, selector: .state}"
    text = f"name: A\nsteps:\n  - {{id: a, command: http https://x.y, postcondition: {post}}}\n"
    assert [one.code for one in check(text, "a.yml")] == ["NO_EVIDENCE"]


def test_a_read_only_step_needs_neither() -> None:
    assert found("name: A\nsteps:\n  - {id: a, command: cli ls, effect: read}\n") == []
    assert found("name: A\nsteps:\n  - {id: a, command: http https://x.y}\n") == []


def test_changing_steps_without_a_postcondition_are_reported() -> None:
    assert [(one.line, one.code) for one in PIPELINE.unverified(pipeline(MINIMAL))] == [(3, "NO_POSTCONDITION")]
    reading = "name: A\nsteps:\n  - {id: a, command: cli ls, effect: read}\n"
    assert PIPELINE.unverified(pipeline(reading)) == ()


def test_the_suggested_fix_works_for_the_step() -> None:
    asking = "llm: {model: m, prompt: p, max_tool_calls: 1, tools: {allow: [Bash]}}"
    told = PIPELINE.unverified(pipeline(with_step("command: llm", asking, "output: json")))
    assert "effect: read" in told[0].fix
    assert "effect" not in told[1].fix
    assert "only tools that read: Glob, Grep, Read" in told[1].fix


def test_an_unused_argument_is_noted() -> None:
    asking = "steps:\n  - {id: s, command: 'http https://x.y/${b}'}\n"
    assert found(f"name: A\nargs: {{a: 1, b: 2}}\n{asking}") == [(2, "UNUSED_ARG")]
    # Commands have it in their environment.
    running = "steps:\n  - {id: s, command: cli env, effect: read}\n"
    assert found(f"name: A\nargs: {{a: 1}}\n{running}") == []
    assert found(f"name: A\nargs: {{a: {{secret: true}}}}\n{running}") == [(2, "UNUSED_ARG")]


def test_an_argument_and_a_step_with_the_same_name_are_noted() -> None:
    text = "name: A\nargs: {a: 1}\nsteps:\n  - {id: a, command: 'cli echo ${a}', effect: read}\n"
    assert found(text) == [(4, "SHARED_NAME")]
    assert found(text.replace("id: a", "id: b")) == []


def test_a_model_without_an_output_schema_is_noted() -> None:
    text = with_step("command: llm", "llm: {model: m, prompt: p}", "output: json")
    assert (8, "NO_OUTPUT_SCHEMA") in found(text)


def test_mistakes_and_warnings_are_findings() -> None:
    assert found("name: A\nsteps:\n  - {id: a, command: cli x | y, stdin: $b.stdout}\n") == [
        (3, "NO_SHELL"),
        (3, "UNKNOWN_REFERENCE"),
    ]
    assert found("name: [") == [(1, "PARSE")]


def test_every_reported_code_has_a_description() -> None:
    folder = Path(package.__file__).parent
    reading = [folder / "inputs.py", folder / "check.py", *(folder / "parse").glob("*.py")]
    texts = "".join(path.read_text() for path in reading)
    given = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', texts)) - {"PARSE"}
    assert given <= set(CODES)
    assert {code for code in CODES if code not in given} <= {
        *CHILDREN, "PARSE", "SCHEMA", "NOT_FINITE", "INVALID_OUTPUT_SCHEMA", "UNSUPPORTED_REGEX",
    }  # fmt: skip


def test_findings_as_sarif() -> None:
    log = sarif(check(FULL, "a.yml"), "a.yml")
    results = log["runs"][0]["results"]
    assert {one["ruleId"] for one in results} == {"NO_EFFECT", "NO_POSTCONDITION", "NO_ROLLBACK", "MAY_BE_SKIPPED"}


@pytest.mark.parametrize("dialect", ["graph", "markdown"])
def test_a_code_shared_between_dialects_has_the_same_severity(dialect: str) -> None:
    import importlib

    others = importlib.import_module(f"cuebook.dialects.{dialect}.check").CODES
    for code in CODES.keys() & others.keys():
        assert CODES[code][0] == others[code][0]

"""Loops, branches, waits and sections as they are written: what is accepted, and what is refused with its line."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.check import beyond_format, check
from cuebook.dialects.pipeline.model import Group, Parallel, Pause
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.parse.moments import duration, moment

WHOLE = """name: Test
args: {names: {type: array, default: []}}
steps:
  - id: loop_of
    for_each: ${names}
    as: one
    key: ${one}
    concurrency: 3
    steps:
      - id: inner
        command: cli echo ${one} ${loop.key}
  - id: both
    parallel: any
    branches:
      a: [{id: in_a, command: cli true}]
      b: [{id: in_b, command: cli true}]
  - id: pause
    wait: 1h30m
  - id: poll
    command: http GET https://example.com/
    wait: {until: $poll.status == 200, every: 5s, timeout: 1m}
  - id: ask
    command: cli true
    approval: required
    on_denied: [{id: instead, command: cli true}]
    on_expired: skip_rest
on_failure: [{id: tell, command: "cli echo ${failure.step}"}]
finally: [{id: clean, command: cli true}]
"""


def test_every_structure_is_parsed() -> None:
    made = parse(WHOLE, "test.yml")
    loop, both, pause, poll, ask = made.steps
    assert loop.each is not None
    assert (loop.each.name, loop.each.concurrency) == ("one", 3)
    assert isinstance(loop.action, Group)
    assert isinstance(both.action, Parallel)
    assert both.action.mode == "any"
    assert isinstance(pause.action, Pause)
    assert poll.until is not None
    assert (poll.until.every, poll.until.timeout) == (5.0, 60.0)
    assert ask.on_denied is not None
    assert ask.on_expired is not None
    assert [step.id for step in made.every] == [
        *("loop_of", "inner", "both", "in_a", "in_b", "pause", "poll", "ask", "instead", "tell", "clean"),
    ]
    assert [step.label for step in made.plan] == ["loop_of", "both", "pause", "poll", "ask", "clean"]


def test_strict_mode_refuses_every_addition() -> None:
    found = " ".join(problem.message for problem in beyond_format(parse(WHOLE, "test.yml")))
    for name in (
        *("for_each", "as", "key", "concurrency", "steps", "parallel", "branches", "wait", "on_denied", "on_expired"),
        *("on_failure", "finally"),
    ):
        assert f"'{name}'" in found


def errors(text: str) -> list[tuple[int | None, str]]:
    return [(one.line, one.code) for one in check(f"name: Test\n{text}", "test.yml") if one.severity == "error"]


STEP = "steps:\n  - id: a\n    command: cli true\n"


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("steps:\n  - id: a\n    for_each: [1]\n    comand: cli true\n", 5, "SCHEMA"),
        ("steps:\n  - id: a\n    for_each: 3\n    command: cli true\n", 4, "NOT_A_LIST"),
        ("steps:\n  - id: a\n    for_each: some words\n    command: cli true\n", 4, "NOT_A_LIST"),
        (f"{STEP}  - id: b\n    for_each: $a.stdout\n    command: cli true\n", 6, "NOT_A_LIST"),
        ("args: {n: {type: string}}\nsteps:\n  - id: b\n    for_each: ${n}\n    command: cli true\n", 5, "NOT_A_LIST"),
        ("steps:\n  - id: a\n    for_each: []\n    command: cli true\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    for_each: [1]\n    as: 1x\n    command: cli true\n", 5, "BAD_STRUCTURE"),
        ("steps:\n  - id: item\n    for_each: [1]\n    command: cli true\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    for_each: [1]\n    concurrency: 101\n    command: cli true\n", 5, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    key: x\n    command: cli true\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    steps: [{id: b, command: cli true}]\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    for_each: [1]\n    steps: []\n", 5, "SCHEMA"),
        ("steps:\n  - id: a\n    parallel: all\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    parallel: some\n    branches: {b: [{id: x, command: cli true}]}\n", 4, "SCHEMA"),
        ("steps:\n  - id: a\n    parallel: all\n    branches: {b: [{id: x, command: cli true}]}\n", 5, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    parallel: all\n    approval: required\n", 5, "NOT_OF_THIS_STEP"),
        ("steps:\n  - id: a\n    parallel: all\n    command: cli true\n", 5, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    wait: soon\n", 4, "BAD_TIME"),
        ("steps:\n  - id: a\n    wait: {at: tomorrow}\n", 4, "BAD_TIME"),
        ("steps:\n  - id: a\n    wait: {until: 1 == 1}\n", 4, "BAD_STRUCTURE"),
        ("steps:\n  - id: a\n    wait: 5m\n    command: cli true\n", 4, "BAD_STRUCTURE"),
        (
            "steps:\n  - id: a\n    command: cli true\n    wait: {until: $a.exit_code == 0, every: 1s, timeout: 5s}\n",
            5,
            "NOT_READ_ONLY",
        ),
        (
            "steps:\n  - id: a\n    command: http GET https://x.example/\n    wait: {until: $a.error, every: 1s}\n",
            5,
            "SCHEMA",
        ),
        (f"{STEP}    on_denied: maybe\n", 5, "SCHEMA"),
        (f"{STEP}    on_denied: []\n", 5, "SCHEMA"),
        (f"{STEP}on_failure: []\n", 5, "SCHEMA"),
        (f"{STEP}on_failur: []\n", 5, "SCHEMA"),
        (f"{STEP}finally:\n  - id: a\n    command: cli true\n", 6, "DUPLICATE_STEP"),
        ("steps:\n  - id: a\n    command: cli echo ${item}\n", 4, "UNKNOWN_ARG"),
        (f"{STEP}finally:\n  - id: b\n    command: cli echo ${{failure.stepp}}\n", 7, "UNKNOWN_REFERENCE"),
        ("steps:\n  - id: a\n    for_each: [1]\n    command: cli echo ${a.results}\n", 5, "CIRCULAR_REFERENCE"),
        (f"{STEP}  - id: b\n    command: cli echo ${{a.results}}\n", 6, "UNKNOWN_REFERENCE"),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, line: int, code: str) -> None:
    assert (line, code) in errors(text)


def test_steps_of_a_loop_are_seen_only_inside_it() -> None:
    text = """steps:
  - id: a
    for_each: [1]
    steps:
      - id: x
        command: cli true
      - id: y
        command: cli echo ${x.stdout}
  - id: after
    command: cli echo ${x.stdout}
"""
    (found,) = [one for one in check(f"name: T\n{text}", "t.yml") if one.severity == "error"]
    assert found.message.endswith("the step 'x' runs once for each item of 'a'.")
    assert found.fix == "Refer to $a.results, the outputs of all items."


def test_branches_do_not_see_each_other() -> None:
    text = """name: T
steps:
  - id: p
    parallel: all
    branches:
      a: [{id: x, command: cli true}]
      b: [{id: y, command: "cli echo ${x.stdout}"}]
"""
    (found,) = [one for one in check(text, "t.yml") if one.severity == "error"]
    assert "in another branch of 'p', which runs at the same time" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n  - id: p\n    parallel: any\n    branches:\n      a: [{id: x, command: cli true}]\n      b: [{id: z, command: cli true}]\n"
        "  - id: y\n    command: cli echo ${x.stdout}\n",
        f"{STEP}    on_denied: [{{id: x, command: cli true}}]\n  - id: y\n    command: cli echo ${{x.stdout}}\n",
        f"{STEP}    on_denied: continue\n  - id: y\n    command: cli echo ${{a.stdout}}\n",
        f"{STEP}finally:\n  - id: y\n    command: cli echo ${{a.stdout}}\n",
    ],
)
def test_a_reference_to_a_step_that_may_not_run_is_a_warning_unless_it_is_asked_about(text: str) -> None:
    def warnings(text: str) -> list[str]:
        return [one.code for one in check(f"name: Test\n{text}", "t.yml") if one.severity == "warning"]

    assert warnings(text) == ["MAY_BE_SKIPPED"]
    name = "a" if "a.stdout" in text else "x"
    assert warnings(text.replace("- id: y\n", f'- id: y\n    condition: "!${name}.skipped"\n')) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("5", None),
        ("", None),
        ("9999d", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [("1970-01-02", 86_400), ("1970-01-01T01:00:00", 3600), ("1970-01-01T01:00:00+01:00", 0), ("today", None)],
)
def test_dates(text: str, at: float | None) -> None:
    assert moment(text) == at

"""The commands of the browser in a pipeline, and the mistakes that are reported with their line."""

from __future__ import annotations

import pytest

from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.pipeline.check import beyond_format, check
from cuebook.dialects.pipeline.model import Secret, Web, Words
from cuebook.dialects.pipeline.parse import parse
from cuebook.kernel.errors import CuebookError


def document(command: str, more: str = "") -> str:
    return f"name: N\nargs: {{a: {{default: x}}}}\nsteps:\n  - id: a\n    command: {command}\n{more}"


def only(command: str, more: str = "") -> Web:
    action = parse(document(command, more), "p.yml").steps[0].action
    assert isinstance(action, Web)
    return action


def test_words_and_with_make_the_same_command() -> None:
    for command, more in (("web fill '#a b' ${a}", ""), ("web fill", "    with: {selector: '#a b', value: '${a}'}\n")):
        found = only(command, more)
        selector, value = found.arguments["selector"], found.arguments["value"]
        assert isinstance(selector, Words)
        assert isinstance(value, Words)
        assert (found.command, selector.parts, len(value.parts)) == ("fill", ("#a b",), 1)
    assert isinstance(only("web fill '#a' secret:env:TOKEN").arguments["value"], Secret)
    assert only("web SNAPSHOT") == Web("snapshot")
    assert parse(document("web click b"), "p.yml").steps[0].reads_only is False
    assert parse(document("web extract b"), "p.yml").steps[0].reads_only is True


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [
        ("web", "", "BAD_COMMAND"),
        ("web klick b", "", "BAD_COMMAND"),
        ("web navigate", "", "BAD_COMMAND"),
        ("web navigate file:///etc/passwd", "", "BAD_COMMAND"),
        ("web navigate https://u:p@example.com", "", "BAD_COMMAND"),
        ("web click a b", "", "BAD_COMMAND"),
        ("web click a", "    with: {selector: b}\n", "BAD_COMMAND"),
        ("web fill a", "", "BAD_COMMAND"),
        ("web wait a", "    with: {state: gone}\n", "SCHEMA"),
        ("web extract a", "    with: {al: true}\n", "SCHEMA"),
        ("web extract a", "    with: {all: true, fields: {x: y}}\n", "BAD_COMMAND"),
        ("web download", "", "BAD_COMMAND"),
        ("web download https://example.com/x", "    with: {download: a b}\n", "BAD_FILE"),
        ("web download https://example.com/x ../x", "", "BAD_FOLDER"),
        ("web download https://example.com/x x", "    with: {selector: a}\n", "BAD_COMMAND"),
        ("web select a secret:env:TOKEN", "", "SECRET_MISPLACED"),
        ("web click secret:env:TOKEN", "", "SECRET_MISPLACED"),
        ("web click a", "    effect: read\n", "NOT_OF_THIS_STEP"),
        ("web click a", "    stdin: x\n", "NOT_OF_THIS_STEP"),
        ("web click $b.stdout", "", "UNKNOWN_REFERENCE"),
    ],
)
def test_a_mistake_is_reported_with_its_line(command: str, more: str, code: str) -> None:
    found = [(one.code, one.line) for one in check(document(command, more), "p.yml") if one.severity == "error"]
    assert found
    assert found[0][0] == code, found
    assert found[0][1] in (5, 6)


def test_the_published_format_has_four_commands() -> None:
    steps = ("navigate https://example.com", "click a", "fill a b", "snapshot", "select a b", "wait a", "extract a")
    text = "name: N\nsteps:\n" + "".join(f"  - {{id: s{n}, command: web {one}}}\n" for n, one in enumerate(steps))
    found = [problem.message for problem in beyond_format(parse(text, "p.yml"))]
    assert [name for name in ("select", "wait", "extract") if any(f"'web {name}'" in one for one in found)] == [
        *("select", "wait", "extract")
    ]
    assert len(found) == 3


def test_a_missing_browser_is_an_error_that_says_how_to_get_one() -> None:
    class Without(Surroundings):
        def browser_problem(self) -> CuebookError | None:
            return CuebookError("Web steps need Chromium.", fix="Install it.")

    (found,) = [one for one in check(document("web click a"), "p.yml", Without()) if one.severity == "error"]
    assert (found.code, found.line, found.fix) == ("NO_DRIVER", 4, "Install it.")
    assert "Web steps need Chromium." in found.message
    assert not [one for one in check(document("cli true"), "p.yml", Without()) if one.code == "NO_DRIVER"]


@pytest.mark.parametrize(
    ("around", "line", "words"),
    [
        ("    parallel: all\n    branches:\n      x:\n        - {STEP}\n      y:\n        - {STEP}\n", 9, "same time"),
        ("    for_each: [1, 2]\n    concurrency: 2\n    steps:\n      - {STEP}\n", 7, "2 items at the same time"),
        ("    for_each: [1, 2]\n    steps:\n      - {STEP}\n", 0, ""),
        ("    parallel: any\n    branches:\n      x: [{STEP}]\n      y: [{id: o, command: cli true}]\n", 0, ""),
    ],
)
def test_the_one_page_is_not_used_at_the_same_time(around: str, line: int, words: str) -> None:
    text, count = "name: P\nsteps:\n  - id: flow\n" + around, 0
    while "{STEP}" in text:
        text, count = text.replace("{STEP}", f"{{id: s{count}, command: web extract h1}}", 1), count + 1
    found = [one for one in check(text, "p.yml") if one.severity == "error"]
    assert [(one.line, one.code) for one in found] == ([(line, "BAD_STRUCTURE")] if line else [])
    assert all(words in one.message and "has one page" in one.message for one in found)

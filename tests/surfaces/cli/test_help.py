"""The list of commands is short and grouped, and the older names of commands still work."""

from __future__ import annotations

import re

import pytest

from cuebook.surfaces.cli import COMMANDS, GROUPS, INSTEAD
from tests.docs.test_operations_guide import parsed, words_of
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS


def test_the_first_screen_fits_a_small_terminal(bare_cli: CommandLine) -> None:
    shown = bare_cli.call("--help").out.splitlines()
    assert len(shown) < 24
    assert max(map(len, shown)) <= 80


def test_every_command_is_in_one_group_or_has_another_name(bare_cli: CommandLine) -> None:
    grouped = [name for parts in GROUPS.values() for part in parts for name in part]
    assert sorted([*grouped, *INSTEAD]) == sorted(COMMANDS)
    short = bare_cli.call("--help").out
    assert [group for group in GROUPS if f"\n  {group} " in short] == [
        "Write",
        "Run",
        "Inspect",
        "Operate",
        "Keep",
        "Set up",
    ]
    assert all(name in short for name in grouped)


def test_the_long_list_has_a_line_for_every_command(bare_cli: CommandLine) -> None:
    listed = bare_cli.call("--commands").out
    for name, (_, line) in COMMANDS.items():
        shown = f"{name} {line}" in " ".join(listed.split())
        assert shown != (name in INSTEAD), name


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (["summary", "tea.md"], ["explain", "tea.md", "--summary"]),
        (["summary", "tea.md", "--json"], ["explain", "--summary", "tea.md", "--json"]),
        (["info", "tea.md"], ["explain", "tea.md", "--summary"]),
        (["parse", "tea.md"], ["validate", "tea.md", "--parse"]),
        (["parse", "tea.md", "--json"], ["validate", "--parse", "tea.md", "--json"]),
        (["verify", "RUN"], ["audit", "RUN", "--verify"]),
        (["verify", "RUN", "--json"], ["audit", "--verify", "--json", "RUN"]),
    ],
)
def test_an_older_name_says_the_same_as_the_option(cli: CommandLine, older: list[str], newer: list[str]) -> None:
    if "RUN" in older:
        assert cli.call("run", "tea.md").code == 0
        run = cli.call("runs", "--json").object[0]["run"]
        older, newer = ([word.replace("RUN", run) for word in words] for words in (older, newer))
    old, new = cli.call(*older), cli.call(*newer)
    assert (old.code, old.out, old.err) == (new.code, new.out, new.err)
    assert old.code == 0
    assert old.out


@pytest.mark.parametrize("name", ["restart", "fork"])
def test_a_run_is_restarted_with_a_changed_setting(cli: CommandLine, name: str) -> None:
    assert cli.call("run", "tea.md").code == 0
    run = cli.call("runs", "--json").object[0]["run"]
    assert cli.call(name, run, "2", "--max-tokens", "77").code == 0
    made = cli.call("runs", "--json").object[0]["run"]
    assert cli.call("show", made, "--json").object["parent"] == run
    assert "77" in cli.call("events", made, "--json").out


@pytest.mark.parametrize(
    "args",
    [
        ["validate", "--parse", "tea.md", "tea.md"],
        ["validate", "--parse", "tea.md", "--strict"],
        ["audit", "r1", "--verify", "--export", "x"],
        ["audit", "--verify", "--file", "x"],
        ["audit", "--verify"],
    ],
)
def test_options_that_do_not_go_together_are_refused(cli: CommandLine, args: list[str]) -> None:
    ran = cli.call(*args)
    assert (ran.code, ran.out) == (2, "")


def test_what_operators_call_has_examples() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    for name in ("backup", "restore", "prune", "delete", "erase", "export", "import", "usage", "audit", "schedule add"):
        found = re.search(rf"Usage: cuebook {name} .*?^Options:", text, re.M | re.S)
        assert found is not None, name
        assert f"cuebook {name} " in found[0].partition("Examples:")[2], name


@pytest.mark.parametrize(
    "line", re.findall(r"^  (cuebook .+)$", (DOCS / "reference" / "cli.md").read_text(), re.MULTILINE)
)
def test_every_example_can_be_called(line: str) -> None:
    example = str(DOCS.parent / "examples" / "explain.playbook.md")
    parsed([example if word == "FILE" else word for word in words_of(line)])

"""`cuebook test` prints like a test runner, and its exit code says whether the cases passed."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

CASES = """\
- name: green tea is served
  replies: [Sencha, Brewed, Served]
  expect: {prompts: {2: Brew the green tea.}, artifact: Served}
- name: black tea is served
  inputs: {kind: black}
  replies: [Assam, Brewed, Served]
  expect: {prompts: {2: Brew the green tea.}}
"""


@pytest.fixture
def tested(bare_cli: CommandLine) -> CommandLine:
    bare_cli.write("tea.test.yaml", CASES)
    return bare_cli


def test_a_line_for_each_case_then_what_failed_then_the_sum(tested: CommandLine) -> None:
    ran = tested.call("test")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (1, "")
    assert lines[0] == "tea.test.yaml"
    assert [line.rpartition("  ")[0] for line in lines[1:3]] == [
        "  passed  green tea is served",
        "  FAILED  black tea is served",
    ]
    assert lines[4:8] == [
        "black tea is served (tea.test.yaml:4)",
        "  tea.test.yaml:7: prompt of step 2",
        "    expected: to contain: Brew the green tea.",
        "    got:      Brew the black tea.",
    ]
    assert lines[-1].startswith("1 passed, 1 failed in ")


def test_all_passed_is_exit_code_0(tested: CommandLine) -> None:
    ran = tested.call("test", "tea.md", "-k", "GREEN")
    assert (ran.code, ran.out.splitlines()[-1].startswith("1 passed in ")) == (0, True)


def test_a_word_that_no_case_has_is_an_error(tested: CommandLine) -> None:
    ran = tested.call("test", "-k", "coffee")
    assert (ran.code, ran.err) == (
        2,
        "cuebook: None of the 2 cases has 'coffee' in its name. Choose another word.\n",
    )


def test_json_holds_everything_about_every_case(tested: CommandLine) -> None:
    ran = tested.call("test", "--json")
    shown = ran.object
    assert (ran.code, shown["passed"], shown["failed"]) == (1, 1, 1)
    first, second = shown["cases"]
    assert (first["status"], first["run"]["artifact"], first["failures"]) == ("passed", "Served", [])
    assert second["failures"] == [
        {
            "line": 7,
            "step": "2",
            "about": "prompt of step 2",
            "expected": "to contain: Brew the green tea.",
            "got": "Brew the black tea.",
        }
    ]
    assert (second["file"], second["line"], second["run"]["ran"]) == ("tea.test.yaml", 4, ["1", "2", "3"])


def test_junit_is_also_written(tested: CommandLine) -> None:
    ran = tested.call("test", "--junit", "results.xml")
    assert ran.code == 1
    (suite,) = ET.parse(tested.work / "results.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("tea.test.yaml", "2", "1")
    unwritable = tested.call("test", "--junit", "no/such/folder.xml")
    assert (unwritable.code, "cannot be written" in unwritable.err) == (2, True)


def test_every_mistake_in_every_file_is_reported_and_nothing_is_run(tested: CommandLine) -> None:
    tested.write("other.md", "# Other\n\n## STEP 1: Do\n\nDo it.\n")
    tested.write("other.test.yaml", "- name: x\n  reply: [a]\n  expect: {ran: [2]}\n")
    tested.write("lost.test.yaml", "- name: x\n")
    ran = tested.call("test")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "cuebook: lost.test.yaml: its playbook is missing. Put one of these next to it: lost.playbook.md, lost.markdown,"
        " lost.pbasm, lost.yaml, lost.yml, lost.md, lost.pb.",
        "cuebook: other.test.yaml:2: Unknown key 'reply' in a case. Did you mean 'replies'?",
        "cuebook: other.test.yaml:3: The playbook has no step 2. Use one of: 1.",
    ]


def test_no_tests_is_an_error_that_says_how_to_write_one(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("test")
    assert ran.code == 2
    assert "Write NAME.test.yaml in the folder of a playbook: NAME.playbook.md, " in ran.err


def test_a_test_leaves_nothing_behind(tested: CommandLine) -> None:
    before = tested.files()
    tested.call("test")
    assert tested.files() == before


def test_a_failure_is_not_recorded(cli: CommandLine, server: ModelServer) -> None:
    cli.write("tea.test.yaml", "- name: x\n  model: test/echo-1\n  recorded: said.jsonl\n  expect: {ran: [1, 2, 3]}\n")
    server.replies = [401]
    assert cli.call("test", "--record").code == 1
    assert cli.call("test", "--record").code == 0, "the key is right now"
    assert (cli.call("test").code, len(server.requests)) == (0, 4)


def test_a_report_that_cannot_be_written_takes_no_details_away(tested: CommandLine) -> None:
    usual = tested.call("test")
    ran = tested.call("test", "--junit", "nowhere/results.xml")
    assert (ran.code, "--junit: nowhere/results.xml cannot be written" in ran.err) == (2, True)
    assert len(ran.out.splitlines()) == len(usual.out.splitlines()) > 3
    assert "FAILED" in ran.out


def test_a_recording_asks_the_real_model_once(cli: CommandLine, server: ModelServer) -> None:
    cli.write("tea.test.yaml", "- name: x\n  model: test/echo-1\n  recorded: said.jsonl\n  expect: {ran: [1, 2, 3]}\n")
    missing = cli.call("test")
    assert (missing.code, "`cuebook test --record` creates it." in missing.out) == (1, True)
    assert cli.call("test", "--record").code == 0
    assert (cli.call("test").code, cli.call("test", "--record").code, len(server.requests)) == (0, 0, 3)

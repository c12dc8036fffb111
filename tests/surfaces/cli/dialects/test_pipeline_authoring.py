"""Pipelines with the commands that run nothing: validate, summary, graph, and those that only Markdown has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.pipeline.samples import FULL
from tests.support.command_line import CommandLine

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
HELLO = "name: Say hello\nsteps:\n  - {id: hello, command: cli echo hello, effect: read}\n"


@pytest.fixture
def hello(bare_cli: CommandLine) -> Path:
    return bare_cli.write("hello.yml", HELLO)


@pytest.mark.usefixtures("hello")
def test_a_sound_pipeline_is_found_sound_also_in_a_folder(bare_cli: CommandLine) -> None:
    bare_cli.write("ci.yml", "name: CI\njobs: {a: {steps: []}}\n")
    ran = bare_cli.call("validate", ".")
    assert ran.code == 0
    assert ran.out.endswith("2 playbooks, no problems\n")
    assert bare_cli.call("validate", "hello.yml").out == "1 playbook, no problems\n"


@pytest.mark.usefixtures("hello")
def test_a_pipeline_with_misspelt_steps_is_reported_also_in_a_folder(bare_cli: CommandLine) -> None:
    bare_cli.write("step.yml", HELLO.replace("steps:", "step:"))
    bare_cli.write("compose.yml", "name: web\nservices: {a: {command: cli ls}}\n")
    for place in (".", "step.yml"):
        ran = bare_cli.call("validate", place)
        assert ran.code == 2
        assert "step.yml:2: error: Unknown key 'step' in the pipeline. Did you mean 'steps'?" in ran.out
        assert "compose.yml" not in ran.out


def test_a_folder_is_searched_for_pipelines_in_json(bare_cli: CommandLine) -> None:
    (bare_cli.work / "data").mkdir()
    bare_cli.write("data/package.json", '{"name": "x", "version": "1", "scripts": {"step": "y"}}')
    bare_cli.write("data/tsconfig.json", '{"name": "x", "compilerOptions": {}}')
    bare_cli.write("data/user.json", '{"id": 1, "name": "Ada"}')
    bare_cli.write("data/step.json", '{"id": 1, "name": "the next step"}')
    ran = bare_cli.call("validate", "data")
    assert (ran.code, "There are no playbooks in data" in ran.err) == (2, True)
    bare_cli.write("data/j2.json", '{"name": "J", "steps": [{"id": "a", "command": "cli ls", "effect": "read"}]}')
    assert bare_cli.call("validate", "data").out == "1 playbook, no problems\n"


@pytest.mark.parametrize("written", ["step", "Steps"])
def test_a_pipeline_with_misspelt_steps_is_reported_in_a_folder(bare_cli: CommandLine, written: str) -> None:
    bare_cli.write("x.yml", f"name: X\n{written}:\n  - {{id: a, command: cli ls}}\n")
    ran = bare_cli.call("validate", ".")
    assert ran.code == 2
    assert f"x.yml:2: error: Unknown key '{written}' in the pipeline. Did you mean 'steps'?" in ran.out


def test_a_pipeline_without_steps_has_only_that_finding(bare_cli: CommandLine) -> None:
    bare_cli.write("x.yml", "name: X\n")
    (found,) = bare_cli.call("validate", "x.yml", "--json").object["files"][0]["findings"]
    assert (found["code"], "has a name and a list of steps" in found["fix"]) == ("UNKNOWN_PLAYBOOK", True)
    assert "neither steps nor nodes" in bare_cli.call("run", "x.yml").err


@pytest.mark.parametrize("text", ["a: 1\n"])
def test_the_error_for_another_file_says_what_a_playbook_looks_like(bare_cli: CommandLine, text: str) -> None:
    bare_cli.write("x.yml", text)
    (found,) = bare_cli.call("validate", "x.yml", "--json").object["files"][0]["findings"]
    assert (found["code"], found["line"]) == ("UNKNOWN_PLAYBOOK", 1)
    assert "a pipeline ends in .yml, .yaml or .json and has a name and a list of steps" in found["fix"]
    (result,) = bare_cli.call("validate", "x.yml", "--sarif").object["runs"][0]["results"]
    assert result["ruleId"] == "UNKNOWN_PLAYBOOK"
    assert found["fix"] in bare_cli.call("run", "x.yml").err


def test_mistakes_have_lines_and_codes(bare_cli: CommandLine) -> None:
    bare_cli.write("bad.yml", FULL.replace("$test.stdout", "$tset.stdout").replace("mcp chat.say", "node run"))
    ran = bare_cli.call("validate", "bad.yml", "--json")
    assert ran.code == 2
    (file,) = ran.object["files"]
    found = {(one["code"], one["line"]) for one in file["findings"] if one["severity"] == "error"}
    assert found == {("UNKNOWN_REFERENCE", 23), ("BAD_COMMAND", 55)}
    out = bare_cli.call("validate", "bad.yml").out
    assert "bad.yml:23: error: steps.notes.stdin: '$tset.stdout' refers to an unknown step." in out
    log = bare_cli.call("validate", "bad.yml", "tea.md", "--sarif").object
    assert {one["ruleId"] for one in log["runs"][0]["results"]} == {code for code, _ in found}


def test_notes_do_not_fail_and_warnings_do_if_wanted(bare_cli: CommandLine) -> None:
    always = "".join(line for line in FULL.splitlines(keepends=True) if "condition: $test.exit_code" not in line)
    bare_cli.write("full.yml", always)
    assert bare_cli.call("validate", "--strict", "full.yml").code == 0
    bare_cli.write("odd.yml", HELLO.replace("echo hello", "echo hello | cat"))
    assert bare_cli.call("validate", "odd.yml").code == 0
    assert bare_cli.call("validate", "--strict", "odd.yml").code == 2


def test_a_pipeline_is_summed_up(bare_cli: CommandLine) -> None:
    bare_cli.write("full.yml", FULL)
    out = bare_cli.call("summary", "full.yml").out
    for line in (
        "Release it",
        "input     token (secret; default: env:HOOK_TOKEN)",
        "step      test (Run the tests): cli make 'unit tests' VERSION=${version}",
        "step      tag: cli git tag v${version} -n 5; asks first",
        "            if $post.error != true",
        "tools     chat.say, Read, WebFetch, github.get_issue",
        "models    anthropic/claude-sonnet-4",
        "secrets   ${token}, chat",
        "hosts     api.example.com, *.example.org",
    ):
        assert line in out.splitlines(), line
    made = bare_cli.call("summary", "full.yml", "--json").object
    assert (made["dialect"], made["id"], made["version"]) == ("pipeline", "release", "1.2")
    assert made["approvals"] == ["tag"]
    assert made["changing"] == ["notes", "tag", "post", "tell"]
    assert [one["namespace"] for one in made["steps"]] == ["cli", "llm", "cli", "http", "mcp"]


@pytest.mark.usefixtures("hello")
def test_a_pipeline_is_drawn(bare_cli: CommandLine) -> None:
    assert bare_cli.call("graph", "hello.yml").out == (
        'flowchart TD\n    start(["Say hello"])\n    s1["hello<br/>cli echo hello"]\n    finish(["end"])\n'
        "    start --> s1\n    s1 --> finish\n"
    )


@pytest.mark.usefixtures("hello")
@pytest.mark.parametrize("command", [("parse", "hello.yml"), ("convert", "hello.yml", "--to", "json")])
def test_what_only_markdown_has_says_so(bare_cli: CommandLine, command: tuple[str, ...]) -> None:
    ran = bare_cli.call(*command)
    assert ran.code == 2
    assert "this is a pipeline" in ran.err


def test_a_broken_pipeline_is_reported_as_a_pipeline(bare_cli: CommandLine) -> None:
    bare_cli.write("broken.yml", "name: A\nargs: {a: 1}\n")
    for command in ("validate", "summary", "graph"):
        ran = bare_cli.call(command, "broken.yml")
        assert ran.code == 2
        assert "'steps' is missing in the pipeline" in ran.out + ran.err


def test_a_run_is_drawn_with_what_became_of_its_steps(bare_cli: CommandLine) -> None:
    steps = "  - {id: b, command: cli echo b, effect: read}\n"
    bare_cli.write("ask.yml", HELLO.replace("effect: read}", "approval: required}") + steps)
    ran = bare_cli.call("run", "ask.yml", "--no-ask", "--json")
    assert ran.code == 3, ran
    drawn = bare_cli.call("graph", "--run", ran.object["run"]).out
    assert drawn.startswith('---\ntitle: "Say hello"\n---\nflowchart TD\n')
    assert "    class s1 current\n" in drawn


@pytest.mark.parametrize("name", ["newcomers-note.yml", "release/release.yml"])
def test_the_examples_are_sound_and_pass_their_tests(bare_cli: CommandLine, name: str) -> None:
    found = bare_cli.call("validate", EXAMPLES / name)
    assert (found.code, "warning" in found.out) == (0, False), found.out
    ran = bare_cli.call("test", EXAMPLES / name)
    assert (ran.code, "failed" in ran.out) == (0, False), ran.out

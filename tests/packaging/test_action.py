"""The GitHub Action: its description matches its script, and the script, run as the runner would, reports the result."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support import command_line
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "action.py"
INPUTS = ["playbook", "inputs", "elicit", "output-path", "model", "strict"]
OUTPUTS = ["artifact-path", "status", "step-count", "warnings"]

TEA = """\
# Tea

## INPUTS

- `kind` (enum: green, black): Which tea
- `cups` (number: 2): How many

## STEP 1: Choose

Choose {{cups}} of {{kind}} tea.

@output(tea)

## STEP 2: Ask

@elicit(confirm, "Brew it?")
@output(go)

## STEP 3: Brew

```if go == "yes"```
### STEP 3a: Do
Brew {{tea}}.
```else```
### STEP 3b: Do not
Apologise.
```endif```

## ARTIFACTS

type: json
"""


@dataclass
class Ran:
    code: int
    log: str
    outputs: dict[str, str]
    summary: str


class Runner:
    """A runner of the service: a workspace, files for outputs and summary, and the environment."""

    def __init__(self, at: CommandLine) -> None:
        self.cli = at
        self.temporary = at.home.parent / "temporary"
        self.temporary.mkdir()
        at.write("tea.md", TEA)

    def run(self, **inputs: str) -> Ran:
        output, summary = self.temporary / "output", self.temporary / "summary"
        output.write_text("")
        summary.write_text("")
        given = {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        runner = {"RUNNER_TEMP": str(self.temporary), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        done = self.cli.fork(program=SCRIPT, more={**runner, **given}) or self._started({**runner, **given})
        assert done.err == ""
        return Ran(done.code, done.out, outputs_in(output.read_text()), summary.read_text())

    def _started(self, more: Mapping[str, str]) -> command_line.Ran:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            cwd=self.cli.work,
            env={**self.cli.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return command_line.finished(process)

    def read(self, path: str) -> str:
        return (self.cli.work / path).read_text()


def outputs_in(text: str) -> dict[str, str]:
    """As the runner reads them: `name<<mark`, lines, `mark`."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        if not line:
            continue
        name, between, mark = line.partition("<<")
        assert between, f"{line} is no output"
        content: list[str] = []
        for one in lines:
            if one == mark:
                break
            content.append(one)
        found[name] = "\n".join(content)
    return found


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


@pytest.fixture
def runner(tmp_path: Path, server: ModelServer) -> Runner:
    return Runner(CommandLine(tmp_path, server.url))


# --- the script ---------------------------------------------------------------------------------------------


def test_a_playbook_is_run_unattended_and_its_artifact_is_kept(runner: Runner, server: ModelServer) -> None:
    server.replies = ["Sencha", '{"brewed": true}']
    ran = runner.run(playbook="tea.md", inputs="kind: green\ncups: 3")
    assert ran.code == 0, ran.log
    path = ran.outputs.pop("artifact-path")
    assert ran.outputs == {"status": "ok", "step-count": "3", "warnings": ""}
    assert re.fullmatch(r"out/\w+\.json", path)
    assert runner.read(path) == '{"brewed": true}'
    assert server.prompts == ["Choose 3 of green tea.", "Brew Sencha."]
    assert ran.summary.startswith("## tea.md: ok\n")
    assert "| 3a | Do | completed |  |" in ran.summary
    assert '{"brewed": true}' in ran.summary
    assert ran.log.splitlines() == ["step 1: Choose", "step 2: Ask", "step 3: Brew", "step 3a: Do"]


def test_answers_the_model_and_the_place_of_the_artifact_are_inputs(runner: Runner, server: ModelServer) -> None:
    server.replies = ["Sencha", "Sorry"]
    ran = runner.run(
        playbook="tea.md",
        inputs='{"kind": "black"}',
        elicit="2: no",
        output_path="made/tea.txt",
        model="test/other",
        strict="false",
    )
    assert (ran.code, ran.outputs["status"], ran.outputs["artifact-path"]) == (0, "ok", "made/tea.txt")
    assert runner.read("made/tea.txt") == "Sorry"
    assert server.prompts[-1] == "Apologise."
    assert server.requests[0]["model"] == "other"
    again = runner.run(playbook="tea.md", inputs="kind: black", output_path="made")
    assert re.fullmatch(r"made/\w+\.json", again.outputs["artifact-path"])


def test_a_failed_run_still_writes_all_outputs(runner: Runner, server: ModelServer) -> None:
    server.replies = ["Sencha", 400]
    ran = runner.run(playbook="tea.md", inputs="kind: green")
    assert (ran.code, ran.outputs["status"], ran.outputs["step-count"]) == (1, "failed", "2")
    assert ran.outputs["artifact-path"] == ""
    assert "refused by the test" in ran.summary
    assert "| 3a | Do | failed |" in ran.summary
    assert "::error file=tea.md::" in ran.log


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "No playbook is set."),
        ({"playbook": "none.md"}, "There is no file none.md"),
        ({"playbook": "tea.md"}, "Missing input: kind (one of green, black)."),
        ({"playbook": "tea.md", "inputs": "kind: red"}, "kind must be one of green, black"),
        ({"playbook": "tea.md", "inputs": "- kind"}, "inputs:1: expected a table of names and values."),
        ({"playbook": "tea.md", "inputs": "kind: green\nkind: black"}, "inputs:2: 'kind' is defined twice."),
        ({"playbook": "tea.md", "inputs": "kind: green", "elicit": "4: no"}, "elicit: the playbook has no step 4."),
        ({"playbook": "tea.md", "inputs": "kind: green", "elicit": "2: [no]"}, "elicit:1: the answer for step 2"),
        (
            {"playbook": "tea.md", "inputs": "kind: green", "strict": "very"},
            "strict: expected 'true' or 'false', got 'very'.",
        ),
        ({"playbook": "tea.md", "inputs": "kind: green", "model": "nobody/x"}, "There is no provider `nobody`."),
    ],
)
def test_invalid_inputs_are_reported_and_nothing_is_asked(
    runner: Runner, server: ModelServer, inputs: dict[str, str], words: str
) -> None:
    ran = runner.run(**inputs)
    assert (ran.code, ran.outputs["status"], ran.outputs["step-count"], server.requests) == (1, "failed", "0", [])
    assert words in ran.log
    assert ": failed\n" in ran.summary


def test_an_invalid_answer_fails_the_run(runner: Runner, server: ModelServer) -> None:
    ran = runner.run(playbook="tea.md", inputs="kind: green", elicit="2: perhaps")
    assert (ran.code, ran.outputs["status"]) == (1, "failed")
    assert "'perhaps' is neither yes nor no" in ran.summary
    assert "The run is failed at step 2" in ran.log


ODD = "# Odd\n\n## STEP 1: Do\n\nDo {{it}}.\n"


def test_warnings_are_an_output_and_with_strict_a_failure(runner: Runner, server: ModelServer) -> None:
    runner.cli.write("odd.md", ODD)
    ran = runner.run(playbook="odd.md")
    assert (ran.code, ran.outputs["status"]) == (0, "ok")
    assert "odd.md:5: " in ran.outputs["warnings"]
    assert "::warning file=odd.md::" in ran.log
    strict = runner.run(playbook="odd.md", strict="true")
    assert (strict.code, strict.outputs["status"], len(server.requests)) == (1, "failed", 1)
    assert "Nothing was run." in strict.summary


def test_with_strict_a_warning_fails_the_run_and_the_artifact_is_kept(runner: Runner, server: ModelServer) -> None:
    runner.cli.write(
        "odd.md", '# Odd\n\n## STEP 1: Do\n\nSay a or b.\n\n@output(x: enum, "a", "b")\n\n## STEP 2: Use\n\n{{x}}\n'
    )
    server.replies = ["neither of them", "end"]
    ran = runner.run(playbook="odd.md", strict="true", output_path="it.md")
    assert (ran.code, ran.outputs["status"], runner.read("it.md")) == (1, "failed", "end")
    assert "is not one of a, b" in ran.outputs["warnings"]


def test_a_run_in_which_no_step_had_anything_to_do_is_skipped(runner: Runner) -> None:
    book = '# None\n\n## INPUTS\n\n- `way` (string): W\n\n## STEP 1: Do\n\n```if way == "a"```\nDo it.\n```endif```\n'
    runner.cli.write("none.md", book)
    ran = runner.run(playbook="none.md", inputs="way: b")
    assert (ran.code, ran.outputs["status"], ran.outputs["step-count"]) == (0, "skipped", "0")
    assert ran.outputs["artifact-path"] == ""


def test_a_needed_approval_fails_the_run_and_says_what_to_do(runner: Runner) -> None:
    runner.cli.write("act.md", '# Act\n\n## STEP 1: Do\n\n@tool(builtin, Bash, {"command": "touch x"})\n')
    ran = runner.run(playbook="act.md")
    assert (ran.code, ran.outputs["status"]) == (1, "failed")
    assert "needs approval" in ran.log
    assert not (runner.cli.work / "x").exists()


def test_a_models_words_become_neither_output_nor_command(runner: Runner, server: ModelServer) -> None:
    evil = "::set-output name=status::ok\nstatus<<x\nfailed\nx\n::error::boo\n```` </details> <script>"
    server.replies = ["a", evil]
    ran = runner.run(playbook="tea.md", inputs="kind: green")
    assert list(ran.outputs) == OUTPUTS
    assert ran.outputs["status"] == "ok"
    assert "boo" not in ran.log
    assert f"`````text\n{evil}\n`````" in ran.summary


def test_a_models_words_are_not_logged_and_are_text_in_the_summary(runner: Runner, server: ModelServer) -> None:
    runner.cli.write(
        "odd.md",
        '# Odd\n\n## STEP 1: Do\n\nSay a or b.\n\n@output(x: enum, "a", "b")\n\n## STEP 2: Ask\n\n'
        '@tool(builtin, Bash, {"command": "touch {{x}}"})\n',
    )
    server.replies = ["![pixel](https:" + "//evil.example/p.png) <img src=x> www.evil.example **b** `c` | d $e$ ~f~"]
    ran = runner.run(playbook="odd.md")
    assert (ran.code, ran.outputs["status"]) == (1, "failed")
    assert "pixel" in ran.outputs["warnings"]
    assert "::warning file=odd.md::The run had 1 warning." in ran.log
    assert "::error file=odd.md::The run needs approval at step 2" in ran.log
    assert "pixel" not in ran.log
    assert "evil" not in ran.log
    lines = [line for line in ran.summary.split("\n") if "evil" in line]
    assert lines
    for line in lines:
        shown = re.sub(r"&#\d+;", "", line.removeprefix("- ").removeprefix("> "))
        assert not re.search(r"[!*:<>@\\\[\]_`|~$]|www\.", shown), line
    assert any("![pixel](https:" + "//evil" in html.unescape(line) for line in lines), "nothing of it is lost"


def test_numbers_reach_the_playbook_as_they_are_written(runner: Runner, server: ModelServer) -> None:
    given = "- `n` (string): N\n- `l` (string): L\n- `d` (string): D\n"
    runner.cli.write("n.md", f"# N\n\n## INPUTS\n\n{given}\n## STEP 1: Do\n\n{{{{n}}}} {{{{l}}}} {{{{d}}}}\n")
    assert runner.run(playbook="n.md", inputs="n: 00123\nl: [0x1F, 1.10]\nd: 2024-01-02").code == 0
    assert server.prompts == ['00123 ["0x1F", 1.10] 2024-01-02']


@pytest.mark.embedded
def test_without_a_model_the_embedded_one_is_asked(tmp_path: Path) -> None:
    made = CommandLine(tmp_path)
    made.environ["PYTHONPATH"] = made.environ["PYTHONPATH"].partition(":")[2]
    made.environ["CUEBOOK_MAX_TOKENS"] = "8"
    made.write("say.md", "# Say\n\n## STEP 1: Do\n\nSay hello.\n")
    ran = Runner(made).run(playbook="say.md")
    assert (ran.code, ran.outputs["status"], ran.outputs["step-count"]) == (0, "ok", "1")
    assert "model local/" in ran.summary


# --- its description ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load((ROOT / "action.yml").read_text())
    return loaded


def test_the_action_has_the_inputs_and_outputs_that_it_should(described: dict[str, Any]) -> None:
    assert list(described["inputs"]) == INPUTS
    assert list(described["outputs"]) == OUTPUTS
    for name, output in described["outputs"].items():
        assert output["value"] == f"${{{{ steps.run.outputs.{name} }}}}"
    assert all(one["description"] for one in (*described["inputs"].values(), *described["outputs"].values()))


def test_every_input_reaches_the_script_by_the_environment_alone(described: dict[str, Any]) -> None:
    assert described["runs"]["using"] == "composite"
    install, run = described["runs"]["steps"]
    given = {name: f"${{{{ inputs.{name} }}}}" for name in INPUTS}
    assert run["env"] == {f"INPUT_{name.upper().replace('-', '_')}": value for name, value in given.items()}
    assert run["id"] == "run"
    for step in (install, run):
        assert "${{" not in step["run"], "an expression in a script is a way in for whoever writes an input"


def test_everything_is_installed_from_the_checkout_with_pins(described: dict[str, Any], tmp_path: Path) -> None:
    """The installation step, with a `python3` that prints its arguments."""
    install = described["runs"]["steps"][0]
    stand_in = tmp_path / "bin" / "python3"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\ntest "$1" = -c || printf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    environ = {"PATH": f"{stand_in.parent}:/usr/bin:/bin", "GITHUB_ACTION_PATH": "/at/a place", "RUNNER_TEMP": "/tmp/t"}
    for model, wanted in (
        ("", ["run", "build", "model"]),
        ("local", ["run", "build", "model"]),
        ("a/b", ["run", "build"]),
    ):
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", install["run"]],
            env={**environ, "INPUT_MODEL": model},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.splitlines() == [
            "/at/a place/scripts/environment.py",
            "--project",
            "/tmp/t/cuebook-environment",
            *(f"/at/a place/requirements/{name}.txt" for name in wanted),
        ]
    for name in ("run", "build", "model"):
        assert (ROOT / "requirements" / f"{name}.txt").is_file()


def test_it_names_no_package_index(described: dict[str, Any]) -> None:
    text = (ROOT / "action.yml").read_text() + SCRIPT.read_text()
    assert not re.search(r"https?:/{2}|-index-|find-links|trusted-host|pip install", text)
    assert "uses" not in {key for step in described["runs"]["steps"] for key in step}

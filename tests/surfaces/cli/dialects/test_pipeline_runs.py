"""Pipelines on the command line and from Python: options from arguments, the live view, continuing, and tests."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cuebook
from tests.performers.mcp.harness import GOOD
from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import TerminalSession

COUNT = """\
name: Count
args:
  most: {type: integer, default: 10, description: How far}
  loud: {type: boolean, default: false}
  words: {type: array, default: []}
  token: {secret: true, required: false, description: For the log.}
steps:
  - id: list
    name: List them
    command: cli seq ${most}
    effect: read
  - id: shout
    command: cli echo loud
    effect: read
    condition: ${loud}
  - id: keep
    name: Keep them
    command: cli tee out.txt
    stdin: $list.stdout
    approval: required
    rollback_hint: Remove out.txt.
"""


@pytest.fixture
def count(cli: CommandLine) -> Path:
    return cli.write("count.yml", COUNT)


def waiting(cli: CommandLine, *args: str) -> str:
    ran = cli.call("run", "count.yml", *args, "--json")
    assert ran.code == 3
    return str(ran.object["run"])


# --- arguments ------------------------------------------------------------------------------------------------


def test_arguments_are_options_with_their_types(cli: CommandLine, count: Path) -> None:
    words = cli.call("run", count, "--help").out
    assert re.search(r"--most INTEGER +How far \[default: 10\]", words)
    assert re.search(r"--token HANDLE +For the log. The handle of the secret, never its value", words)
    run = waiting(cli, "--most", "3", "--loud", "true", "--words", '["a"]')
    shown = cli.call("show", run, "--json").object
    assert shown["outputs"] == {"list": "1\n2\n3\n", "shout": "loud\n"}


def test_options_of_other_dialects_are_not_shown_and_are_refused_in_words(cli: CommandLine, count: Path) -> None:
    words = cli.call("run", count, "--help").out
    assert ("--cwd" in words, "--until-decision" in words) == (True, False)
    assert "--cwd" not in cli.call("run", "tea.md", "--help").out
    ran = cli.call("run", count, "--until-decision")
    assert (ran.code, "The option 'until_decision' is not available for this playbook." in ran.err) == (2, True)


@pytest.mark.parametrize(("args", "words"), [(("--most", "many"), "must be a whole number"), (("--loud", "3"), "loud")])
def test_an_argument_that_does_not_fit_starts_nothing(
    cli: CommandLine, count: Path, args: tuple[str, ...], words: str
) -> None:
    ran = cli.call("run", count, *args)
    assert (ran.code, words in ran.err) == (2, True)
    assert not cli.store.exists()


def test_a_secret_argument_takes_a_handle_and_never_a_value(cli: CommandLine, count: Path) -> None:
    ran = cli.call("run", count, "--token", "hunter2-hunter2")
    assert ran.code == 2
    assert "must be the handle of a secret" in ran.err
    assert "hunter2" not in ran.err
    assert waiting(cli, "--token", "env:SOME_TOKEN")


# --- looking on -----------------------------------------------------------------------------------------------


def test_the_live_view_sums_up_what_commands_give_and_shows_the_preview(cli: CommandLine, count: Path) -> None:
    err = cli.call("run", count).err
    assert "  runs seq 10\n  exit code 0, 10 lines\n  | 1\n  | 2\n  | 3\n  | …\n" in err
    assert "step shout\n  skipped: its condition does not hold: ${loud}" in err
    assert "Step keep, Keep them, asks for approval." in err
    assert "  output of list:\n  | 1\n" in err
    assert "  to undo it:\n  | Remove out.txt." in err
    assert "tokens" not in err  # no model is called


def test_an_approver_at_the_terminal_sees_the_output_and_how_to_undo_it(cli: CommandLine, count: Path) -> None:
    with TerminalSession(cli, "run", "count.yml", "--most", "2") as terminal:
        seen = terminal.until('approve, deny, or "later" (a reason may follow):')
        assert "output of list:" in seen
        assert "Remove out.txt." in seen
        assert not (cli.work / "out.txt").exists()
        terminal.type("approve fine\n")
        assert terminal.ended() == 0
    assert (cli.work / "out.txt").read_text() == "1\n2\n"


LONG = """\
name: Long
args:
  words: {type: string}
steps:
  - id: say
    command: cli sh -c 'echo ${words}'
    approval: required
"""


def test_an_approver_can_see_the_whole_of_what_would_be_done(cli: CommandLine) -> None:
    cli.write("long.yml", LONG)
    words = "x" * 2_000 + "rm -rf EVIL;" + "y" * 4_000
    ran = cli.call("run", "long.yml", "--words", words, "--json")
    run, (wait,) = ran.object["run"], ran.object["waits"]
    for where in (["inbox"], ["show", run], ["events", run]):
        printed = cli.call(*where, "--json").out
        assert "EVIL" not in printed.replace(words, ""), "what is listed and published stays short"
    assert f"  | sh -c 'echo {words}'\n" in cli.call("inbox", run).out
    preview = cli.call("inbox", wait["wait"], "--json").object["approval"]["preview"]
    assert preview["command"] == f"sh -c 'echo {words}'"


def test_an_approver_at_the_terminal_learns_where_to_see_all_of_it(cli: CommandLine) -> None:
    cli.write("long.yml", LONG)
    with TerminalSession(cli, "run", "long.yml", "--words", "x" * 3_000) as terminal:
        seen = terminal.until('approve, deny, or "later" (a reason may follow):')
        assert re.search(r"in full: +cuebook inbox [0-9a-z]+", seen)
        terminal.type("later\n")
        terminal.ended()


def test_an_approver_who_is_asked_again_sees_why(cli: CommandLine) -> None:
    cli.write("deploy.yml", "name: D\nsteps:\n  - {id: go, command: cli sh deploy.sh, approval: required}\n")
    script = cli.write("deploy.sh", "true\n")
    ran = cli.call("run", "deploy.yml", "--json")
    assert "asked again" not in ran.err
    script.write_text("false\n")
    again = cli.call("decide", ran.object["run"], "approve")
    assert "  asked again: changed since it was approved: files deploy.sh\n" in again.err


def test_a_failing_command_shows_the_end_of_its_errors(cli: CommandLine) -> None:
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli ls nothing-here, effect: read}\n")
    ran = cli.call("run", "x.yml")
    assert ran.code == 1
    assert "  exit code 2, 1 line\n  | " in ran.err
    assert "nothing-here" in ran.err


def test_a_step_that_may_only_read_says_so_where_its_command_writes(cli: CommandLine) -> None:
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli touch it, effect: read}\n")
    ran = cli.call("run", "x.yml")
    assert ran.code == 1
    assert "The step has `effect: read`" in ran.err
    cli.write("y.yml", "name: Y\nsteps:\n  - {id: a, command: cli ls nothing-here, effect: read}\n")
    assert "effect: read" not in cli.call("run", "y.yml").err


def test_retries_contracts_and_postconditions_are_shown_as_they_happen(cli: CommandLine) -> None:
    cli.write(
        "x.yml",
        "name: X\nsteps:\n"
        "  - {id: a, command: cli ls nothing-here, effect: read, on_error: continue,"
        " retry: {max_attempts: 2, delay_ms: 1}}\n"
        "  - {id: b, command: cli echo 1, effect: read, on_error: continue,"
        " output: {type: json, schema: {type: object}}}\n"
        "  - {id: c, command: cli echo 1, effect: read, postcondition: {type: json_path, path: $, equals: 1}}\n",
    )
    ran = cli.call("run", "x.yml")
    assert ran.code == 0
    assert "attempt: 1 failed (exit_code)" in ran.err
    assert "contract: violated:" in ran.err
    assert "postcondition: holds: json_path passed" in ran.err


# --- going on -------------------------------------------------------------------------------------------------


def test_a_run_is_decided_audited_restarted_and_compared(cli: CommandLine, count: Path) -> None:
    run = waiting(cli, "--most", "2")
    done = cli.call("decide", run, "approve", "--reason", "seen it")
    assert (done.code, done.out) == (0, "1\n2\n")
    evidence = cli.call("audit", run, "--json").object
    keep = evidence["steps"][-1]
    assert keep["acts"][0]["action"]["argv"] == ["tee", "out.txt"]
    assert keep["acts"][0]["outcome"]["exit_code"] == 0
    assert (keep["decisions"][0]["purpose"], keep["decisions"][0]["by"]) == ("step", "local")
    assert keep["decisions"][0]["preview"]["to undo it"] == "Remove out.txt."
    assert evidence["steps"][1]["notes"]["condition"] == [{"text": "${loud}", "held": False}]
    again = cli.call("restart", run, "keep", "--json")
    assert (again.code, again.object["status"]) == (3, "awaiting_approval")
    denied = cli.call("decide", again.object["run"], "deny", "--json")
    assert (denied.code, denied.object["status"]) == (5, "cancelled")
    other = waiting(cli, "--most", "3")
    compared = cli.call("diff", run, other, "--json").object
    assert compared["same"] is False
    assert compared["inputs"]["most"] == [2, 3]


def test_a_step_that_only_reads_is_witnessed_with_its_ruling(cli: CommandLine, count: Path) -> None:
    evidence = cli.call("audit", waiting(cli), "--json").object
    act = evidence["steps"][0]["acts"][0]
    assert act["action"]["argv"] == ["seq", "10"]
    assert act["ruling"] == {"decision": "allow", "rules": ["a command that only reads is allowed (default)"]}


def test_a_dry_run_shows_every_step_and_does_nothing(cli: CommandLine, count: Path) -> None:
    before = cli.files()
    ran = cli.call("run", count, "--most", "4", "--token", "env:T", "--dry-run")
    assert ran.code == 0
    assert "=== Step list: List them\n--- command\nseq 4\n" in ran.out
    assert "--- if ${loud}, which is false, so the step is skipped" in ran.out
    assert "--- approval\nStep keep, Keep them, asks for approval.\n--- command\ntee out.txt\n" in ran.out
    assert "--- stdin\n$list.stdout" in ran.out
    assert cli.files() == before
    shown = cli.call("run", count, "--dry-run", "--json").object
    assert [one["runs"] for one in shown] == [True, False, True]


def test_explain_shows_the_steps_what_they_touch_and_what_models_may_use(cli: CommandLine, count: Path) -> None:
    words = cli.call("explain", count, "--most", "4").out
    assert "  list List them: runs seq 4" in words
    assert "  keep Keep them: asks for approval, then runs tee out.txt" in words
    assert "ask   command" in words
    assert "no model is called" in words


def test_a_new_pipeline_is_valid_and_runs(cli: CommandLine) -> None:
    assert cli.call("new", "report", "--dialect", "pipeline").code == 0
    assert cli.call("validate", "report.yml").code == 0
    ran = cli.call("run", "report.yml", "--json")
    assert (ran.code, ran.object["status"]) == (3, "awaiting_approval")
    assert cli.call("decide", ran.object["run"], "approve").code == 0
    assert "report.yml" in (cli.work / "report.txt").read_text()


def test_a_model_drafts_a_pipeline(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["```yaml\n" + COUNT + "```"]
    assert cli.call("new", "made", "--dialect", "pipeline", "--from", "count").code == 0
    assert "name: Count" in (cli.work / "made.yml").read_text()
    assert "You write pipelines" in json.dumps(server.requests[0])


# --- `cuebook test` -------------------------------------------------------------------------------------------

CHECKED = """\
name: Checked
args: {version: {type: string, default: "1"}}
steps:
  - id: tests
    command: cli run-tests --fast
    retry: {max_attempts: 2, delay_ms: 3600000}
  - id: tag
    command: cli git tag v${version}
    stdin: $tests.stdout
    approval: required
  - id: post
    command: http POST https://example.com/hook
    with: {json: {version: "${version}"}}
    postcondition: {type: http_status, equals: 201}
"""


def outcome_of(cli: CommandLine, cases: str, *args: str) -> Ran:
    cli.write("checked.yml", CHECKED)
    cli.write("checked.test.yaml", cases)
    return cli.call("test", *args)


def test_commands_requests_and_approvals_are_what_a_case_says(cli: CommandLine) -> None:
    cases = """\
- name: it goes through
  inputs: {version: "2"}
  commands:
    tests: [{exit_code: 1, stderr: flaky}, "3 passed"]
    tag: ""
  requests: {post: 201}
  approvals: {tag: approve it is time}
  expect:
    ran: [tests, tag, post]
    approvals: [tag]
    outputs: {tests: 3 passed}
    commands: {tag: {contains: [git tag v2, 3 passed]}}
    requests: {post: ['POST https://example.com/hook', '{"version":"2"}']}
- name: a refusal cancels it
  commands: {tests: ok}
  approvals: {tag: deny not today}
  expect: {status: cancelled, ran: [tests, tag]}
- name: nobody decides
  commands: {tests: ok}
  expect: {status: awaiting_approval}
- name: the hook says no
  commands: {tests: ok, tag: ok}
  requests: {post: {status: 500, json: {why: broken}}}
  approvals: {tag: approve}
  expect: {status: failed, error: postcondition}
- name: what is not said is not done
  expect: {status: failed, error: has no result for step tests}
"""
    ran = outcome_of(cli, cases)
    assert (ran.code, ran.out.count("passed  ")) == (0, 5), ran.out


def test_a_case_that_expects_something_else_fails(cli: CommandLine) -> None:
    cases = """\
- name: wrong
  commands: {tests: ok, tag: ok}
  requests: {post: 201}
  approvals: {tag: approve}
  expect:
    approvals: []
    commands: {tag: git push, tests: run-tests}
    requests: {tests: GET}
"""
    ran = outcome_of(cli, cases)
    assert ran.code == 1
    assert "steps that asked for approval" in ran.out
    assert "to contain: git push" in ran.out
    assert "nothing was sent in this step" in ran.out


REAL = """\
- name: for real
  real: [a]
  expect: {outputs: {a: made}}
"""


def test_a_step_is_performed_for_real_only_if_the_test_and_the_flag_allow_it(cli: CommandLine) -> None:
    cli.write("real.yml", "name: Real\nsteps:\n  - {id: a, command: cli tee made.txt, stdin: made}\n")
    cli.write("real.test.yaml", REAL)
    refused = cli.call("test")
    assert (refused.code, "for real, which was not allowed" in refused.out) == (1, True)
    assert not (cli.work / "made.txt").exists()
    ran = cli.call("test", "--real")
    assert ran.code == 0, ran.out
    assert (cli.work / "made.txt").read_text() == "made"


def test_a_mistake_in_a_case_is_reported_with_its_line(cli: CommandLine) -> None:
    ran = outcome_of(
        cli, "- name: x\n  commands: {nothing: a}\n  approvals: {tag: perhaps}\n  requests: {post: {zzz: 1}}\n"
    )
    assert ran.code == 2
    assert "checked.test.yaml:2: The playbook has no step nothing." in ran.err
    assert "checked.test.yaml:3: 'perhaps' is not a decision." in ran.err
    assert "checked.test.yaml:4:" in ran.err


# --- from Python ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("CUEBOOK_STORE", str(tmp_path / "runs.db"))
    monkeypatch.chdir(place)
    return place


def test_python_runs_a_pipeline_with_arguments_and_decides(folder: Path) -> None:
    result = cuebook.run(COUNT, {"most": 2})
    assert (result.status, result.outputs) == ("awaiting_approval", {"list": "1\n2\n"})
    assert result.waits[0].details["preview"]["output of list"] == "1\n2\n"
    assert not (folder / "out.txt").exists()
    result = result.decide("approve", reason="fine")
    assert result.ok
    assert (folder / "out.txt").read_text() == "1\n2\n"
    audited = result.audit()
    assert audited.verdict.broken_at is None
    assert audited.evidence.steps[-1].decisions[0].reason == "fine"


def test_python_decides_approvals_as_they_come(folder: Path) -> None:
    seen: list[Any] = []

    def decide(wait: cuebook.Wait) -> tuple[str, str]:
        seen.append(wait.details["preview"]["to undo it"])
        return "approve", "checked"

    assert cuebook.run(COUNT, {"most": 2}, decide=decide).ok
    assert seen == ["Remove out.txt."]
    refused = cuebook.run(COUNT, {"most": 2}, decide=lambda wait: "deny")
    assert refused.status == "cancelled"
    assert cuebook.run(COUNT, decide=lambda wait: None).status == "awaiting_approval"


def test_python_is_shown_the_whole_of_what_it_decides_about(folder: Path) -> None:
    words = "x" * 2_000 + "rm -rf EVIL;" + "y" * 4_000
    seen: list[str] = []

    def decide(wait: cuebook.Wait) -> None:
        seen.append(wait.details["preview"]["command"])

    waiting = cuebook.run(LONG, {"words": words}, decide=decide)
    seen.append(waiting.waits[0].details["preview"]["command"])
    assert seen == [f"sh -c 'echo {words}'"] * 2


def test_python_reports_what_is_wrong_with_arguments(folder: Path) -> None:
    with pytest.raises(cuebook.BadInput, match="most must be a whole number"):
        cuebook.run(COUNT, {"most": "x"})
    with pytest.raises(cuebook.BadInput, match="handle of a secret"):
        cuebook.run(COUNT, {"token": "hunter2-hunter2"})
    book = cuebook.load(_written(folder))
    assert [(one.name, one.type, one.required) for one in book.inputs][-1] == ("token", "secret", False)
    assert [step.label for step in book.steps] == ["list", "shout", "keep"]


def _written(folder: Path) -> Path:
    place = folder / "count.yml"
    place.write_text(COUNT)
    return place


# --- what is said of what comes next ---------------------------------------------------------------------------


def test_what_comes_next_names_the_store_that_was_given(cli: CommandLine, count: Path) -> None:
    ran = cli.call("run", count, "--store", "my runs.db")
    run = ran.err.rpartition("\nrun: ")[2].partition("\n")[0]
    assert f"\nin full: cuebook inbox {run} --store 'my runs.db'\n" in ran.err
    assert f"\nnext: cuebook decide {run} approve|deny --store 'my runs.db'\n" in ran.err
    shown = cli.call("inbox", run, "--store", "my runs.db").out
    assert "approve --reason WHY --store 'my runs.db'\n" in shown
    assert "always:" not in shown, "no rule takes away what a step asks for"
    approved = cli.call("decide", run, "approve", "--store", "my runs.db")
    assert "\nstep keep: Keep them (continued)\n  runs tee out.txt\n" in approved.err


def test_a_run_that_failed_says_once_where_and_that_it_keeps_its_playbook(cli: CommandLine) -> None:
    cli.write("fail.yml", "name: F\nsteps:\n  - {id: no, command: cli 'false', effect: read}\n")
    ran = cli.call("run", "fail.yml")
    assert "\nwhy: Step no failed: The command failed (exit code 1).\n" in ran.err
    words = "\nif edited: `cuebook run fail.yml` uses the current text of the playbook; a retry uses the original\n"
    assert words in ran.err


def test_a_missing_secret_is_asked_for_by_its_handle(cli: CommandLine) -> None:
    cli.write("count.yml", COUNT.replace("required: false", "required: true"))
    assert "Pass --token HANDLE. A handle is env:NAME," in cli.call("run", "count.yml").err


def test_what_a_step_gave_is_changed_in_a_new_run(cli: CommandLine) -> None:
    cli.write(
        "ask.yml",
        "name: Ask\nsteps:\n"
        "  - {id: a, command: cli cat a.json, effect: read, output: {type: json, schema: {type: object}}}\n"
        "  - {id: b, command: 'cli echo v is ${a.json.v}, exit code ${a.exit_code}', effect: read}\n",
    )
    cli.write("a.json", '{"v": 1}')
    run = cli.call("run", "ask.yml", "--json").object["run"]
    ran = cli.call("fork", run, "b", "--set", 'a={"v":2}')
    assert (ran.code, ran.out) == (0, "v is 2, exit code 0\n")
    for wrong, words in (
        ("a=2", "is not of type 'object'"),
        ("c=1", "no argument or step named 'c'"),
        ("b=1", "b has no result"),
    ):
        refused = cli.call("fork", run, "b", "--set", wrong)
        assert (refused.code, words in refused.err) == (2, True), refused.err


def test_an_outcome_that_breaks_the_contract_settles_no_doubt(cli: CommandLine) -> None:
    script = "open('began', 'w').close(); import time; time.sleep(60)"
    cli.write(
        "slow.yml",
        f'name: Slow\nsteps:\n  - id: a\n    command: cli\n    with: {{argv: [python3, -c, "{script}"]}}\n'
        "    output: {type: json, schema: {type: integer}}\n"
        "    postcondition: {type: json_path, path: $, equals: 1}\n"
        "  - {id: b, command: 'cli echo ${a.json}', effect: read}\n",
    )
    policy = cli.config.parent / "policy.toml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text('[commands]\nallow = ["*"]\n')
    process = cli.begin("run", "slow.yml")
    while not (cli.work / "began").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    run = cli.call("runs", "--json").object[0]["run"]
    assert cli.call("resume", run).code == 3
    for outcome, words in (("nope", "it is not JSON"), ("2", "has a different value")):
        given = json.dumps({"exit_code": 0, "stdout": outcome})
        refused = cli.call("decide", run, "done", "--outcome", given)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    assert [wait["kind"] for wait in cli.call("inbox", "--json").object] == ["in_doubt"]
    ran = cli.call("decide", run, "done", "--outcome", '{"exit_code": 0, "stdout": "1"}')
    assert (ran.code, ran.out) == (0, "1\n")


def test_the_error_for_a_command_that_needs_the_network_says_it_has_none(cli: CommandLine) -> None:
    cli.write("net.yml", "name: N\nsteps:\n  - {id: a, command: cli curl -s http://127.0.0.1:9/, effect: read}\n")
    assert (
        "Commands have no network access: list the hosts that it needs in `network`" in cli.call("run", "net.yml").err
    )


def test_a_step_can_name_its_run_and_what_the_previous_run_printed(cli: CommandLine) -> None:
    steps = "  - {id: a, command: cli cat, stdin: '${run.id} ${default(previous.a.stdout, 0)}', effect: read}\n"
    cli.write("id.yml", f"name: I\nsteps:\n{steps}")
    said, expected = "", "0"
    for _ in range(2):
        ran = cli.call("run", "id.yml", "--json").object
        said, expected = (
            cli.call("show", ran["run"], "--json").object["outputs"]["a"].strip(),
            f"{ran['run']} {expected}",
        )
        assert said == expected


def test_a_doubt_outlives_a_repeat_that_is_denied(cli: CommandLine) -> None:
    script = cli.write("s.sh", "echo done >> done.txt; sleep 60\n")
    cli.write("d.yml", "name: D\nsteps:\n  - {id: a, command: cli sh s.sh, approval: required}\n")
    run = cli.call("run", "d.yml", "--json").object["run"]
    process = cli.begin("decide", run, "approve")
    while not (cli.work / "done.txt").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert cli.call("resume", run).code == 3
    script.write_text("echo done >> done.txt\n")
    asked = cli.call("decide", run, "repeat")
    assert (asked.code, "asked again" in asked.err or "asks for approval" in asked.err) == (3, True)
    assert cli.call("decide", run, "deny").code == 5
    assert [step["status"] for step in cli.call("show", run, "--json").object["steps"]] == ["in_doubt"]
    cli.call("retry", run)
    assert [wait["kind"] for wait in cli.call("inbox", "--json").object] == ["in_doubt"]
    assert (cli.work / "done.txt").read_text() == "done\n"


# --- limits ---------------------------------------------------------------------------------------------------

SLOW = """\
name: Slow
steps:
  - id: build
    command: cli true
    effect: read
    timeout_ms: 900000
    output: {type: text, max_bytes: 600000}
"""


def test_a_step_that_asks_for_more_than_is_configured_starts_nothing(cli: CommandLine) -> None:
    slow = cli.write("slow.yml", SLOW)
    for command in ("run", "plan"):
        said = cli.call(command, slow)
        assert said.code == (2 if command == "run" else 1)
        words = said.out + said.err
        assert "timeout_ms is 900,000 ms, but the configured limit is 300,000" in words
        assert "CUEBOOK_LIMITS_MAX_SECONDS" in words
        assert "output.max_bytes is 600,000 bytes, but the configured limit is 512,000" in words
        assert "CUEBOOK_LIMITS_MAX_OUTPUT" in words
    assert cli.call("runs", "--json").object == []


def test_it_gets_what_the_configuration_lets_it_have(cli: CommandLine) -> None:
    slow = cli.write("slow.yml", SLOW)
    cli.environ |= {"CUEBOOK_LIMITS_MAX_SECONDS": "3600", "CUEBOOK_LIMITS_MAX_OUTPUT": "1M"}
    assert cli.call("run", slow).code == 0


def test_validate_notes_that_a_step_needs_a_raised_limit(cli: CommandLine) -> None:
    slow = cli.write("slow.yml", SLOW)
    found = cli.call("validate", slow, "--json").object
    assert [one["code"] for one in found["files"][0]["findings"]] == ["RAISED_LIMIT", "RAISED_LIMIT"]


# --- tool servers ---------------------------------------------------------------------------------------------

ASKS = """\
name: Asks
steps:
  - id: sum
    command: llm
    llm: {model: test/model, prompt: Add 1 and 2., tools: {allow: [good.add, good.say]}, max_tool_calls: 2}
    output: json
"""


def test_a_model_step_asks_about_a_server_that_was_not_agreed_to_and_that_holds_in_other_folders(
    cli: CommandLine, server: ModelServer
) -> None:
    server.replies = ["3", "3"]
    with cli.config.open("a") as file:
        file.write(f"\n[mcp.good]\ncommand = {json.dumps([sys.executable, GOOD])}\n")
    cli.write("asks.yml", ASKS)
    plan = cli.call("plan", "asks.yml", "--json").object
    assert plan["steps"][0]["rules"] == ["the tool server 'good' needs approval first"]
    asked = cli.call("run", "asks.yml", "--json").object
    (wait,) = cli.call("inbox", "--json").object
    assert wait["prompt"] == "Start the tool server 'good'?"
    assert cli.call("decide", asked["run"], "approve").code == 0
    other = cli.work / "other"
    other.mkdir()
    (other / "cuebook.toml").touch()
    (other / "asks.yml").write_text(ASKS)
    cli.work = other
    assert cli.call("run", "asks.yml").code == 0


def test_the_inbox_names_the_playbook_and_when_a_wait_expires(cli: CommandLine, count: Path) -> None:
    waiting(cli)
    head, line = cli.call("inbox").out.splitlines()
    assert head.split() == ["WAIT", "RUN", "PLAYBOOK", "SINCE", "EXPIRES", "KIND", "STEP", "PROMPT"]
    assert "count.yml" in line
    (wait,) = cli.call("inbox", "--json").object
    assert wait["playbook"] == "count.yml"


def test_a_run_says_at_its_end_whose_output_is_incomplete(cli: CommandLine) -> None:
    steps = [{"id": one, "command": "cli seq 1 20000", "effect": "read"} for one in ("first", "last")]
    cli.write("cut.yml", json.dumps({"name": "cut", "steps": steps}))
    ran = cli.call("run", "cut.yml")
    assert "\nincomplete: the output of steps first, last\n" in ran.err
    run = cli.call("runs", "--json").object[0]["run"]
    assert cli.call("show", run, "--json").object["incomplete"] == ["first", "last"]
    assert "incomplete: the output of steps first, last" in cli.call("show", run).out


def test_progress_shows_what_models_and_tools_gave_as_it_does_for_commands(
    cli: CommandLine, server: ModelServer
) -> None:
    server.replies = ['{"kind": "bug"}']
    steps = [
        {"id": "sort", "command": "llm", "llm": {"prompt": "Which?", "model": "default"}, "output": "json"},
        {"id": "say", "command": "cli echo bug", "effect": "read"},
    ]
    cli.write("sort.yml", json.dumps({"name": "sort", "steps": steps}))
    printed = cli.call("run", "sort.yml").err
    assert 'step sort\n  | {"kind": "bug"}\n' in printed
    assert printed.count("  | bug\n") == 1


def test_the_steps_of_a_long_loop_are_folded_except_those_that_failed(cli: CommandLine) -> None:
    items = ", ".join(map(str, range(24)))
    cli.write(
        "loop.yml",
        f"name: L\nsteps:\n  - id: each\n    for_each: [{items}]\n    concurrency: 4\n    on_error: continue\n"
        "    command: cli test ${item} != 7\n    effect: read\n  - {id: last, command: cli true, effect: read}\n",
    )
    run = cli.call("run", "loop.yml", "--json").object["run"]
    shown = cli.call("show", run).out
    assert "24 items: 1 failed, 23 completed" in shown
    assert "step each[7]\n  failed" in shown
    assert "step each[8]" not in shown
    assert "23 more steps of the items of each" in shown
    every = cli.call("show", run, "--all").out
    assert all(f"step each[{number}]" in every for number in range(24))
    assert len(cli.call("show", run, "--json").object["steps"]) == 26

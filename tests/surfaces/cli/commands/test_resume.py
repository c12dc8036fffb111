"""Continuing runs from the command line: resume, cancel, retry, restart, fork, and refused requests."""

from __future__ import annotations

import os

import pytest

from cuebook.kernel.errors import Elsewhere
from cuebook.surfaces import cli as cli_module
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer


def paused(cli: CommandLine) -> str:
    ran = cli.call("run", "tea.md", "--break", "1", "--json")
    assert ran.code == 3
    return str(ran.object["run"])


def test_a_paused_run_continues_with_changed_values(cli: CommandLine, server: ModelServer) -> None:
    run = paused(cli)
    inbox = cli.call("inbox")
    assert "Paused after step 1." in inbox.out
    ran = cli.call("resume", run[:5], "--set", "kind=black", "--break", "2", "--json")
    assert (ran.code, ran.object["values"]) == (3, {"kind": "black"})
    ran = cli.call("resume", run)
    assert (ran.code, ran.out) == (0, "Reply number 3.\n")
    assert server.prompts == ["Choose a green tea.", "Brew the black tea.", "Serve it."]
    again = cli.call("resume", run)
    assert again.code == 2
    assert f"Run {run} is completed: there is no pause to end." in again.err


def test_a_resumed_run_takes_another_model(cli: CommandLine, server: ModelServer) -> None:
    run = paused(cli)
    assert cli.call("resume", run, "--model", "test/other", "--max-tokens", "9").code == 0
    assert [(one["model"], one.get("max_tokens")) for one in server.requests] == [
        ("echo-1", 16_384),
        ("other", 9),
        ("other", 9),
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "kind"], "expected NAME=VALUE"),
        (["--model", "nobody/x"], "There is no provider `nobody`"),
        (["--break", "7"], "there is no step 7"),
    ],
)
def test_a_resume_that_cannot_be_leaves_the_run_as_it_is(cli: CommandLine, args: list[str], words: str) -> None:
    run = paused(cli)
    before = cli.call("events", run).out
    ran = cli.call("resume", run, *args)
    assert ran.code == 2
    assert words in ran.err
    assert cli.call("events", run).out == before


def test_a_value_that_does_not_fit_its_input_is_refused(cli: CommandLine) -> None:
    cli.write("n.md", "# N\n\n## INPUTS\n\n- `n` (number: 1): x\n\n## STEP 1: A\n\n{{n}}\n\n## STEP 2: B\n\n{{n}}\n")
    run = cli.call("run", "n.md", "--break", "1", "--json").object["run"]
    ran = cli.call("resume", run, "--set", "n=many")
    assert (ran.code, "n must be a number" in ran.err) == (2, True)
    assert cli.call("resume", run, "--set", "n=2").code == 0


def test_a_failed_run_is_retried_where_it_failed(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha.", 401, "Hot.", "Served."]
    run = cli.call("run", "tea.md", "--json").object["run"]
    refused = cli.call("resume", run)
    assert (refused.code, f"`cuebook retry {run}`" in refused.err) == (2, True)
    ran = cli.call("retry", run)
    assert (ran.code, ran.out) == (0, "Served.\n")
    assert "step 2: Brew (continued)\n  " in ran.err
    assert len(server.requests) == 4
    assert cli.call("retry", run).code == 2


def test_a_waiting_run_is_cancelled(cli: CommandLine) -> None:
    run = paused(cli)
    ran = cli.call("cancel", run, "--reason", "no more tea", "--json")
    assert (ran.code, ran.object["status"]) == (5, "cancelled")
    assert "no more tea" in ran.object["error"]["message"]
    assert [step["status"] for step in ran.object["steps"]] == ["completed", "skipped", "skipped"]
    assert cli.call("cancel", run).code == 2


def test_an_unanswered_pause_expires(cli: CommandLine) -> None:
    cli.environ["CUEBOOK_PAUSE_EXPIRY"] = "0"
    ran = cli.call("run", "tea.md", "--break", "1", "--json")
    if ran.code == 3:  # it ended before its own expiry was noticed
        ran = cli.call("resume", ran.object["run"], "--json")
    assert (ran.code, ran.object["status"]) == (5, "expired")
    assert [step["status"] for step in ran.object["steps"]] == ["completed", "skipped", "skipped"]
    refused = cli.call("resume", ran.object["run"])
    assert (refused.code, f"cuebook retry {ran.object['run']}" in refused.err) == (5, True)


ASKING = """\
# Asking

## STEP 1: Work

Work.

## STEP 2: Tone

@elicit(select, "Which?", "warm", "plain", default:"plain")

## STEP 3: Sure

@elicit(confirm, "Sure?")
"""


def test_a_resumed_run_takes_answers_and_waits_longer(cli: CommandLine) -> None:
    cli.write("asking.md", ASKING)
    args = ["run", "asking.md", "--break", "1", "--answer", "2=warm", "--pause-expiry", "1h", "--json"]
    run = cli.call(*args).object["run"]
    wrong = cli.call("resume", run, "--answer", "3=maybe")
    assert (wrong.code, "'maybe' is neither yes nor no" in wrong.err) == (2, True)
    ran = cli.call("resume", run, "--answer", "3=no", "--break", "2", "--pause-expiry", "7d", "--json")
    assert (ran.code, ran.object["outputs"]["2"]) == (3, "warm")
    (wait,) = ran.object["waits"]
    assert round(wait["expires"] - wait["opened"], 3) == 7 * 86400
    assert cli.call("resume", run, "--json").object["outputs"]["3"] == "no"


def test_a_restart_and_a_fork_accept_answers_or_run_unattended(cli: CommandLine, server: ModelServer) -> None:
    cli.write("asking.md", ASKING)
    run = cli.call("run", "asking.md", "--answer", "2=warm", "--answer", "3=yes", "--json").object["run"]
    again = cli.call("restart", run, "2", "--answer", "2=plain", "--json").object
    assert (again["status"], again["outputs"]) == ("completed", {"1": "Reply number 1.", "2": "plain", "3": "yes"})
    asked = cli.call("run", "asking.md", "--json").object["run"]
    alone = cli.call("fork", asked, "2", "--unattended", "--json").object
    assert (alone["status"], alone["outputs"]["2"], alone["outputs"]["3"]) == ("completed", "plain", "yes")
    assert cli.call("show", asked, "--json").object["status"] == "awaiting_input"
    assert len(server.requests) == 2
    assert "there is no such step" in cli.call("fork", asked, "2", "--answer", "9=x").err


def test_without_a_person_a_question_is_not_resumed(cli: CommandLine) -> None:
    cli.write("asking.md", ASKING)
    run = cli.call("run", "asking.md", "--json").object["run"]
    ran = cli.call("resume", run)
    assert (ran.code, f"`cuebook answer {run} VALUE` answers it." in ran.err) == (2, True)


def test_a_restart_is_a_new_run_that_keeps_earlier_steps(cli: CommandLine, server: ModelServer) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    ran = cli.call("restart", run, "3", "--json")
    assert (ran.code, ran.object["parent"]) == (0, run)
    assert ran.object["outputs"] == {"1": "Reply number 1.", "2": "Reply number 2.", "3": "Reply number 4."}
    assert len(server.requests) == 4
    missing = cli.call("restart", run, "7")
    assert (missing.code, "Steps it has reached: 1, 2, 3." in missing.err) == (2, True)


def test_a_fork_takes_values_and_settings(cli: CommandLine, server: ModelServer) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    ran = cli.call("fork", run, "2", "--set", "kind=white", "--model", "test/other", "--json")
    assert ran.code == 0
    assert ran.object["model"] == "test/other"
    assert server.prompts[3:] == ["Brew the white tea.", "Serve it."]
    assert [one["model"] for one in server.requests[3:]] == ["other", "other"]


def test_questions_that_do_not_wait_are_refused(cli: CommandLine) -> None:
    run = paused(cli)
    answer = cli.call("answer", run, "yes")
    assert (answer.code, f"`cuebook resume {run}` continues the run." in answer.err) == (2, True)
    decide = cli.call("decide", run, "repeat")
    assert (decide.code, f"`cuebook resume {run}` continues the run." in decide.err) == (2, True)
    broken = cli.call("decide", run, "done", "--outcome", "{")
    assert (broken.code, "--outcome: invalid JSON" in broken.err) == (2, True)
    cli.call("resume", run)
    ended = cli.call("answer", run, "yes")
    assert (ended.code, "is not waiting for anything" in ended.err) == (2, True)


def test_a_second_decision_by_the_short_id_names_the_first_decider(cli: CommandLine) -> None:
    cli.write("ship.yml", "name: Ship\nsteps:\n  - {id: ship, command: cli true, approval: required}\n")
    cli.call("run", "ship.yml", "--no-ask")
    wait = cli.call("inbox", "--json").object[0]["wait"]
    assert cli.call("decide", wait[:8], "approve").code == 0
    for name in (wait[:8], wait):
        late = cli.call("decide", name, "deny")
        assert (late.code, f"The wait {wait} was already decided by local." in late.err) == (2, True)
    unknown = cli.call("decide", "w0000000", "deny")
    assert (unknown.code, "There is no wait or run 'w0000000'" in unknown.err) == (2, True)


def test_a_completed_run_is_not_retried_and_says_what_can_be_done(cli: CommandLine) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    again = cli.call("retry", run)
    assert (again.code, f"`cuebook restart {run} STEP`" in again.err) == (2, True)
    resumed = cli.call("resume", run)
    assert (resumed.code, f"`cuebook restart {run} STEP`" in resumed.err) == (2, True)


def test_resuming_a_waiting_run_with_changes_says_how_to_answer(cli: CommandLine) -> None:
    cli.write("ask.md", '# Ask\n\n## STEP 1: A\n\n@elicit(select, "Which?", "green", "black")\n')
    run = cli.call("run", "ask.md", "--json").object["run"]
    refused = cli.call("resume", run, "--answer", "1=green")
    assert (refused.code, f"`cuebook answer {run} green|black` continues it" in refused.err) == (2, True)


@pytest.mark.parametrize(("price", "unknown"), [("0.0", 0), ("1.0", 1)])
def test_what_was_cancelled_while_a_free_model_answered_cost_nothing(
    cli: CommandLine, server: ModelServer, price: str, unknown: int
) -> None:
    prices = cli.write("prices.toml", f'[models."test/echo-1"]\ninput = {price}\noutput = {price}\n')
    cli.config.write_text(f'prices = "{prices}"\n{cli.config.read_text()}')
    server.hold_at = 1
    process = cli.begin("run", "tea.md", "--no-ask")
    assert server.holding.wait(30)
    run = cli.call("runs", "--json").object[0]["run"]
    cli.call("cancel", run)
    process.communicate(timeout=60)
    server.release()
    totals = cli.call("retry", run, "--json").object["totals"]
    assert (totals["calls"], totals["unknown_costs"]) == (3, unknown)


def test_a_run_is_named_by_enough_of_its_id(cli: CommandLine) -> None:
    run = paused(cli)
    assert cli.call("show", run[:4]).code == 0
    unknown = cli.call("show", "0000")
    assert (unknown.code, unknown.err) == (2, "cuebook: There is no run 0000. `cuebook runs` lists them.\n")


TWICE = "# T\n\n## STEP 1: First\n\nOne.\n\n## STEP 1: Second\n\nTwo.\n\n## STEP 2: End\n\nThree.\n"


def test_visits_of_a_step_number_that_occurs_twice_are_distinguished(cli: CommandLine, server: ModelServer) -> None:
    cli.write("twice.md", TWICE)
    run = cli.call("run", "twice.md", "--json").object["run"]
    for step, prompts in (("1#1", ["One.", "Two.", "Three."]), ("1#2", ["Two.", "Three."])):
        before = len(server.prompts)
        ran = cli.call("restart", run, step)
        assert (ran.code, "times" in ran.err) == (0, False)
        assert server.prompts[before:] == prompts
    before = len(server.prompts)
    ran = cli.call("fork", run, "1")
    assert "step 1 was visited 2 times; restarting from the last visit, 1#2. The first is 1#1." in ran.err
    assert server.prompts[before:] == ["Two.", "Three."]
    refused = cli.call("restart", run, "1#3")
    assert refused.code == 2
    assert "has not reached step 1#3. Steps it has reached: 1, 1#2, 2." in refused.err


def test_a_run_continues_in_its_own_folder_and_loses_nothing_in_another(cli: CommandLine) -> None:
    step = "{id: a, command: cli touch made.txt, approval: required, on_error: continue}"
    cli.write("p.yml", f"name: P\nsteps:\n  - {step}\n")
    run = cli.call("run", "p.yml", "--json").object["run"]
    home, cli.work = cli.work, cli.work.parent / "elsewhere"
    cli.work.mkdir()
    ran = cli.call("decide", run, "approve")
    assert (ran.code, f"`cd {home} && cuebook resume {run}`" in ran.err) == (2, True)
    assert (cli.call("resume", run).code, list(cli.work.iterdir())) == (2, [])
    asked = cli.call("runtime", f'{{"action": "status", "runId": "{run}"}}').object
    assert (asked["runId"], asked["steps"][0]["id"]) == (run, "a")
    assert f"`cd {home} && cuebook resume {run}`" in asked["error"]["message"]
    again = cli.call("runtime", f'{{"action": "status", "runId": "{run}"}}')
    assert again.err == ""
    cli.work = home
    assert cli.call("resume", run).code == 0
    assert (home / "made.txt").exists()


def test_commands_that_an_error_suggests_name_the_store_of_the_call(cli: CommandLine) -> None:
    run = cli.call("run", "tea.md", "--break", "1", "--json", "--store", "other.db").object["run"]
    for option in (["--store", "other.db"], ["--store=other.db"]):
        refused = cli.call("retry", run, *option)
        assert refused.code == 2
        assert f"`cuebook show {run} --store other.db`" in refused.err


def test_a_suggested_command_in_another_folder_names_the_whole_path_of_the_store(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(args: list[str]) -> int:
        raise Elsewhere(
            "It belongs to /there.", fix="`cd /there && cuebook resume r1`; `cuebook store copy` takes it there."
        )

    monkeypatch.setattr(cli_module, "_invoke", refuse)
    assert cli_module.call(["resume", "r1", "--store", "other.db"]) == 2
    path = os.path.abspath("other.db")
    assert f"`cd /there && cuebook resume r1 --store {path}`; `cuebook store copy` takes" in capsys.readouterr().err

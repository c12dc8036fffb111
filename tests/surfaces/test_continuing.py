"""Going on with runs from the command line: resume, cancel, retry, restart, fork, and what is refused."""

from __future__ import annotations

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer


def paused(desk: Desk) -> str:
    ran = desk.call("run", "tea.md", "--break", "1", "--json")
    assert ran.code == 3
    return str(ran.object["run"])


def test_a_paused_run_goes_on_with_changed_values(desk: Desk, server: ModelServer) -> None:
    run = paused(desk)
    inbox = desk.call("inbox")
    assert "Paused after step 1." in inbox.out
    ran = desk.call("resume", run[:5], "--set", "kind=black", "--break", "2", "--json")
    assert (ran.code, ran.object["values"]) == (3, {"kind": "black"})
    ran = desk.call("resume", run)
    assert (ran.code, ran.out) == (0, "Reply number 3.\n")
    assert server.prompts == ["Choose a green tea.", "Brew the black tea.", "Serve it."]
    again = desk.call("resume", run)
    assert again.code == 2
    assert f"Run {run} is completed: there is no pause to end." in again.err


def test_a_resumed_run_takes_another_model(desk: Desk, server: ModelServer) -> None:
    run = paused(desk)
    assert desk.call("resume", run, "--model", "test/other", "--max-tokens", "9").code == 0
    assert [(one["model"], one.get("max_tokens")) for one in server.requests] == [
        ("echo-1", 16_384),
        ("other", 9),
        ("other", 9),
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "kind"], "this is no NAME=VALUE"),
        (["--model", "nobody/x"], "There is no provider `nobody`"),
        (["--break", "7"], "there is no step 7"),
    ],
)
def test_a_resume_that_cannot_be_leaves_the_run_as_it_is(desk: Desk, args: list[str], words: str) -> None:
    run = paused(desk)
    before = desk.call("events", run).out
    ran = desk.call("resume", run, *args)
    assert ran.code == 2
    assert words in ran.err
    assert desk.call("events", run).out == before


def test_a_value_that_does_not_fit_its_input_is_refused(desk: Desk) -> None:
    desk.write("n.md", "# N\n\n## INPUTS\n\n- `n` (number: 1): x\n\n## STEP 1: A\n\n{{n}}\n\n## STEP 2: B\n\n{{n}}\n")
    run = desk.call("run", "n.md", "--break", "1", "--json").object["run"]
    ran = desk.call("resume", run, "--set", "n=many")
    assert (ran.code, "n must be a number" in ran.err) == (2, True)
    assert desk.call("resume", run, "--set", "n=2").code == 0


def test_a_failed_run_is_retried_where_it_failed(desk: Desk, server: ModelServer) -> None:
    server.replies = ["Sencha.", 401, "Hot.", "Served."]
    run = desk.call("run", "tea.md", "--json").object["run"]
    refused = desk.call("resume", run)
    assert (refused.code, f"`cuebook retry {run}`" in refused.err) == (2, True)
    ran = desk.call("retry", run)
    assert (ran.code, ran.out) == (0, "Served.\n")
    assert "step 2: Brew (continued)\n  " in ran.err
    assert len(server.requests) == 4
    assert desk.call("retry", run).code == 2


def test_a_waiting_run_is_cancelled(desk: Desk) -> None:
    run = paused(desk)
    ran = desk.call("cancel", run, "--reason", "no more tea", "--json")
    assert (ran.code, ran.object["status"]) == (5, "cancelled")
    assert "no more tea" in ran.object["error"]["message"]
    assert [step["status"] for step in ran.object["steps"]] == ["completed", "skipped", "skipped"]
    assert desk.call("cancel", run).code == 2


def test_a_pause_that_nobody_ended_expires(desk: Desk) -> None:
    desk.environ["CUEBOOK_PAUSE_EXPIRY"] = "0"
    ran = desk.call("run", "tea.md", "--break", "1", "--json")
    if ran.code == 3:  # it ended before its own expiry was noticed
        ran = desk.call("resume", ran.object["run"], "--json")
    assert (ran.code, ran.object["status"]) == (5, "expired")
    assert [step["status"] for step in ran.object["steps"]] == ["completed", "skipped", "skipped"]
    refused = desk.call("resume", ran.object["run"])
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


def test_a_resumed_run_takes_answers_and_waits_longer(desk: Desk) -> None:
    desk.write("asking.md", ASKING)
    args = ["run", "asking.md", "--break", "1", "--answer", "2=warm", "--pause-expiry", "1h", "--json"]
    run = desk.call(*args).object["run"]
    wrong = desk.call("resume", run, "--answer", "3=maybe")
    assert (wrong.code, "'maybe' is neither yes nor no" in wrong.err) == (2, True)
    ran = desk.call("resume", run, "--answer", "3=no", "--break", "2", "--pause-expiry", "7d", "--json")
    assert (ran.code, ran.object["outputs"]["2"]) == (3, "warm")
    (wait,) = ran.object["waits"]
    assert round(wait["expires"] - wait["opened"], 3) == 7 * 86400
    assert desk.call("resume", run, "--json").object["outputs"]["3"] == "no"


def test_a_restart_and_a_fork_take_answers_or_nobody(desk: Desk, server: ModelServer) -> None:
    desk.write("asking.md", ASKING)
    run = desk.call("run", "asking.md", "--answer", "2=warm", "--answer", "3=yes", "--json").object["run"]
    again = desk.call("restart", run, "2", "--answer", "2=plain", "--json").object
    assert (again["status"], again["outputs"]) == ("completed", {"1": "Reply number 1.", "2": "plain", "3": "yes"})
    asked = desk.call("run", "asking.md", "--json").object["run"]
    alone = desk.call("fork", asked, "2", "--unattended", "--json").object
    assert (alone["status"], alone["outputs"]["2"], alone["outputs"]["3"]) == ("completed", "plain", "yes")
    assert desk.call("show", asked, "--json").object["status"] == "awaiting_input"
    assert len(server.requests) == 2
    assert "there is no such step" in desk.call("fork", asked, "2", "--answer", "9=x").err


def test_without_a_person_a_question_is_not_resumed(desk: Desk) -> None:
    desk.write("asking.md", ASKING)
    run = desk.call("run", "asking.md", "--json").object["run"]
    ran = desk.call("resume", run)
    assert (ran.code, f"`cuebook answer {run} VALUE` answers it." in ran.err) == (2, True)


def test_a_restart_is_a_new_run_that_keeps_earlier_steps(desk: Desk, server: ModelServer) -> None:
    run = desk.call("run", "tea.md", "--json").object["run"]
    ran = desk.call("restart", run, "3", "--json")
    assert (ran.code, ran.object["parent"]) == (0, run)
    assert ran.object["outputs"] == {"1": "Reply number 1.", "2": "Reply number 2.", "3": "Reply number 4."}
    assert len(server.requests) == 4
    missing = desk.call("restart", run, "7")
    assert (missing.code, "Steps it has reached: 1, 2, 3." in missing.err) == (2, True)


def test_a_fork_takes_values_and_settings(desk: Desk, server: ModelServer) -> None:
    run = desk.call("run", "tea.md", "--json").object["run"]
    ran = desk.call("fork", run, "2", "--set", "kind=white", "--model", "test/other", "--json")
    assert ran.code == 0
    assert ran.object["model"] == "test/other"
    assert server.prompts[3:] == ["Brew the white tea.", "Serve it."]
    assert [one["model"] for one in server.requests[3:]] == ["other", "other"]


def test_questions_that_do_not_wait_are_refused(desk: Desk) -> None:
    run = paused(desk)
    answer = desk.call("answer", run, "yes")
    assert (answer.code, f"`cuebook resume {run}` goes on." in answer.err) == (2, True)
    decide = desk.call("decide", run, "repeat")
    assert (decide.code, f"`cuebook resume {run}` goes on." in decide.err) == (2, True)
    broken = desk.call("decide", run, "done", "--outcome", "{")
    assert (broken.code, "--outcome: this is not JSON" in broken.err) == (2, True)
    desk.call("resume", run)
    ended = desk.call("answer", run, "yes")
    assert (ended.code, "it waits for nothing" in ended.err) == (2, True)


def test_whoever_decides_second_by_the_short_id_is_told_who_was_first(desk: Desk) -> None:
    desk.write("ship.yml", "name: Ship\nsteps:\n  - {id: ship, command: cli true, approval: required}\n")
    desk.call("run", "ship.yml", "--no-ask")
    wait = desk.call("inbox", "--json").object[0]["wait"]
    assert desk.call("decide", wait[:8], "approve").code == 0
    for name in (wait[:8], wait):
        late = desk.call("decide", name, "deny")
        assert (late.code, f"The wait {wait} was decided already by local." in late.err) == (2, True)
    unknown = desk.call("decide", "w0000000", "deny")
    assert (unknown.code, "There is no wait and no run 'w0000000'" in unknown.err) == (2, True)


def test_a_completed_run_is_not_retried_and_says_what_can_be_done(desk: Desk) -> None:
    run = desk.call("run", "tea.md", "--json").object["run"]
    again = desk.call("retry", run)
    assert (again.code, f"`cuebook restart {run} STEP`" in again.err) == (2, True)
    resumed = desk.call("resume", run)
    assert (resumed.code, f"`cuebook restart {run} STEP`" in resumed.err) == (2, True)


def test_who_resumes_a_run_that_waits_for_an_answer_with_changes_is_told_how_to_answer(desk: Desk) -> None:
    desk.write("ask.md", '# Ask\n\n## STEP 1: A\n\n@elicit(select, "Which?", "green", "black")\n')
    run = desk.call("run", "ask.md", "--json").object["run"]
    refused = desk.call("resume", run, "--answer", "1=green")
    assert (refused.code, f"`cuebook answer {run} green|black` goes on" in refused.err) == (2, True)


@pytest.mark.parametrize(("price", "unknown"), [("0.0", 0), ("1.0", 1)])
def test_what_was_cancelled_while_a_free_model_answered_cost_nothing(
    desk: Desk, server: ModelServer, price: str, unknown: int
) -> None:
    prices = desk.write("prices.toml", f'[models."test/echo-1"]\ninput = {price}\noutput = {price}\n')
    desk.config.write_text(f'prices = "{prices}"\n{desk.config.read_text()}')
    server.hold_at = 1
    process = desk.begin("run", "tea.md", "--no-ask")
    assert server.holding.wait(30)
    run = desk.call("runs", "--json").object[0]["run"]
    desk.call("cancel", run)
    process.communicate(timeout=60)
    server.release()
    totals = desk.call("retry", run, "--json").object["totals"]
    assert (totals["calls"], totals["unknown_costs"]) == (3, unknown)


def test_a_run_is_named_by_enough_of_its_id(desk: Desk) -> None:
    run = paused(desk)
    assert desk.call("show", run[:4]).code == 0
    unknown = desk.call("show", "0000")
    assert (unknown.code, unknown.err) == (2, "cuebook: There is no run 0000. `cuebook runs` lists them.\n")


TWICE = "# T\n\n## STEP 1: First\n\nOne.\n\n## STEP 1: Second\n\nTwo.\n\n## STEP 2: End\n\nThree.\n"


def test_a_step_number_that_is_there_twice_is_told_apart(desk: Desk, server: ModelServer) -> None:
    desk.write("twice.md", TWICE)
    run = desk.call("run", "twice.md", "--json").object["run"]
    for step, prompts in (("1#1", ["One.", "Two.", "Three."]), ("1#2", ["Two.", "Three."])):
        before = len(server.prompts)
        ran = desk.call("restart", run, step)
        assert (ran.code, "times" in ran.err) == (0, False)
        assert server.prompts[before:] == prompts
    before = len(server.prompts)
    ran = desk.call("fork", run, "1")
    assert "step 1 is there 2 times: this is the last, 1#2. 1#1 is the first." in ran.err
    assert server.prompts[before:] == ["Two.", "Three."]
    refused = desk.call("restart", run, "1#3")
    assert refused.code == 2
    assert "has not reached step 1#3. Steps it has reached: 1, 1#2, 2." in refused.err


def test_a_run_goes_on_in_its_own_folder_and_loses_nothing_in_another(desk: Desk) -> None:
    step = "{id: a, command: cli touch made.txt, approval: required, on_error: continue}"
    desk.write("p.yml", f"name: P\nsteps:\n  - {step}\n")
    run = desk.call("run", "p.yml", "--json").object["run"]
    home, desk.work = desk.work, desk.work.parent / "elsewhere"
    desk.work.mkdir()
    ran = desk.call("decide", run, "approve")
    assert (ran.code, f"`cd {home} && cuebook resume {run}`" in ran.err) == (2, True)
    assert (desk.call("resume", run).code, list(desk.work.iterdir())) == (2, [])
    asked = desk.call("runtime", f'{{"action": "status", "runId": "{run}"}}').object
    assert (asked["runId"], asked["steps"][0]["id"]) == (run, "a")
    assert f"`cd {home} && cuebook resume {run}`" in asked["error"]["message"]
    again = desk.call("runtime", f'{{"action": "status", "runId": "{run}"}}')
    assert again.err == ""
    desk.work = home
    assert desk.call("resume", run).code == 0
    assert (home / "made.txt").exists()

"""`cuebook budget` and `cuebook usage`."""

from __future__ import annotations

import re

import pytest

from tests.support.command_line import CommandLine, finished
from tests.support.model_server import ModelServer


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    """With a model that costs a dollar for a thousand tokens of output; a call uses five and may use ten."""
    prices = cli.write("prices.toml", '[models."test/echo-1"]\ninput = 0.0\noutput = 1000.0\n')
    cli.config.write_text(f'prices = "{prices}"\nmax_tokens = 10\n{cli.config.read_text()}')
    return cli


def test_a_run_waits_for_a_budget_and_continues_when_it_is_raised(cli: CommandLine, server: ModelServer) -> None:
    made = cli.call("budget", "set", "--day", "0.015")
    assert made.code == 0, made.err
    assert re.fullmatch(
        r"BUDGET +PERIOD +USED +LIMIT +LEFT\nall +\d{4}-\d\d-\d\d +\$0 +\$0\.0150 +\$0\.0150\n", made.out
    )
    ran = cli.call("run", "tea.md", "--json")
    assert ran.code == 4
    run = ran.object["run"]
    assert (ran.object["status"], ran.object["next"]) == ("paused", f"cuebook budget allow {run}")
    assert len(server.requests) == 2
    shown = cli.call("show", run).out
    assert "The budget 'all' is spent: All runs used $0.0100 of $0.0150" in shown
    assert "The next call may use up to $0.0100. The run continues at " in shown
    assert f"cuebook budget allow {run}" in shown

    listed = cli.call("budget", "list")
    assert listed.out.splitlines()[-1] == f"waiting for all: {run}"
    (found,) = cli.call("budget", "list", "--json").object
    assert (found["name"], found["waiting"], found["periods"][0]["money_used"]) == ("all", [run], 0.01)
    assert cli.call("resume", run).code == 4  # nothing has changed

    raised = cli.call("budget", "set", "--day", "1", "--json").object
    assert (raised["continued"], raised["day"], raised["by"]) == ([run], 1.0, "local")
    assert cli.call("resume", run).code == 0


def test_an_approver_lets_a_run_go_on(cli: CommandLine) -> None:
    assert cli.call("budget", "set", "--playbook", "tea.md", "--month-tokens", "30").code == 0
    run = cli.call("run", "tea.md", "--json").object["run"]
    allowed = cli.call("budget", "allow", run, "--reason", "a guest waits")
    assert allowed.code == 0, allowed.err
    assert allowed.out.startswith(f"Run {run} may continue until ")
    assert f"`cuebook resume {run}` does." in allowed.out
    assert cli.call("resume", run).code == 0
    assert "budget.allow playbook:tea.md" in cli.call("audit", "--admin").out
    again = cli.call("budget", "allow", run)
    assert (again.code, "does not wait for a budget" in again.err) == (2, True)


def test_before_a_run_it_says_that_a_budget_is_spent(cli: CommandLine) -> None:
    assert cli.call("run", "tea.md").code == 0
    assert "is spent" not in cli.call("explain", "tea.md").out
    assert cli.call("budget", "set", "--month", "0.005").code == 0
    words = "The budget 'all' is spent: All runs used $0.0150 of $0.005000"
    assert words in cli.call("explain", "tea.md").out
    assert cli.call("explain", "tea.md", "--json").object["budgets"][0].startswith(words)
    ran = cli.call("run", "tea.md")
    assert (ran.code, ran.err.startswith(words)) == (4, True)


def test_a_budget_is_shown_changed_and_removed(cli: CommandLine) -> None:
    cli.call("users", "add", "ann", "--role", "runner")
    assert cli.call("budget", "set", "--person", "ann", "--day", "5", "--month", "50", "--soft", "70%").code == 0
    assert cli.call("budget", "set", "--person", "ann", "--day", "none", "--unknown-cost").code == 0
    found = cli.call("budget", "show", "--person", "ann", "--json").object
    assert (found["day"], found["month"], found["soft"], found["unknown_cost"]) == (None, 50.0, 0.7, True)
    shown = cli.call("budget", "show", "--person", "ann").out
    assert "People are notified at 70%. Models without a known price may be called." in shown
    assert cli.call("budget", "list", "--as", "ann").out.count("person:ann") == 1
    refused = cli.call("budget", "set", "--person", "ann", "--day", "500", "--as", "ann")
    assert (refused.code, "requires the role admin" in refused.err) == (5, True)
    assert cli.call("budget", "remove", "--person", "ann").out == "Removed the budget 'person:ann'.\n"
    assert cli.call("budget", "list").out.startswith("There are no budgets.")
    missing = cli.call("budget", "show", "--person", "ann")
    assert (missing.code, "There is no budget 'person:ann'" in missing.err) == (2, True)


def test_a_budget_of_a_name_that_nothing_is_known_of_is_set_with_a_warning(cli: CommandLine) -> None:
    cli.call("users", "add", "ann", "--role", "runner")
    for args, words in [
        (["--playbook", "tae.md"], "no run has the playbook 'tae.md', and there is no such file in "),
        (["--playbook", "tae.md"], "limits nothing until there is a playbook of this name. Did you mean 'tea.md'?"),
        (["--person", "nobody"], "'nobody' is not a user and owns no run. The budget is set"),
        (["--person", "anne"], "Did you mean 'ann'?"),
    ]:
        ran = cli.call("budget", "set", *args, "--day", "2", "--json")
        assert (ran.code, ran.object["day"], words in ran.err) == (0, 2.0, True), ran.err
    for known in (["--playbook", "tea.md"], ["--person", "ann"], ["--person", "*"], ["--person", "local"], []):
        assert cli.call("budget", "set", *known, "--day", "2").err == "", known
    assert cli.call("run", "tea.md").code == 0
    cli.tea.unlink()
    assert cli.call("budget", "set", "--playbook", "tea.md", "--day", "3").err == ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "No limit was given"),
        (["--day", "much"], "--day: expected a number, got 'much'"),
        (["--day-tokens", "1.5"], "--day-tokens: expected a whole number, got '1.5'"),
        (["--day", "-1"], "must be 0 or more"),
        (["--day", "nan"], "must be 0 or more"),
        (["--day", "1", "--soft", "120%"], "between 0% and 100%"),
        (["--soft", "50%"], "needs a limit"),
        (["--person", "ann", "--playbook", "tea.md", "--day", "1"], "not for both"),
    ],
)
def test_a_wrong_limit_is_refused(cli: CommandLine, args: list[str], words: str) -> None:
    ran = cli.call("budget", "set", *args)
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_usage_is_added_up_by_day_playbook_model_and_person(cli: CommandLine) -> None:
    assert cli.call("usage").out.startswith("Nothing was used from ")
    for _ in range(2):
        assert cli.call("run", "tea.md").code == 0
    by_day = cli.call("usage")
    assert re.fullmatch(
        r"DAY +RUNS +CALLS +TOKENS IN +TOKENS OUT +COST\n\d{4}-\d\d-\d\d +2 +6 +\d+ +30 +\$0\.0300\n", by_day.out
    )
    assert re.search(r"^tea\.md +2 +6 +\d+ +30 +\$0\.0300$", cli.call("usage", "--by", "playbook").out, re.M)
    assert re.search(r"^local +2 +6", cli.call("usage", "--by", "person").out, re.M)
    assert re.search(r"^test/echo-1 +6", cli.call("usage", "--by", "model").out, re.M)
    found = cli.call("usage", "--by", "model", "--since", "7d", "--json").object
    assert (found["total"]["runs"], found["groups"][0]["model"], found["groups"][0]["calls"]) == (2, "test/echo-1", 6)
    assert len(cli.call("usage", "--since", "7d", "--json").object["groups"]) == 7
    assert cli.call("usage", "--playbook", "other.md").out.startswith("Nothing was used")
    run = cli.call("runs", "--json").object[0]["run"]
    cli.call("delete", run)
    assert cli.call("usage", "--json").object["total"]["runs"] == 2
    wrong = cli.call("usage", "--since", "yesterday")
    assert (wrong.code, "--since: expected a day, got 'yesterday'" in wrong.err) == (2, True)


def test_an_unknown_cost_is_shown_as_unknown(cli: CommandLine) -> None:
    cli.config.write_text("\n".join(line for line in cli.config.read_text().splitlines() if "prices" not in line))
    assert cli.call("run", "tea.md").code == 0
    assert cli.call("usage").out.rstrip().endswith("unknown (3 calls)")
    total = cli.call("usage", "--json").object["total"]
    assert (total["cost"], total["unknown_costs"]) == (0, 3)


def test_a_person_sees_only_their_own_use(cli: CommandLine) -> None:
    cli.call("users", "add", "ann", "--role", "viewer")
    assert cli.call("run", "tea.md").code == 0
    assert cli.call("usage", "--as", "ann").out.startswith("Nothing was used")


def test_processes_that_run_at_once_stay_within_a_budget(cli: CommandLine) -> None:
    assert cli.call("budget", "set", "--day", "0.04").code == 0
    codes = [finished(one).code for one in [cli.begin("run", "tea.md", "--json") for _ in range(4)]]
    assert 4 in codes  # twelve calls do not fit, and where seven of them fall is chance
    assert set(codes) <= {0, 4}
    (found,) = cli.call("budget", "list", "--json").object
    (period,) = found["periods"]
    assert (period["money_held"], period["unknown_costs"]) == (0, 0)
    assert period["money_used"] == pytest.approx(0.035)  # another call might cost a cent
    assert len(found["waiting"]) == codes.count(4)
    shown = cli.call("inbox", found["waiting"][0]).out
    assert "The budget 'all' is spent: All runs used $0.0350 of $0.0400" in shown

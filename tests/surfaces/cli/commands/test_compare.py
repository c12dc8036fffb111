"""`cuebook compare`: the same cases over models and playbooks, and runs that exist."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Ran, finished
from tests.support.model_server import ModelServer

ONE, TWO = "test/one", "test/two"
BOTH = f"{ONE},{TWO}"
BREW = "# Brew\n\n## INPUTS\n\n- `kind` (string: green): Which tea\n\n## STEP 1: Brew\n\nBrew {{kind}} tea.\n"
CASES = """\
- name: green
  expect: {outputs: {"1": Steep}}
- name: black
  inputs: {kind: black}
  expect: {outputs: {"1": {contains: tea, not_contains: Boil}}}
"""


@pytest.fixture
def tea(cli: CommandLine, server: ModelServer) -> CommandLine:
    """A model that always steeps, one that boils black tea, and one that never says the same twice."""

    def script(request: dict[str, Any]) -> str:
        black = "black" in request["messages"][-1]["content"]
        if request["model"] == "odd":
            return f"Reply {len(server.requests)} <b>about</b> tea."
        return "Boil the tea." if black and request["model"] == "two" else "Steep the tea."

    server.script = script
    cli.write("brew.md", BREW)
    cli.write("cases.yaml", CASES)
    prices = cli.write("prices.toml", "".join(f'[models."{one}"]\ninput = 10\noutput = 1000\n' for one in (ONE, TWO)))
    cli.config.write_text(f'prices = "{prices}"\n{cli.config.read_text()}')
    return cli


def compare(cli: CommandLine, *args: str, models: str = BOTH) -> Ran:
    return cli.call("compare", "brew.md", "--models", models, "--inputs", "cases.yaml", *args)


def started(ran: Ran) -> str:
    """The id of the comparison."""
    (id,) = re.findall(r"^Comparison (\w+)$", ran.err, re.MULTILINE)
    return str(id)


def test_models_are_compared_by_their_checks_cost_and_stability(tea: CommandLine, server: ModelServer) -> None:
    refused = compare(tea, "--repeat", "2")
    assert refused.code == 2
    assert "8 runs: 2 models, 2 cases, 2 times each." in refused.err
    assert f"  {ONE}: 4 runs, at most $" in refused.err
    assert "Nothing was started: this may cost money." in refused.err
    assert server.requests == []

    ran = compare(tea, "--repeat", "2", "--yes", "--html", "page.html")
    assert ran.code == 1
    lines = [line.split("  ") for line in ran.out.splitlines()]
    rows = {line[0]: [part.strip() for part in line[1:] if part.strip()] for line in lines if len(line) > 1}
    assert rows["passed"] == ["4 of 4", "2 of 4"]
    assert rows["failed"] == ["0 of 4", "2 of 4"]
    assert rows["same output"] == ["4 of 4", "4 of 4"]
    assert rows["output of step 1"] == ["4 of 4", "2 of 4"]
    assert "cases.yaml:5: output of step 1\n      expected: not to contain: Boil" in ran.out
    assert "[8/8]" in ran.err
    id = started(ran)
    page = (tea.work / "page.html").read_text()
    assert page.count("<svg") == 5
    assert [word for word in ("<script", "src=", 'href="') if word in page] == []

    listed = tea.call("runs", "--trigger", "compare", "--json").object
    assert {one["trigger"] for one in listed} == {f"compare:{id}"}
    assert len(listed) == 8
    asked = len(server.requests)
    again = compare(tea, "--repeat", "2", "--json")  # everything has ended, so nothing costs money
    assert (again.code, asked, len(server.requests)) == (1, 8, 8)
    assert "All 8 runs of comparison" in again.err
    found = again.object
    assert (found["passed"], found["failed"], found["comparison"]["id"]) == (6, 2, id)
    assert found["variants"][1]["checks"]["output of step 1"] == {"passed": 2, "failed": 2, "not_checked": 0}
    black = found["cases"][1]["variants"][1]
    assert (black["same_output"], black["runs"][0]["output"]) == ({"same": 2, "of": 2}, "Boil the tea.")
    assert black["runs"][0]["cost"] == pytest.approx(0.0051)
    assert [one["id"] for one in tea.call("compare", "--list", "--json").object] == [id]
    assert id in tea.call("compare", "--list").out
    new = compare(tea, "--repeat", "2", "--yes", "--new")
    assert started(new) != id
    assert len(server.requests) == 16

    runs = [one["run"] for case in found["cases"] for group in case["variants"] for one in group["runs"]]
    judged = tea.call("compare", "--runs", ",".join(runs), "--json").object  # by the cases of the comparison
    assert [(one["name"], len(one["variants"])) for one in judged["cases"]] == [("green", 2), ("black", 2)]
    assert (judged["passed"], judged["failed"]) == (6, 2)
    tea.write("other.yaml", '- name: other\n  inputs: {kind: black}\n  expect: {outputs: {"1": Boil}}\n')
    other = tea.call("compare", "--runs", ",".join(runs), "--inputs", "other.yaml", "--json").object
    assert (other["passed"], other["failed"]) == (6, 2)
    assert other["cases"][1]["name"] == "other"
    same = tea.call("compare", "--runs", ",".join(runs[:2]), "--json").object
    assert [one["label"] for one in same["variants"]] == [f"run {run}" for run in runs[:2]]

    last = [one["run"] for one in tea.call("runs", "--trigger", f"compare:{id}", "--json").object]
    assert tea.call("delete", last[1], "--contents").code == 0
    purged = tea.call("compare", "--resume", id, "--json")
    assert (purged.object["purged"], purged.object["passed"] + purged.object["failed"]) == (1, 7)
    for run in last[1:]:
        assert tea.call("delete", run).code == 0
    (kept,) = tea.call("compare", "--resume", id, "--json").object["cases"]  # what was deleted is not run again
    assert [one["run"] for group in kept["variants"] for one in group["runs"]] == last[:1]
    assert kept["name"] == "black"
    assert tea.call("delete", last[0]).code == 0
    assert "There is no comparison" in tea.call("compare", "--resume", id).err


def test_prompts_are_compared_and_an_unstable_model_is_seen(tea: CommandLine) -> None:
    tea.write("short.md", BREW.replace("Brew {{kind}}", "In a word, brew {{kind}}"))
    tea.write("cases.yaml", "- name: green\n")
    ran = compare(tea, "--prompts", "short.md", "--repeat", "3", "--yes", "--json", models="test/odd")
    assert ran.code == 0
    assert [one["label"] for one in ran.object["variants"]] == ["brew.md", "short.md"]
    (case,) = ran.object["cases"]
    assert [one["same_output"] for one in case["variants"]] == [{"same": 1, "of": 3}] * 2
    assert [one["same_verdict"] for one in case["variants"]] == [{"same": 3, "of": 3}] * 2
    assert [one["cost"] for one in ran.object["variants"]] == [None, None]  # no price is listed
    assert "cost unknown: no price is listed for this model" in ran.err


def test_a_killed_comparison_continues_without_asking_again(tea: CommandLine, server: ModelServer) -> None:
    server.hold_at = 3
    command = ("compare", "brew.md", "--models", BOTH, "--inputs", "cases.yaml", "--yes", "--parallel", "1")
    process = tea.begin(*command)
    assert server.holding.wait(30)
    process.kill()
    finished(process)
    server.release()
    assert len(server.requests) == 3

    server.holding.clear()
    server.hold_at = 5
    process = tea.begin(*command)
    assert server.holding.wait(30)
    process.send_signal(signal.SIGINT)
    stopped = finished(process)
    server.release()
    assert stopped.code == 130
    assert "2 of 4 have ended, 1 begun." in stopped.err
    id = started(stopped)
    assert f"`cuebook compare --resume {id}` continues the comparison." in stopped.err

    book = tea.work / "brew.md"
    book.write_text(BREW.replace("Brew {{kind}}", "Cook {{kind}}"))
    changed = tea.call("compare", "--resume", id, "--yes")
    assert (changed.code, "brew.md changed since it was started" in changed.err) == (2, True)
    book.write_text(BREW)
    ran = tea.call("compare", "--resume", id[:5], "--yes", "--json")
    assert ran.code == 1
    assert (ran.object["passed"], ran.object["failed"]) == (3, 1)
    assert len(server.requests) == 6  # two were cut off, and asked again
    assert len(tea.call("runs", "--json").object) == 4


def test_a_run_that_waits_is_never_a_success(tea: CommandLine) -> None:
    tea.write("ask.md", '# Ask\n\n## STEP 1: Ask\n\n@elicit(input, "Who?")\n@output(who)\n')
    tea.write(
        "ask.yaml",
        '- {name: given, answers: {"1": Ada}, replies: [unused]}\n- {name: open}\n'
        "- {name: refused, expect: {refused: no}}\n- name: expected\n  expect: {status: awaiting_input}\n",
    )
    ran = tea.call("compare", "ask.md", "--inputs", "ask.yaml")
    assert ran.code == 3
    assert "Not used, because nothing is scripted in a comparison: replies." in ran.err
    assert "1 case whose run must be refused (refused)." in ran.err
    assert "waiting       2 of 3" in ran.out
    assert re.search(r"`cuebook show \S+` shows what a waiting run needs\.", ran.out)
    id = started(ran)
    for wait in tea.call("inbox", "--json").object:
        assert tea.call("answer", wait["wait"], "Bob").code == 0
    answered = tea.call("compare", "--resume", id, "--json")
    assert answered.code == 1  # one was expected to wait
    assert (answered.object["passed"], answered.object["failed"], answered.object["waiting"]) == (2, 1, 0)
    tea.write("order.yaml", "- {name: in order, answers: [Ada]}\n")
    refused = tea.call("compare", "ask.md", "--inputs", "order.yaml")
    assert "The case 'in order' (line 1) gives its answers in order." in refused.err
    assert tea.call("compare", "ask.md", "--inputs", "order.yaml", "--runs", "a,b").code == 2


def test_no_more_is_spent_than_was_allowed(tea: CommandLine, server: ModelServer) -> None:
    # A reply of at most 100 tokens costs at most $0.10, and each really costs $0.0051.
    limits = ("--max-tokens", "100", "--yes", "--parallel", "4")
    ran = compare(tea, "--max-cost", "0.114", *limits, "--repeat", "2", models=ONE)
    assert ran.code == 4
    assert "is left" in ran.err
    assert "--max-cost was not enough for 1 run." in ran.err
    assert len(server.requests) == 3
    more = compare(tea, "--max-cost", "0.2", *limits, "--repeat", "2", models=ONE)
    assert more.code == 0
    assert len(server.requests) == 4
    shown = tea.call("show", tea.call("runs", "--json").object[0]["run"], "--json").object
    assert shown["totals"]["cost"] == pytest.approx(0.0051)
    unknown = compare(tea, "--max-cost", "1", "--yes", models="test/odd")
    assert unknown.code == 3
    assert "The price of test/odd is unknown" in unknown.err
    assert len(server.requests) == 4


def test_mistakes_are_named_before_anything_starts(tea: CommandLine, server: ModelServer) -> None:
    for words, said in (
        (["brew.md", "--inputs", "none.yaml"], "none.yaml"),
        (["brew.md", "--models", "nobody/x", "--inputs", "cases.yaml"], "nobody"),
        (["brew.md", "--inputs", "cases.yaml", "-k", "purple"], "No case has 'purple' in its name."),
        (["brew.md", "--inputs", "wrong.yaml"], "wrong.yaml:2: The playbook has no step 7."),
        (["brew.md", "--inputs", "many.yaml", "--repeat", "100"], "These are 1,100 runs"),
        ([], "Missing argument 'PLAYBOOK'."),
        (["-", "--models", ONE], "Name a file instead of -."),
        (["--resume", "nothing"], "There is no comparison nothing."),
        (["--runs", "x", "--list"], "--runs and --list are mutually exclusive."),
        (["--list", "--new"], "--list cannot be combined with --new."),
    ):
        tea.write("wrong.yaml", '- name: wrong\n  expect: {outputs: {"7": x}}\n')
        tea.write("many.yaml", "".join(f"- name: case {number}\n" for number in range(11)))
        ran = tea.call("compare", *words, "--yes")
        assert (ran.code, said in ran.err) == (2, True), ran.err
    assert server.requests == []

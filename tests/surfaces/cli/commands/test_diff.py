"""`cuebook diff`: two runs compared side by side."""

from __future__ import annotations

from typing import Any

from cuebook.kernel.context import Text
from cuebook.kernel.run import StepRow
from cuebook.service.runs.compare import Side, compare
from cuebook.service.service import RunView
from cuebook.surfaces.cli.commands.diff import LINES
from tests.support.command_line import TEA, CommandLine
from tests.support.model_server import ModelServer
from tests.support.programs import new_row


def run(cli: CommandLine, *args: str) -> str:
    return str(cli.call("run", "tea.md", *args, "--json").object["run"])


def test_a_fork_differs_from_its_step_on(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha.", "Hot.\nFor a minute.", "Served."]
    first = run(cli)
    server.replies = ["Hot.\nFor an hour.", "Served."]
    second = cli.call("fork", first, "2", "--set", "kind=black", "--json").object["run"]
    ran = cli.call("diff", first, second)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"- run {first}: tea.md, completed, test/echo-1, started ")
    assert lines[1].endswith(f", forked from {first}")
    assert "inputs:\n  - kind: green\n  + kind: black\n" in ran.out
    assert "values:" not in ran.out
    assert "  1 Choose: the same" in ran.out
    assert "  2 Brew:\n    - completed, 10 tokens in, 5 out, cost unknown\n" in ran.out
    assert "       Hot.\n      -For a minute.\n      +For an hour.\n" in ran.out
    assert "  3 Serve: the same" in ran.out


def test_an_input_that_was_changed_on_the_way_is_compared_as_it_is_now(cli: CommandLine) -> None:
    first, black = run(cli, "--kind", "green"), run(cli, "--kind", "black")
    forked = cli.call("fork", first, "1", "--set", "kind=black", "--json").object["run"]
    paused = run(cli, "--break", "1")
    assert cli.call("resume", paused, "--set", "kind=black").code == 0
    for changed in (forked, paused):
        same = cli.call("diff", black, changed, "--json").object
        assert (same["inputs"], same["values"]) == ({}, {})
        other = cli.call("diff", first, changed, "--json").object
        assert (other["inputs"], other["values"]) == ({"kind": ["green", "black"]}, {})


def test_an_answer_is_called_the_question_of_its_step(cli: CommandLine) -> None:
    cli.write("ask.md", '# Ask\n\n## STEP 1: Ask\n\n@elicit(input, "Who?")\n@output(who)\n')
    one, two = (cli.call("run", "ask.md", "--answer", f"1={name}", "--json").object["run"] for name in ("Ada", "Bob"))
    printed = cli.call("diff", one, two).out
    assert "  - the question in step 1: Ada\n  + the question in step 1: Bob\n" in printed
    assert "  - who: Ada\n" in printed
    assert "__elicit" not in printed
    assert cli.call("diff", one, two, "--json").object["values"]["__elicit_step_1"] == ["Ada", "Bob"]


def test_inputs_statuses_and_playbooks_are_compared(cli: CommandLine, server: ModelServer) -> None:
    first = run(cli, "--kind", "white")
    cli.write("tea.md", TEA.replace("Serve it.", "Serve it hot.") + "\n## STEP 4: Wash\n\nWash up.\n")
    server.replies = ["Sencha.", 401]
    second = run(cli, "--kind", "red")
    made: dict[str, Any] = cli.call("diff", first, second, "--json").object
    assert made["same"] is False
    assert [one["status"] for one in made["runs"]] == ["completed", "failed"]
    assert made["inputs"] == {"kind": ["white", "red"]}
    assert "-Serve it.\n+Serve it hot." in made["playbook"]["diff"]
    steps = {step["label"]: step for step in made["steps"]}
    assert list(steps) == ["1", "2", "3", "4"]
    assert [side["status"] for side in steps["2"]["runs"]] == ["completed", "failed"]
    assert steps["4"]["runs"][0] is None
    assert steps["4"]["runs"][1]["status"] == "skipped"
    assert made["totals"][0]["input_tokens"] == 30
    words = cli.call("diff", first, second).out
    assert "  4 Wash:\n    - missing\n    + skipped" in words


def test_runs_that_came_to_the_same_say_so(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["a", "b", "c"] * 2
    first, second = run(cli), run(cli)
    assert cli.call("diff", first, second, "--json").object["same"] is True
    assert cli.call("diff", first, second).out.endswith("The runs have the same results.\n")


def test_a_long_difference_is_cut(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [
        "\n".join(f"{word} {n}" for n in range(3_000)) if n == 0 else "x" for word in "ab" for n in range(3)
    ]
    first, second = run(cli), run(cli)
    step = cli.call("diff", first, second, "--json").object["steps"][0]
    assert step["output"]["cut"] is True
    assert step["output"]["diff"].count("\n") == LINES - 1
    ran = cli.call("diff", first, second, "--lines", "3")
    assert "      (truncated; --lines N shows more)\n" in ran.out
    assert len(ran.out.splitlines()) < 30


def test_a_run_that_is_not_there_is_one_line(cli: CommandLine) -> None:
    nothing = cli.call("diff", "a", "b")
    assert (nothing.code, nothing.err.count("\n")) == (2, 1)
    first = run(cli)
    missing = cli.call("diff", first, "nosuchrun")
    assert (missing.code, missing.out, missing.err.count("\n")) == (2, "", 1)


def test_what_only_one_run_has_comes_in_order_and_without_empty_lines() -> None:
    def side(labels: list[str], outputs: dict[str, str]) -> Side:
        steps = [StepRow("", label, 1, seq=number) for number, label in enumerate(labels, 1)]
        texts = {label: Text(text) for label, text in outputs.items()}
        return Side(RunView(new_row("r"), steps, [], {}, texts, None, None), "")

    found = compare(side(["5", "5a", "5b"], {"5a": "One."}), side(["5", "5c"], {"5c": "Two."}), 10)
    assert [step["label"] for step in found["steps"]] == ["5", "5a", "5b", "5c"]
    assert [step["output"] and step["output"]["diff"].split("\n")[1:] for step in found["steps"]] == [
        None,
        ["-One."],
        None,
        ["+Two."],
    ]

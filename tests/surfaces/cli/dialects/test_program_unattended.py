"""Unattended programs: answers beforehand, no answers, limits and budgets, and the suggested next commands."""

from __future__ import annotations

import time

import pytest

from tests.support.command_line import CommandLine

BEGIN = "# Desk\nWorks.\n\n## Main() -> Any\n### Triggers\n- T1:BGN At the beginning\n### Steps\n"
NAG = """\
# Desk

Asks.

```python
@playbook
async def AskYes(question: str) -> str:
    answers = [""]
    while answers[-1] != "yes":
        await Say("user", question)
        answers = await WaitForMessage("user")
    return answers[-1]
```

## Main() -> str

### Triggers

- T1:BGN At the beginning

### Steps

- 01:QUE $a:str = AskYes(question="Yes?")
- 02:YLD for call
- 03:RET $a
"""
LOOP = f"{BEGIN}- 01:EXE $n:int = 0\n- 02:CND While $n < 30\n  - 02.01:EXE $n = $n + 1\n  - 02.02:JMP 02\n- 03:RET $n\n"
TWO = (
    f'{BEGIN}- 01:QUE $a:str = Put(question="First?")\n- 02:QUE $b:str = Put(question="Second?")\n- 03:YLD for call\n'
    "- 04:RET $a + $b\n\n## Put($question:str) -> str\n### Steps\n- 01:QUE Say(user, $question)\n- 02:YLD for user\n"
    "- 03:RET the answer\n"
)


def test_a_program_that_asks_until_an_answer_is_valid_ends_when_unattended(cli: CommandLine) -> None:
    cli.write("nag.pbasm", NAG)
    ran = cli.call("run", "nag.pbasm", "--unattended", "--json")
    assert (ran.code, ran.object["error"]["code"]) == (1, "unanswered")
    assert (
        "'Yes?' was left without an answer 5 times in a row. Provide an answer to AskYes"
        in ran.object["error"]["message"]
    )
    assert ran.object["program"]["without_model"] == 2
    assert "lines: 2 executed, 2 without a model\n" in ran.err


def test_answers_are_given_beforehand_and_in_turn(cli: CommandLine) -> None:
    cli.write("nag.pbasm", NAG)
    cli.write("answers.yaml", "AskYes: [no, 1.10, 'yes']\n")
    ran = cli.call("run", "nag.pbasm", "--answers", "answers.yaml")
    assert (ran.code, ran.out) == (0, "yes\n")
    assert "you: no\nDesk: Yes?\nyou: 1.10\nDesk: Yes?\nyou: yes\n" in ran.err
    ran = cli.call("run", "nag.pbasm", "--answer", "Main:03=yes")
    assert (ran.code, ran.err) == (
        2,
        "cuebook: The answer for step Main:03: that step asks no question. Steps that ask a question: AskYes, Main:02.\n",
    )


def test_what_waits_says_how_to_answer_and_until_when(cli: CommandLine) -> None:
    cli.write("ask.pbasm", f'{BEGIN}- 01:EXE $words:str = "Well?"\n- 02:QUE Say(user, $words)\n- 03:YLD for user\n')
    ran = cli.call("run", "ask.pbasm", "--json")
    assert ran.object["waits"][0]["expires"] is None
    assert ran.object["program"]["without_model"] == 3
    assert f"\nnext: cuebook answer {ran.object['run']} VALUE\n" in ran.err
    assert "cuebook resume" not in ran.err
    shown = cli.call("audit", ran.object["run"]).out
    assert "send a message to user\n" in shown
    ran = cli.call("run", "ask.pbasm", "--json", "--pause-expiry", "15m")
    assert 0 < ran.object["waits"][0]["expires"] - time.time() <= 900
    ran = cli.call("run", "ask.pbasm", "--call", "")
    assert (ran.code, ran.err) == (2, "cuebook: The option 'call' cannot be ''. It must be a single line of text.\n")


def test_two_questions_are_distinguished(cli: CommandLine) -> None:
    cli.write("two.pbasm", TWO)
    ran = cli.call("run", "two.pbasm", "--json")
    first, second = (wait["wait"] for wait in ran.object["waits"])
    assert ran.err.count("First?") == ran.err.count("Second?") == 2, "once as it is said, once at the end"
    assert f"question: First? ({first})\nquestion: Second? ({second})\n" in ran.err
    assert ran.err.endswith(f"next: cuebook answer {first} VALUE\nor: cuebook answer {second} VALUE\n")
    assert ", 7 without a model\n" in ran.err
    refused = cli.call("answer", ran.object["run"], "one")
    assert refused.err.endswith(
        f"has 2 open waits: {first} (First?); {second} (Second?). Pass the id of one of them instead of the run.\n"
    )


def test_a_retry_continues_after_too_many_lines(cli: CommandLine) -> None:
    cli.write("loop.pbasm", LOOP)
    ran = cli.call("run", "loop.pbasm", "--json", "--max-lines", "50")
    assert (ran.code, ran.object["error"]["code"]) == (1, "livelock")
    assert "A retry starts counting from zero" in ran.object["error"]["message"]
    assert cli.call("retry", ran.object["run"]).out == "30\n"


@pytest.mark.parametrize(("budget", "most"), [("steps", "1"), ("seconds", "0")])
def test_lines_that_need_no_model_are_within_the_budget(cli: CommandLine, budget: str, most: str) -> None:
    cli.write("loop.pbasm", LOOP)
    ran = cli.call("run", "loop.pbasm", "--json", f"--budget-{budget}", most)
    assert (ran.code, ran.object["reason"]) == (4, "budget")
    assert f"\nnext: cuebook resume {ran.object['run']} --budget-{budget} MORE\n" in ran.err
    assert cli.call("resume", ran.object["run"], f"--budget-{budget}", "500").out == "30\n"

"""Test files of programs: scripted models, users and Python results, and the expected results of the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.program.verify.verdicts import RULES
from cuebook.formats.values import BadFile
from cuebook.testing import ScriptedModel, runner
from cuebook.testing.runner import Ran

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "testing.md"

DESK = '''\
# Desk
Counts letters.

```python
@playbook
async def Size(word: str) -> int:
    """Counts the letters of a word."""
    return len(word)
```

'''

PROGRAM = (
    DESK
    + """\
## Main($least:int = 3) -> str
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Ask for $word:str)
- 02:YLD for user
- 03:QUE $size:int = Size(word=$word)
- 04:YLD for call
- 05:CND If $size < $least
  - 05.01:RET "too short"
- 06:RET $word

## Double($n:int) -> int
### Steps
- 01:RET $n * 2

## Long() -> None
### Triggers
- T1:CND When $size > 4
### Steps
- 01:QUE Say("user", "That is long.")
- 02:RET
"""
)

GOOD = """\
- name: a word is asked for and counted
  inputs: {least: 4}
  replies:
    - |
      recap – nothing was said yet
      plan – ask for a word
      `Step["Main:01:QUE"]` `Say("user", "A word?")`
      trig? no
      `Step["Main:02:YLD"]` yld user
    - |
      recap – the user said a word
      plan – count it
      `Var[$word, "hello"]`
      trig? no
      `Step["Main:03:QUE"]` `$size = Size(word=$word)`
      trig? no
      `Step["Main:04:YLD"]` yld call
    - |
      recap – the word is long
      plan – say so
      `Step["Long:01:QUE"]` `Say("user", "That is long.")`
      trig? no
      `Step["Long:02:RET"]` `Return[]` `Var[$__, "said so"]`
      yld return
  answers: [it is hello]
  tools: {Size: 5}
  expect:
    messages: [A word?, {contains: long}]
    path: ["Main:01", "Main:02", "Main:03", "Main:04", Size, "Long:01", "Long:02", "Main:05", "Main:06"]
    variables: {size: 5, word: hello, Desk.word: hello}
    result: hello
    refusals: []
    triggers: ["Long:T1"]
    questions: ["Main:02"]
    calls: {Size: {word: hello}}
    prompts: {"Main:02": "Main:02 was executed", Long: "Execute Long", Main: "Execute Main from 01"}
    warnings: []
"""


class Shelf:
    """A folder with a program and its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, cases: str, program: str = PROGRAM) -> runner.CaseFile:
        (self.folder / "desk.pbasm").write_text(program, encoding="utf-8")
        path = self.folder / "desk.test.yaml"
        path.write_text(cases, encoding="utf-8")
        return runner.load(path)

    async def one(self, cases: str, program: str = PROGRAM, **how: Any) -> Ran:
        file = self.load(cases, program)
        (case,) = file.cases
        return await runner.run(file, case, **how)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def reported(ran: Ran) -> list[str]:
    return [f"{one.line} {one.about}: {one.expected} / {one.got}" for one in ran.mismatches]


async def test_the_guides_own_example_passes(shelf: Shelf) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("`greet.pbasm`:")[2]
    program = re.search(r"````markdown\n(.*?)````", text, re.DOTALL)
    cases = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert program is not None
    assert cases is not None
    file = shelf.load(cases[1], program[1])
    results = [await runner.run(file, case, real_steps=True) for case in file.cases]
    assert [(reported(ran), ran.error) for ran in results] == [([], ""), ([], "")]


async def test_a_case_that_holds_passes(shelf: Shelf) -> None:
    ran = await shelf.one(GOOD)
    assert (reported(ran), ran.error) == ([], "")
    assert ran.outcome is not None
    assert len(ran.outcome.asked) == 3


def test_the_tests_of_a_program_are_found_beside_it(shelf: Shelf) -> None:
    file = shelf.load(GOOD)
    assert runner.find([shelf.folder / "desk.pbasm"]) == [file.path]
    assert runner.find([shelf.folder]) == [file.path]


async def test_every_expectation_that_does_not_hold_says_what_was_expected_and_what_came(shelf: Shelf) -> None:
    ran = await shelf.one(
        GOOD.partition("  expect:")[0]
        + """\
  expect:
    messages: [A name?]
    path: ["Main:01"]
    variables: {size: 6, Desk.nothing: 1}
    result: bye
    refusals: [C5]
    triggers: []
    calls: {Size: {word: bye}}
    prompts: {Size: "Execute Size"}
"""
    )
    lines = reported(ran)
    assert len(lines) == 10
    assert lines[0] == "29 path: Main:01 / Main:01, Main:02, Main:03, Main:04, Size, Long:01, Long:02, Main:05, Main:06"
    assert "30 variable size: 6 / 5" in lines
    assert "35 prompt of step Size: to contain: Execute Size / nothing: no model was called in this step" in lines
    assert "28 message 1: A name? / A word?" in lines
    assert "28 messages: at most 1 / 2, including these extra ones:\nThat is long." in lines
    assert '31 result: "bye" / "hello"' in lines
    assert "32 refused replies: C5 / none" in lines
    assert "33 triggers that fired: none / Long:T1" in lines
    assert '34 call to Size: {"word": "bye"} / {"word": "hello"}' in lines
    assert any(line.startswith("30 variable Desk.nothing: 1 / nothing.") for line in lines)


REFUSED = """\
- name: a reply that goes where it may not is refused
  replies:
    Main:
      - |
        `Step["Main:03:QUE"]` `$size = Size(word="x")`
        yld call
      - |
        `Step["Main:01:QUE"]` `Say("user", "A word?")`
        trig? no
        `Step["Main:02:YLD"]` yld user
  expect:
    status: awaiting_input
    refusals: [RULE]
    messages: [A word?]
    questions: {"Main:02": A word?}
    prompts: {Main: "rule: C"}
"""


async def test_a_refused_reply_is_reported_with_its_rule(shelf: Shelf) -> None:
    ran = await shelf.one(REFUSED.replace("RULE", "C4"))
    assert reported(ran) == []
    ran = await shelf.one(REFUSED.replace("RULE", "C9"))
    [line] = reported(ran)
    assert line.startswith("13 refused replies: C9 / C4 at Main:01")


async def test_replies_that_are_refused_three_times_fail_the_run(shelf: Shelf) -> None:
    bad = '`Step["Main:09:EXE"]`\\nyld call'
    ran = await shelf.one(
        f'- name: x\n  replies: ["{bad}", "{bad}", "{bad}"]\n'.replace('["Main', '[\\"Main').replace('EXE"]', 'EXE\\"]')
        + "  expect: {status: failed, error: 'Main:01', refusals: [C2, C2, C2], messages: []}\n"
    )
    assert reported(ran) == []


async def test_a_call_is_run_instead_of_what_begins(shelf: Shelf) -> None:
    ran = await shelf.one(
        "- name: x\n  options: {call: Double(n=21)}\n  expect: {result: 42, path: ['Double:01'], messages: []}\n"
    )
    assert reported(ran) == []
    ran = await shelf.one("- name: x\n  options: {call: Duble(n=21)}\n  expect: {refused: \"no playbook 'Duble'\"}\n")
    assert reported(ran) == []
    ran = await shelf.one("- name: x\n  options: {call: Double(m=21)}\n  expect: {refused: no argument 'm'}\n")
    assert reported(ran) == []


CALL = "- name: x\n  options: {call: 'Size(word=\"four\")'}\n"


async def test_python_that_the_case_does_not_speak_of_is_not_run(shelf: Shelf) -> None:
    ran = await shelf.one(CALL)
    line = reported(ran)[0]
    assert line.startswith("1 call to Size: a result in the test / ")
    assert "The test has no result for step Size, so nothing was done." in line
    assert "Add 'Size: ...' under 'tools', or list it under 'real'." in line


async def test_python_is_run_for_real_only_if_the_test_and_the_flag_allow_it(shelf: Shelf) -> None:
    cases = f"{CALL}  real: [Size]\n  expect: {{result: 4, calls: {{Size: {{word: four}}}}}}\n"
    [line, *_] = reported(await shelf.one(cases))
    assert "cuebook test --real" in line
    assert reported(await shelf.one(cases, real_steps=True)) == []


async def test_scripted_python_may_fail_and_gives_one_result_after_the_other(shelf: Shelf) -> None:
    ran = await shelf.one(
        f"{CALL}  tools: {{Size: {{error: no such word}}}}\n  expect: {{status: failed, error: no such}}\n"
    )
    assert reported(ran) == []
    program = PROGRAM.replace('- 01:RET $n * 2', "- 01:QUE $a:int = Size(word=\"a\")\n- 02:YLD for call\n"
                              "- 03:QUE $b:int = Size(word=\"b\")\n- 04:YLD for call\n- 05:RET [$a, $b]")  # fmt: skip
    program = program.replace("Double($n:int) -> int", "Double($n:int) -> list")
    ran = await shelf.one(
        "- name: x\n  options: {call: Double(n=1)}\n  tools: {Size: [1, 2]}\n  expect: {result: [1, 2]}\n", program
    )
    assert reported(ran) == []


REMOTE = """\
# Desk
Asks others.

## Main() -> str
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE $sky:dict = Weather.forecast(town="Rome")
- 02:YLD for call
- 03:RET $sky

# Weather
metadata:
  remote:
    type: mcp
    url: http://127.0.0.1:9/mcp
---
Knows the weather.
"""


async def test_a_playbook_of_another_agent_gives_what_the_case_says(shelf: Shelf) -> None:
    ran = await shelf.one(
        "- name: x\n  tools: {Weather.forecast: {sky: blue, wind: [1]}}\n"
        "  expect: {calls: {Weather.forecast: {town: Rome}}, variables: {sky: {wind: [1], sky: blue}}}\n",
        REMOTE,
    )
    assert reported(ran) == []


async def test_a_playbook_of_another_server_gives_what_the_case_says(shelf: Shelf) -> None:
    program = (
        REMOTE.replace("type: mcp", "type: cuebook").replace("forecast", "Forecast").replace("$sky:dict", "$sky:str")
    )
    ran = await shelf.one(
        "- name: x\n  tools:\n"
        "    Weather.list_playbooks: {playbooks: [{playbook_id: fc, name: Forecast, inputs: [{name: town}]}]}\n"
        "    Weather.execute_playbook: {execution_id: e1, status: completed, result: blue}\n"
        "  expect:\n    result: blue\n"
        "    calls: {Weather.execute_playbook: {playbook_id: fc, input_values: {town: Rome}}}\n",
        program,
    )
    assert reported(ran) == []


async def test_answers_in_order_that_nothing_asked_for_fail_the_case(shelf: Shelf) -> None:
    ran = await shelf.one("- name: x\n  options: {call: Double(n=1)}\n  answers: [hello, bye]\n")
    assert reported(ran) == ["1 answers: 2 more answers to be used / the run asked 0 times"]


async def test_answers_may_be_given_by_line_or_by_playbook(shelf: Shelf) -> None:
    for label in ("Main", '"Main:02"'):
        ran = await shelf.one(GOOD.replace("answers: [it is hello]", f"answers: {{{label}: it is hello}}"))
        assert reported(ran) == []


PAIR = """\
# Desk
Does two things at once.

## Main() -> list
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE $a:str = One()
- 02:QUE $b:str = Two()
- 03:YLD for call
- 04:RET [$a, $b]

## One() -> str
### Steps
- 01:RET some word

## Two() -> str
### Steps
- 01:RET some other word
"""


async def test_replies_by_playbook_reach_calls_that_run_at_the_same_time(shelf: Shelf) -> None:
    def reply(name: str) -> str:
        return f'"`Step[\\"{name}:01:RET\\"]` `Return[\\"{name}\\"]` `Var[$__, \\"ok\\"]`\\nyld return"'

    cases = (
        f"- name: x\n  replies:\n    Two: {reply('Two')}\n    One: {reply('One')}\n  expect: {{result: [One, Two]}}\n"
    )
    assert reported(await shelf.one(cases, PAIR)) == []


async def test_nothing_may_be_expected_as_a_result(shelf: Shelf) -> None:
    nothing = PROGRAM.replace("-> int\n### Steps\n- 01:RET $n * 2", "-> None\n### Steps\n- 01:RET")
    cases = "- name: x\n  options: {call: Double(n=1)}\n  expect: {result: null}\n"
    assert reported(await shelf.one(cases, nothing)) == []
    assert reported(await shelf.one(cases)) == ["3 result: null / 2"]


def test_what_is_wrong_in_a_file_is_named(shelf: Shelf) -> None:
    with pytest.raises(BadFile) as refusal:
        shelf.load(
            "- name: x\n  replies: {Maine: a}\n  answers: {'Main:12': a}\n  real: [Sise]\n"
            "- name: y\n  answers: [a]\n  unattended: true\n  expect: {path: ['Main:1'], refusals: null}\n"
            "- name: z\n  tools: {Size: 1, Sise: 1, Nope.x: 1}\n  expect: {refusals: [Z9, C5]}\n"
        )
    lines = [line.partition("desk.test.yaml:")[2] for line in str(refusal.value).split("\n")]
    assert lines == [
        "2: The playbook has no step Maine. Did you mean 'Main'?",
        "3: The playbook has no step Main:12. Did you mean 'Main:02'?",
        "4: The playbook has no step Sise. Did you mean 'Size'?",
        "6: An unattended run needs its answers by step. Write 'STEP: ANSWER'.",
        "8: 'refusals' has no value. Write [] to expect none, or remove it.",
        "8: The playbook has no step Main:1. Did you mean 'Main:01'?",
        "10: The playbook has no tool 'Nope.x', and no remote agent that offers it. Use one of: Size.",
        "10: The playbook has no tool 'Sise', and no remote agent that offers it. Did you mean 'Size'?",
        f"11: A rule cannot be 'Z9'. Use one of: {', '.join(RULES)}.",
    ]


async def test_replies_are_recorded_though_the_verifier_stops_them(shelf: Shelf) -> None:
    """A reply is stopped at its yield, or where it is refused: the text up to there is recorded."""
    said = [
        '`Step["Main:03:QUE"]` `$size = Size(word="x")`\nyld call\nand a long tale besides',
        '`Step["Main:01:QUE"]` `Say("user", "A word?")`\ntrig? no\n`Step["Main:02:YLD"]` yld user\n\nand another tale',
        '`Var[$word, "hello"]`\ntrig? no\n`Step["Main:03:QUE"]` `$size = Size(word=$word)`\ntrig? no\n'
        '`Step["Main:04:YLD"]` yld call\nand more and more',
    ]
    cases = (
        "- name: x\n  recorded: said.jsonl\n  model: test/one\n  answers: [hello]\n  tools: {Size: 3}\n"
        "  expect: {result: hello, refusals: [C4], messages: [A word?]}\n"
    )
    model = ScriptedModel(said, chunk=7)
    ran = await shelf.one(cases, real=lambda name: model)
    assert (reported(ran), ran.error) == ([], "")
    assert (len(model.requests), model.stopped) == (3, 3)
    ran = await shelf.one(cases)
    assert (reported(ran), ran.error) == ([], "")
    assert "tale" not in (shelf.folder / "said.jsonl").read_text(encoding="utf-8")

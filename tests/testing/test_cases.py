"""Test files of playbooks: a run uses the inputs and results of its case, and is compared with what the case expects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cuebook.dialects import registry
from cuebook.formats.values import BadFile
from cuebook.kernel.effects import ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.testing import ScriptedModel, runner
from cuebook.testing.cases import Case
from cuebook.testing.junit import in_words, report
from cuebook.testing.runner import Ran
from cuebook.testing.stage import Stage

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "testing.md"

TEA = """\
# Tea

## SYSTEM

Be brief.

## INPUTS

- `kind` (enum: green, black): Which tea
- `cups` (number: 2): How many

## STEP 1: Choose

Choose a {{kind}} tea for {{cups}}.

@output(tea)

## STEP 2: Ask

@elicit(confirm, "Brew {{tea}}?")
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

type: markdown
"""

LINEAR = "# One\n\n## STEP 1: Do\n\nDo it.\n\n@output(done)\n\n## STEP 2: Again\n\nAgain {{done}}.\n"


class Shelf:
    """A folder with a playbook and its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    async def run(self, cases: str, playbook: str = TEA) -> list[Ran]:
        self.write("tea.playbook.md", playbook)
        file = runner.load(self.write("tea.test.yaml", cases))
        return [await runner.run(file, case) for case in file.cases]

    async def one(self, case: str, playbook: str = TEA) -> Ran:
        (ran,) = await self.run(case, playbook)
        return ran

    def refused(self, cases: str, playbook: str = TEA) -> list[str]:
        """The lines of the refusal, without the file's name."""
        self.write("tea.playbook.md", playbook)
        path = self.write("tea.test.yaml", cases)
        with pytest.raises(BadFile) as refusal:
            runner.load(path)
        return [line.removeprefix(f"{path}:") for line in str(refusal.value).split("\n")]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def reported(ran: Ran) -> list[str]:
    return [f"{one.line} {one.about}: {one.expected} / {one.got}" for one in ran.mismatches]


# --- what the guide says ------------------------------------------------------------------------------------


async def test_the_guides_own_example_passes(shelf: Shelf) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    playbook = re.search(r"````markdown\n(.*?)````", text, re.DOTALL)
    cases = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert playbook is not None
    assert cases is not None
    shelf.write("review.playbook.md", playbook[1])
    file = runner.load(shelf.write("review.test.yaml", cases[1]))
    results = [await runner.run(file, case) for case in file.cases]
    assert [(ran.case.name, reported(ran), ran.error) for ran in results if not ran.passed] == []
    assert len(results) == 4


def test_every_key_of_a_case_is_in_the_guide(shelf: Shelf) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    (line,) = shelf.refused("- name: x\n  zzz: 1\n")
    given = line.partition("Use one of: ")[2].rstrip(".").split(", ")
    (line,) = shelf.refused("- name: x\n  expect: {zzz: 1}\n")
    expected = line.partition("Use one of: ")[2].rstrip(".").split(", ")
    assert {"answers", "overrides"} < set(given)
    assert {"artifact", "questions"} < set(expected)
    missing = [name for name in (*given, *expected) if f"| `{name}` |" not in text]
    assert missing == []


# --- what a case gives --------------------------------------------------------------------------------------


async def test_a_case_that_holds_passes(shelf: Shelf) -> None:
    ran = await shelf.one("""\
- name: green
  inputs: {kind: green}
  replies: [Sencha, Done]
  answers: {2: yes}
  expect:
    status: completed
    ran: [1, 2, 3, 3a]
    skipped: [3b]
    variables: {tea: Sencha, go: yes, kind: green, cups: 2}
    outputs: {1: Sencha, 3a: {equals: Done}}
    prompts:
      1: [Choose a green tea, for 2]
      3a: {equals: Brew Sencha., not_contains: "{{"}
    system: {contains: Be brief}
    artifact: {equals: Done, contains: [D, one], not_contains: x, type: markdown}
    warnings: []
    questions: {2: Brew Sencha?}
""")
    assert (reported(ran), ran.error, ran.passed) == ([], "", True)


async def test_replies_are_given_in_order_or_by_step(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: in order
  inputs: {kind: green}
  replies: [Sencha, Sorry]
  answers: {2: no}
  expect: {artifact: Sorry}
- name: by step
  inputs: {kind: green}
  replies: {3b: Sorry, 1: [Sencha]}
  answers: {2: no}
  expect: {artifact: Sorry}
""")
    assert [ran.passed for ran in results] == [True, True]


async def test_a_reply_that_is_missing_fails_the_run_and_says_which(shelf: Shelf) -> None:
    results = await shelf.run(
        """\
- name: in order
  replies: [one]
- name: by step
  replies: {1: one}
- name: none
""",
        LINEAR,
    )
    assert [reported(ran)[0].partition(" / ")[2] for ran in results] == [
        "failed: The test has no reply left for step 2 (1 used). Add one under 'replies', or check why the step calls the model.",
        "failed: The test has no reply for step 2. Add one under 'replies', or check why the step calls the model.",
        "failed: The test has no reply for step 1. Add one under 'replies', or check why the step calls the model.",
    ]
    assert [ran.mismatches[0].step for ran in results] == ["2", "2", "1"]


async def test_unused_replies_fail_the_case(shelf: Shelf) -> None:
    ran = await shelf.one("- name: x\n  replies: [a, b, c, d]\n", LINEAR)
    assert reported(ran) == ["1 replies: 2 more replies to be used / the run ended after 2 requests"]


async def test_a_reply_may_be_an_error_a_cut_text_or_an_error_that_is_tried_again(shelf: Shelf) -> None:
    results = await shelf.run(
        """\
- name: an error
  replies: [{error: the provider is gone}]
  expect: {status: failed, error: the provider is gone, ran: [1], skipped: [2]}
- name: cut
  replies: [{text: half a sen, finish: length}, b]
  expect: {warnings: was cut}
- name: tried again
  replies: [{error: slow down, kind: rate}, a, b]
  expect: {artifact: b, warnings: []}
""",
        LINEAR,
    )
    assert [reported(ran) for ran in results] == [[], [], []]


async def test_of_several_answers_the_next_is_given_when_one_does_not_fit(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: at last
  inputs: {kind: green}
  replies: [Sencha, Done]
  answers: {2: [perhaps, yes]}
  expect: {variables: {go: yes}}
- name: never
  inputs: {kind: green}
  replies: [Sencha, Done]
  answers: {2: perhaps}
  expect: {status: completed}
""")
    assert results[0].passed
    assert reported(results[1]) == [
        "10 status: completed / awaiting_input: 'perhaps' is neither yes nor no. Answer yes or no."
    ]


async def test_a_question_without_an_answer_leaves_the_run_waiting(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: expected
  inputs: {kind: green}
  replies: [Sencha]
  expect: {status: awaiting_input, questions: [2], ran: [1, 2]}
- name: not expected
  inputs: {kind: green}
  replies: [Sencha]
""")
    assert results[0].passed
    assert reported(results[1]) == ["5 status: completed / awaiting_input: Brew Sencha?"]


async def test_an_unattended_run_takes_the_answers_given_or_the_defaults(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: given
  unattended: true
  inputs: {kind: green}
  replies: [Sencha, Sorry]
  answers: {2: no}
  expect: {variables: {go: no}, questions: [2]}
- name: default
  unattended: true
  inputs: {kind: green}
  replies: [Sencha, Done]
  expect: {variables: {go: yes}}
""")
    assert [reported(ran) for ran in results] == [[], []]


async def test_an_answer_for_a_step_is_one_for_its_sub_steps(shelf: Shelf) -> None:
    book = """\
# Branch

## INPUTS

- `way` (enum: a, b): Where

## STEP 1: Choose

```if way == "a"```
### STEP 1a: Ask
@elicit(input, "Who?")
```else```
### STEP 1b: Other
Say it.
```endif```
"""
    ran = await shelf.one("- name: x\n  inputs: {way: a}\n  answers: {1: Ada}\n  expect: {artifact: Ada}\n", book)
    assert reported(ran) == []


async def test_breakpoints_stay_paused_and_overrides_continue(shelf: Shelf) -> None:
    results = await shelf.run(
        """\
- name: stays
  replies: [a]
  breakpoints: [1]
  expect: {status: paused, ran: [1], skipped: [2]}
- name: goes on
  replies: [a, b]
  overrides: {1: {done: changed}}
  expect:
    prompts: {2: Again changed.}
    variables: {done: changed}
""",
        LINEAR,
    )
    assert [reported(ran) for ran in results] == [[], []]


TOOLED = """\
# Tooled

## INPUTS

- `what` (text): What

## STEP 1: Look

@tool(shop, find, {"name": "{{what}}", "most": 3})
@output(found)

## STEP 2: Tell

Tell of {{found}}.

## STEP 3: Count

@tool(python, count, {"of": "{{what}}"})
"""


async def test_tools_give_what_the_case_says(shelf: Shelf) -> None:
    results = await shelf.run(
        """\
- name: results
  inputs: {what: 'tea "green"'}
  tools:
    shop.find: {price: 3}
    count: 7
  replies: [Cheap]
  expect:
    variables: {found: '{"price": 3}'}
    calls:
      - shop.find: {name: 'tea "green"', most: 3}
      - count: {}
    artifact: '7'
- name: an error
  inputs: {what: tea}
  tools: {shop.find: {error: the shop is closed}}
  expect: {status: failed, error: [shop.find, the shop is closed]}
- name: none
  inputs: {what: tea}
  tools: {shop.fund: 1}
- name: another argument
  inputs: {what: tea}
  tools: {shop.find: a, count: 7}
  replies: [x]
  expect: {calls: {shop.find: {name: coffee}}}
""",
        TOOLED,
    )
    assert [reported(ran) for ran in results[:2]] == [[], []]
    assert (
        "The test has no result for the tool 'shop.find'. Add it under 'tools'. Did you mean 'shop.fund'?"
        in (reported(results[2])[0])
    )
    assert reported(results[3]) == ['24 call to shop.find: {"name": "coffee"} / {"name": "tea", "most": 3}']


PROMPTED = "# Prompted\n\n## STEP 1: Do\n\n@prompt({})\n\nDo it.\n"


async def test_a_prompt_is_read_beside_the_playbook_or_given_by_the_case(shelf: Shelf) -> None:
    shelf.write("tone.md", "Be kind.")
    ran = await shelf.one(
        "- name: x\n  replies: [a]\n  expect: {prompts: {1: [Be kind., Do it.]}, warnings: []}\n",
        PROMPTED.replace("{}", "file:tone.md"),
    )
    assert reported(ran) == []
    for prompt in ("library:tone", "mcp:server/tone", "tone"):
        ran = await shelf.one(
            f"- name: x\n  replies: [a]\n  prompts: {{'{prompt}': Be bold.}}\n  expect: {{prompts: {{1: Be bold.}}}}\n",
            PROMPTED.replace("{}", prompt),
        )
        assert reported(ran) == [], prompt


async def test_a_prompt_without_a_text_is_missing_as_in_a_real_run(shelf: Shelf) -> None:
    ran = await shelf.one(
        "- name: x\n  replies: [a]\n  expect: {warnings: 'The test has no text for mcp:server/tone'}\n",
        PROMPTED.replace("{}", "mcp:server/tone"),
    )
    assert reported(ran) == []


async def test_what_a_run_refuses_can_be_expected(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: expected
  inputs: {kind: red}
  expect: {refused: kind must be one of green}
- name: another reason
  expect: {refused: too late}
- name: not expected
- name: not refused
  inputs: {kind: green}
  replies: [a, b]
  answers: {2: yes}
  expect: {refused: anything}
""")
    assert results[0].passed
    assert [one.partition(" / ")[2][:40] for ran in results[1:] for one in reported(ran)] == [
        "Missing input: kind (one of green, black",
        "refused: Missing input: kind (one of gre",
        "the run is completed",
    ]


async def test_numbers_and_dates_reach_the_playbook_as_they_are_written(shelf: Shelf) -> None:
    book = "# V\n\n## INPUTS\n\n- `v` (string): V\n- `d` (string): D\n\n## STEP 1: Do\n\nOf {{v}} on {{d}}.\n"
    for value, shown in (
        ("1.10", "1.10"),
        ("00123", "00123"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        ("1" * 40, "1" * 40),
        (".5", ".5"),
        ("true", "true"),
        ("[1.10, 0x1F, x, 2024-01-02, true, null]", '[1.10, "0x1F", "x", "2024-01-02", true, null]'),
        ('{a: {b: 1e3, "c\\n": 00123}}', '{"a": {"b": 1e3, "c\\n": "00123"}}'),
    ):
        case = f"- name: x\n  inputs: {{v: {value}, d: 2024-01-02}}\n  replies: [a]\n  expect:\n"
        expected = f"    prompts: {{1: {{equals: {json.dumps(f'Of {shown} on 2024-01-02.')}}}}}\n"
        assert reported(await shelf.one(case + expected, book)) == [], value


# --- recorded replies ---------------------------------------------------------------------------------------

RECORDED = "- name: x\n  recorded: said.jsonl\n  model: test/one\n  expect: {artifact: World, ran: [1, 2]}\n"


async def test_a_recording_is_made_once_and_replayed_without_the_model(shelf: Shelf) -> None:
    shelf.write("tea.playbook.md", LINEAR)
    file = runner.load(shelf.write("tea.test.yaml", RECORDED))
    (case,) = file.cases
    before = await runner.run(file, case)
    assert "There is no recording" in before.error
    assert "cuebook test --record" in before.error
    model = ScriptedModel(["Hello", "World"])
    names: list[str] = []

    def real(name: str) -> ScriptedModel:
        names.append(name)
        return model

    assert (await runner.run(file, case, real)).passed
    assert (await runner.run(file, case)).passed
    assert (await runner.run(file, case, real)).passed, "nothing is missing, so nothing is asked"
    assert (names[0], len(model.requests)) == ("test/one", 2)


async def test_a_request_that_was_not_recorded_fails_and_says_so(shelf: Shelf) -> None:
    shelf.write("said.jsonl", "")
    ran = await shelf.one(RECORDED, LINEAR)
    assert "said.jsonl contains no reply of one to 'Do it.'" in reported(ran)[0]


# --- what does not hold -------------------------------------------------------------------------------------


async def test_every_unmet_expectation_is_reported_with_its_line_and_step(shelf: Shelf) -> None:
    ran = await shelf.one("""\
- name: all wrong
  inputs: {kind: green}
  replies: [Sencha, Done]
  answers: {2: yes}
  expect:
    ran: [1, 2]
    skipped: [3a]
    variables: {tea: Assam, te: x}
    outputs: {3a: Nothing}
    prompts:
      1: {not_contains: green}
      3b: Apologise
    system: Be long
    artifact: {equals: Undone, type: json}
    warnings: something odd
    questions: [1]
""")
    assert reported(ran) == [
        "6 steps that ran: 1, 2 / 1, 2, 3, 3a",
        "7 steps that are skipped: 3a / 3a ran",
        "8 variable tea: Assam / Sencha",
        "8 variable te: x / nothing. Did you mean 'tea'?",
        "9 output of step 3a: to contain: Nothing / Done",
        "11 prompt of step 1: not to contain: green / Choose a green tea for 2.",
        "12 prompt of step 3b: to contain: Apologise / nothing: no model was called in this step",
        "13 system message of step 1: to contain: Be long / Be brief.",
        "14 artifact: Undone / Done",
        "14 type of the artifact: json / markdown",
        "15 warnings: one that contains: something odd / none",
        "16 steps that asked a question: 1 / 2",
    ]
    assert [one.step for one in ran.mismatches][4:8] == ["3a", "1", "3b", "1"]
    assert in_words("t.yaml", ran.mismatches[2]) == ("t.yaml:8: variable tea\n  expected: Assam\n  got:      Sencha")


async def test_no_warnings_means_none(shelf: Shelf) -> None:
    book = LINEAR.replace("Do it.", "Do {{it}}.")
    ran = await shelf.one("- name: x\n  replies: [a, b]\n  expect: {warnings: []}\n", book)
    assert reported(ran) == ["3 warnings: none / Step 1: unknown variable 'it', so {{it}} was not replaced."]


async def test_a_playbook_that_cannot_be_parsed_fails_every_case(shelf: Shelf) -> None:
    results = await shelf.run("- name: a\n- name: b\n  answers: {9: x}\n", "no title\n\n## STEP 1: Do\n\nx\n")
    assert ["No title found" in ran.error for ran in results] == [True, True]
    assert [ran.passed for ran in results] == [False, False]


# --- test files that are wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cases", "reported"),
    [
        ("- name: x\n  input: {}\n", "2: Unknown key 'input' in a case. Did you mean 'inputs'?"),
        ("- name: x\n  expect:\n    artefact: x\n", "3: Unknown key 'artefact' in expect. Did you mean 'artifact'?"),
        (
            "- name: x\n  expect: {artifact: {equal: x}}\n",
            "2: Unknown key 'equal' in artifact. Did you mean 'equals'?",
        ),
        ("- name: x\n  answers: {4: yes}\n", "2: The playbook has no step 4. Use one of: 1, 2, 3, 3a, 3b."),
        ("- name: x\n  expect: {ran: [1, 3c]}\n", "2: The playbook has no step 3c. Did you mean '3'?"),
        ("- name: x\n  expect: {status: complete}\n", "2: Status cannot be 'complete'. Did you mean 'completed'?"),
        ("- name: x\n  unattended: perhaps\n", "2: Unattended must be true or false, not 'perhaps'."),
        ("- name: x\n  replies: [{text: a, error: b}]\n", "2: A reply needs either 'text' or 'error'."),
        ("- name: x\n  replies: [{error: b, kind: rat}]\n", "2: Kind cannot be 'rat'. Did you mean 'rate'?"),
        ("- name: x\n  replies: [[a]]\n", "2: A reply must be a string, not a list."),
        (
            "- name: x\n  replies: [a]\n  recorded: f\n",
            "3: 'replies' and 'recorded' are mutually exclusive. Remove one.",
        ),
        ("- inputs: {}\n", "1: A case needs a name."),
        ("- name: x\n- name: x\n", "2: The case on line 1 is also named 'x'. Choose another name."),
        ("- name: x\n  expect: {refused: a, ran: []}\n", "2: A refused run has no ran."),
        ("- name: x\n  expect:\n    artifact:\n", "3: 'artifact' has no value."),
        ("- name: x\n  inputs: [a]\n", "2: Inputs must be a table of names and values, not a list."),
        ("name: x\n", "1: A test file is a list of cases."),
        ("", "1: A test file is a list of cases."),
        ("- name: x\n  name: y\n", "2: 'name' is defined twice. Remove one of them; the first is on line 1."),
        ("- name: x\n  inputs: {a: 1, a: 2}\n", "2: 'a' is defined twice."),
        ("- name: x\n- name: [\n", "3: invalid YAML"),
        (
            "- name: x\n\treplies: [a]\n",
            "2: a tab where YAML allows only spaces. Use spaces instead of the tab.",
        ),
        ("- name: a: b\n", "1: invalid YAML: mapping values are not allowed here."),
        ("- name: !!python/object:os.system x\n", "1: unknown tag"),
        ("- name: x\n  inputs: " + "[" * 50 + "]" * 50 + "\n", "2: this is nested too deeply or has too many values."),
        ("- name: x\n  inputs:\n    n: !!int abc\n", "3: 'abc' is not a valid int."),
        ("- name: x\n  inputs: {n: !!bool maybe}\n", "2: 'maybe' is not a valid bool."),
        ("- name: x\n  tools: {a.b: !!float x}\n", "2: 'x' is not a valid float."),
        (f"- name: x\n  inputs: {{n: {'9' * 5000}}}\n", "2: this number has 5000 characters. Put it in quotes."),
    ],
)
def test_a_wrong_file_says_which_line_and_what_was_meant(shelf: Shelf, cases: str, reported: str) -> None:
    (line,) = shelf.refused(cases)
    assert line.startswith(reported)


def test_all_problems_are_reported_at_once(shelf: Shelf) -> None:
    lines = shelf.refused("- name: x\n  input: {}\n  answers: {9: a}\n- expect: {satus: x}\n")
    assert [line.partition(":")[0] for line in lines] == ["2", "3", "4", "4"]


def test_references_that_multiply_are_refused(shelf: Shelf) -> None:
    levels = "\n".join(
        f"  - &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    (line,) = shelf.refused(f"- name: x\n  replies:\n  - &a [x, x]\n{levels}\n")
    assert "this is nested too deeply or has too many values" in line


def test_a_file_without_its_playbook_says_what_it_looked_for(shelf: Shelf) -> None:
    path = shelf.write("lost.test.yaml", "- name: x\n")
    with pytest.raises(
        BadFile,
        match=r"next to it: lost\.playbook\.md, lost\.markdown, lost\.pbasm, lost\.yaml, lost\.yml, lost\.md, lost\.pb",
    ):
        runner.load(path)
    shelf.write("lost.md", LINEAR)
    assert runner.load(path).playbook.name == "lost.md"
    shelf.write("lost.playbook.md", LINEAR)
    with pytest.raises(BadFile, match="both"):
        runner.load(path)


# --- finding ------------------------------------------------------------------------------------------------


def test_tests_are_found_in_folders_by_name_and_beside_playbooks(shelf: Shelf) -> None:
    for name in ("a.test.yaml", "deep/b.test.yml", ".hidden/c.test.yaml", "node_modules/d.test.yaml", "e.yaml"):
        shelf.write(name, "- name: x\n")
    shelf.write("a.playbook.md", LINEAR)
    alone = shelf.write("alone.md", LINEAR)
    folder = shelf.folder
    assert runner.find([folder]) == [folder / "a.test.yaml", folder / "deep" / "b.test.yml"]
    assert runner.find([folder / "a.playbook.md", folder / "a.test.yaml"]) == [folder / "a.test.yaml"]
    with pytest.raises(BadInput, match=r"alone\.md has no tests.*alone\.test\.yaml, next to it"):
        runner.find([alone])
    with pytest.raises(BadInput, match="There is no file"):
        runner.find([folder / "nothing.md"])


# --- JUnit --------------------------------------------------------------------------------------------------

SUITE = {"id", "name", "package", "hostname", "timestamp", "tests", "failures", "errors", "skipped", "time"}


async def test_the_report_is_what_readers_of_junit_expect(shelf: Shelf) -> None:
    results = await shelf.run("""\
- name: passes
  inputs: {kind: green}
  replies: ["\\e[31mSencha & <b>", Done]
  answers: {2: yes}
- name: fails
  inputs: {kind: green}
  replies: ["\\e[31mSencha & <b>", Done]
  answers: {2: yes}
  expect: {variables: {tea: Assam}}
- name: no recording
  inputs: {kind: green}
  recorded: none.jsonl
""")
    root = ET.fromstring(report(results, 0.0))
    assert (root.tag, root.attrib) == ("testsuites", {})
    (suite,) = root
    assert set(suite.attrib) == SUITE
    assert [suite.get(name) for name in ("id", "tests", "failures", "errors")] == ["0", "3", "1", "1"]
    assert suite.get("timestamp") == "1970-01-01T00:00:00", "without a zone, as the schema has it"
    assert [child.tag for child in suite] == ["properties", *["testcase"] * 3, "system-out", "system-err"]
    for case in suite.iter("testcase"):
        assert set(case.attrib) == {"name", "classname", "time"}
        assert re.fullmatch(r"\d+\.\d{3}", case.get("time", ""))
    failure, error = suite.find("testcase/failure"), suite.find("testcase/error")
    assert failure is not None
    assert error is not None
    assert set(failure.attrib) == set(error.attrib) == {"type", "message"}
    assert failure.get("message") == "variable tea: expected Assam, got \ufffd[31mSencha & <b>"
    assert "tea.test.yaml:9: variable tea" in (failure.text or "")


async def test_nothing_of_a_case_reaches_the_network(shelf: Shelf) -> None:
    stage = Stage(Case(name="x", line=1), shelf.folder, registry.named("markdown"))
    call: Any = None  # it gets no further than the name
    outcome = await stage.read(ReadSource("https://example.com/tone"), call)
    assert isinstance(outcome, Failed)
    assert outcome.message == "The test has no text for https://example.com/tone."

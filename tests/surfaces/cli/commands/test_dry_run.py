"""Dry runs of the whole dialect: every prompt, all branches that depend on the run, and no side effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.preview.branches import foresee
from cuebook.dialects.presentation.preview import Choice, Preview, Read, played, unread
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli.terminal.preview import dry_run_objects, dry_run_passages
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.sampling import many

ROUTED = """\
# Routed

## SYSTEM

Be brief.

## INPUTS

- `text` (text: words): What it is about
- `loud` (boolean: false): Whether to shout

## STEP 1: Sort

Sort {{text}}.

@output(kind, extract:"kind")

## STEP 2: Route

About {{text}}.

```if kind == "bug"```

### STEP 2a: Mend

Mend it.

### STEP 2b: Prove

Prove it.

```elif kind == "wish"```

### STEP 2c: Grant

Grant it.

```endif```

@output(result)

## STEP 3: Volume

```if loud == "true"```

Shout {{result}}.

```else```

Whisper {{result}}.

```endif```
"""


def previewed(
    text: str, inputs: Mapping[str, str] | None = None, settings: Settings = Settings(), read: Read = unread
) -> Preview:
    """Missing inputs are unknown."""
    return played(MARKDOWN.preview(MARKDOWN.parse(text, "a.md"), inputs or {}, settings), read)


def shown(text: str, settings: Settings = Settings(), read: Read = unread, **inputs: str) -> list[dict[str, Any]]:
    known = MARKDOWN.accept(MARKDOWN.parse(text, "a.md"), inputs)
    return dry_run_objects(previewed(text, known, settings, read))


def prompts(parts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(part["step"], part["prompt"]) for part in parts if "prompt" in part]


# --- branches -------------------------------------------------------------------------------------------


def test_a_branch_that_the_inputs_choose_is_the_only_one_shown() -> None:
    assert prompts(shown(ROUTED, loud="yes"))[-1] == ("3a", "Shout <output of step 2b>.")
    assert prompts(shown(ROUTED, loud="no"))[-1] == ("3b", "Whisper <output of step 2b>.")


def test_where_an_output_decides_each_way_is_shown() -> None:
    sort, route, _ = shown(ROUTED)
    assert prompts([sort]) == [("1", "Sort words.")]
    assert (route["step"], route["depends_on"], route["followed"]) == ("2", ["kind"], 'kind == "bug"')
    assert [way["when"] for way in route["ways"]] == ['kind == "bug"', 'kind == "wish"', "otherwise"]
    bug, wish, neither = (way["shown"] for way in route["ways"])
    assert prompts(bug) == [("2a", "About words.\n\nMend it."), ("2b", "About words.\n\nProve it.")]
    assert prompts(wish) == [("2c", "About words.\n\nGrant it.")]
    assert "skipped" in neither[0]


def test_later_sub_steps_see_what_earlier_ones_would_give() -> None:
    route = shown(ROUTED)[1]
    assert route["ways"][0]["shown"][1]["system"].startswith(
        "Be brief.\n\nOutput of step 1, Sort (15 characters of data"
    )
    assert "Output of step 2a, Mend" in route["ways"][0]["shown"][1]["system"]


def test_what_follows_is_shown_along_one_way() -> None:
    assert "Output of step 2b, Prove" in shown(ROUTED)[-1]["system"]


def test_a_step_that_branches_on_itself_asks_before_it_chooses() -> None:
    text = '# A\n\n## STEP 1: B\n\nGood?\n\n@output(v)\n\n```if v == "no"```\n\nBetter.\n\n```endif```\n'
    own, ways = shown(text)
    assert prompts([own]) == [("1", "Good?")]
    assert [(way["when"], prompts(way["shown"])) for way in ways["ways"]] == [
        ('v == "no"', [("1a", "Better.")]),
        ("otherwise", []),
    ]


def test_a_reply_that_names_no_option_is_a_way_too() -> None:
    text = '# A\n\n## STEP 1: B\n\nx\n\n@output(v: enum, "a", "b")\n\n## STEP 2: C\n\n```if v == "a"```\n\nA\n\n'
    text += '```elif v == "b"```\n\nB\n\n```endif```\n'
    ways = shown(text)[-1]["ways"]
    assert [(way["when"], prompts(way["shown"])) for way in ways] == [
        ('v == "a"', [("2a", "A")]),
        ('v == "b"', [("2b", "B")]),
        ("otherwise", []),
    ]


def test_a_branch_behind_a_branch_is_reached() -> None:
    text = (
        '# A\n\n## STEP 1: Ask\n\nx\n\n@output(a)\n\n## STEP 2: B\n\n```if a == "1"```\n\none\n\n'
        '```else```\n\ntwo\n\n@output(b)\n\n```endif```\n\n## STEP 3: C\n\n```if b == "2"```\n\nthree\n\n```endif```\n'
    )
    last = shown(text)[-1]
    assert (last["step"], last["depends_on"]) == ("3", ["b"])
    assert prompts(last["ways"][0]["shown"]) == [("3a", "three")]


RATED = """\
# Rated

## INPUTS

- `k` (enum: a, b): K

## STEP 1: Rate

```if k == "a"```

Rate it.

@output(sev: enum, "low", "high")

{more}```endif```

## STEP 2: Act

```if sev == ""```

Nothing to do.

```else```

Act on {{{{sev}}}}.

```endif```
"""


def whens(text: str, **inputs: str) -> list[tuple[str, list[str]]]:
    """The branches of the last step, with the earlier steps that their prompts show."""
    objects = dry_run_objects(previewed(text, inputs))
    ways = objects[-1]["ways"]
    assert "none of low, high" not in str(objects)
    return [(way["when"], [one["system"].partition(",")[0] for one in way["shown"]]) for way in ways]


def test_what_a_branch_sets_that_is_taken_for_certain_is_not_empty() -> None:
    book = MARKDOWN.parse(RATED.format(more=""), "a.md")
    foresight = foresee(book, {"k": "a"})
    assert (foresight.forks, foresight.taken) == ({}, {0: 0, 1: 1})
    assert foresee(book, {"k": "b"}).taken == {0: None, 1: 0}


def test_what_every_branch_sets_is_not_empty() -> None:
    more = '```else```\n\nGuess.\n\n@output(sev: enum, "low", "high")\n\n'
    assert foresee(MARKDOWN.parse(RATED.format(more=more), "a.md"), {}).taken == {1: 1}


def test_a_value_is_empty_only_where_the_branch_that_sets_it_is_not_taken() -> None:
    assert whens(RATED.format(more="")) == [
        ('sev == ""', [""]),
        ("otherwise", ["Output of step 1a"]),
    ]


def test_one_variable_decides_alike_in_every_step() -> None:
    block = '```if v == "a"```\n\nA{0}\n\n```elif v == "b"```\n\nB{0}\n\n```endif```\n\n'
    steps = "".join(f"## STEP {number}: X\n\n" + block.format(number) for number in (2, 3))
    first, second, third = shown(f"# A\n\n## STEP 1: V\n\nv?\n\n@output(v)\n\n{steps}")
    assert prompts([first]) == [("1", "v?")]
    for number, part in ((2, second), (3, third)):
        assert [prompts(way["shown"]) for way in part["ways"]] == [
            [(f"{number}a", f"A{number}")],
            [(f"{number}b", f"B{number}")],
            [],
        ]


def test_steps_with_the_same_number_are_distinguished() -> None:
    text = '# A\n\n## STEP 1: B\n\nx\n\n@output(v)\n\n## STEP 1: C\n\n```if v == "1"```\n\none\n\n```endif```\n'
    parts = [part for part in shown(text) if "warning" not in part]
    assert prompts(parts[:1]) == [("1", "x")]
    assert [way["when"] for way in parts[1]["ways"]] == ['v == "1"', "otherwise"]


# --- questions ------------------------------------------------------------------------------------------

ASKING = """\
# Asking

## STEP 1: Choose

@elicit(select, "Which?", "red", "blue")
@output(color)

## STEP 2: Paint

```if color == "red"```

Paint it red.

```else```

Paint it {{color}}.

```endif```

## STEP 3: Sign

@elicit(input, "Who are you?")

Sign as {{__elicit_step_3}}.
"""


def test_a_question_is_shown_with_the_answer_that_is_assumed() -> None:
    question = shown(ASKING)[0]
    assert question["question"] == {"prompt": "Which?", "type": "select", "options": ["red", "blue"], "default": None}
    assert question["as_if"] == "red"


def test_where_an_answer_decides_each_way_is_shown() -> None:
    ways = shown(ASKING)[1]["ways"]
    assert [prompts(way["shown"])[0][1] for way in ways] == ["Paint it red.", "Paint it blue."]


def test_an_answer_in_words_is_marked_in_the_prompt() -> None:
    assert prompts(shown(ASKING))[-1] == ("3", "Sign as <answer in step 3>.")


def test_an_answer_that_is_given_beforehand_leaves_one_way() -> None:
    parts = shown(ASKING, Settings(answers={"1": "blue"}))
    assert parts[0]["answer"] == "blue"
    assert prompts(parts)[0] == ("2b", "Paint it blue.")
    assert prompts(shown(ASKING, Settings(unattended=True))) == [("2a", "Paint it red."), ("3", "Sign as .")]


# --- tools and texts ------------------------------------------------------------------------------------


def test_a_tool_is_shown_with_its_arguments() -> None:
    text = '# A\n\n## INPUTS\n\n- `q` (string: say "hi"): x\n\n## STEP 1: B\n\n@tool(web, find, {"q": "{{q}}"})\n@output(r)\n\n'
    text += "## STEP 2: C\n\nRead {{r}}.\n"
    tool, read = shown(text)
    assert (tool["tool"], tool["arguments"]) == ("web.find", {"q": 'say "hi"'})
    assert read["prompt"] == "Read <output of step 1>."


def test_a_step_that_can_only_fail_says_so() -> None:
    text = "# A\n\n## STEP 1: B\n\n@tool(web, find, {broken)\n\n## STEP 2: C\n\nNever.\n"
    warned, failed = shown(text)
    assert "The step fails." in warned["warning"]
    assert "the arguments of @tool (line 5) cannot be used" in failed["failed"]


PROMPTED = "# A\n\n## STEP 1: B\n\n@prompt(library:style)\n\nWrite.\n"


def test_a_text_goes_into_the_prompt_where_it_can_be_read() -> None:
    text, asked = shown(PROMPTED, read=lambda effect: Source(Text("In style.")))
    assert (text["source"], text["read"]) == ("prompt:style", True)
    assert asked["prompt"] == "In style.\n\nWrite."


def test_a_text_that_is_not_looked_at_is_marked() -> None:
    text, asked = shown(PROMPTED)
    assert text["read"] is False
    assert asked["prompt"] == "<text of prompt:style>\n\nWrite."


def test_a_text_that_is_missing_is_warned_of() -> None:
    warning, asked = shown(PROMPTED, read=lambda effect: Failed("not_found", "There is none."))
    assert "@prompt(library:style) was left out" in warning["warning"]
    assert asked["prompt"] == "Write."


# --- the command ----------------------------------------------------------------------------------------


def test_nothing_is_called_and_nothing_is_created(cli: CommandLine, server: ModelServer) -> None:
    cli.write("routed.md", ROUTED)
    before = cli.files()
    ran = cli.call("run", "routed.md", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert "what follows depends on kind (the output of step 1)" in ran.out
    assert '>>> if kind == "wish"\n\n=== Step 2c: Grant\n--- system\nBe brief.\n' in ran.out
    assert '<<< what follows is shown as if kind == "bug"' in ran.out
    assert (server.requests, cli.files()) == ([], before)


def test_texts_of_this_machine_are_read_if_the_policy_lets_them(bare_cli: CommandLine) -> None:
    (bare_cli.work / "prompts").mkdir()
    bare_cli.write("prompts/style.md", "In {{how}} style.\n")
    bare_cli.write("a.md", "# A\n\n## INPUTS\n\n- `how` (string: good): x\n\n" + PROMPTED.partition("\n\n")[2])
    assert bare_cli.call("run", "a.md", "--dry-run", "--json").object[1]["prompt"] == "In good style.\n\nWrite."
    bare_cli.write("cuebook.policy.toml", '[files]\nask = ["read:prompts/*"]\n')
    assert bare_cli.call("run", "a.md", "--dry-run", "--json").object[0]["read"] is False


def test_a_run_that_could_only_fail_is_exit_code_1(bare_cli: CommandLine) -> None:
    bare_cli.write("a.md", "# A\n\n## STEP 1: B\n\n@tool(web, find, {broken)\n")
    ran = bare_cli.call("run", "a.md", "--dry-run")
    assert (ran.code, ran.err) == (1, "")
    assert "failed: Step 1: the arguments of @tool" in ran.out


def test_a_playbook_as_long_as_may_be_is_followed_to_its_end() -> None:
    steps = "".join(f"## STEP {number}: S\n\nx\n\n" for number in range(1, 8_000))
    assert len(previewed(f"# A\n\n{steps}").acts) == 7_999


BLOCK = '```if v{0} == "a"```\nA\n```elif v{0} == "b"```\nB\n```endif```\n'


def test_very_many_steps_with_branches_are_followed_each_way() -> None:
    """In the thorough form as many as fit, which would take an hour if all that came before were gone through again for
    each way.
    """
    count = many(600, 1_899)
    steps = "".join(f"## STEP {n}: S\nAsk.\n@output(v{n})\n{BLOCK.format(n)}" for n in range(1, count + 1))
    parts = previewed(f"# A\n{steps}").acts
    assert len(parts) == count
    last = parts[-1]
    assert isinstance(last, Choice)
    assert [act.details["prompt"] for act in last.before] == ["Ask."]
    assert [[act.details["prompt"] for act in one.acts] for one in last.alternatives] == [["A"], ["B"], []]
    asked = [act.effect for one in last.alternatives for act in one.acts]
    contexts = [str(list(effect.context)[-1].text) for effect in asked if isinstance(effect, AskModel)]
    assert contexts == ["a", "b"]


def test_ways_that_begin_too_far_back_are_shown_from_their_step_and_that_is_said() -> None:
    asking = "".join(f"## STEP {n}: S\nAsk.\n@output(v{n})\n" for n in range(1, 301))
    going = "".join(f"## STEP {n + 300}: S\n{BLOCK.format(n)}" for n in range(1, 301))
    *parts, note = shown(f"# A\n{asking}{going}")
    assert [prompts(way["shown"]) for way in parts[-1]["ways"]] == [[("600a", "A")], [("600b", "B")], []]
    assert "Too many combinations of branches: " in note["warning"]
    assert "are shown as if earlier steps had taken their first branch." in note["warning"]


def test_what_comes_before_fits_the_way_that_is_shown() -> None:
    wish = shown(ROUTED)[1]["ways"][1]["shown"][0]
    assert '{"kind": "wish"}' in wish["system"]
    twice = f"## STEP 1: S\n{BLOCK.format(1)}## STEP 2: T\n{BLOCK.format(1)}"
    ways = dry_run_objects(previewed(f"# A\n## INPUTS\n- `v1` (enum: a, b)\n{twice}"))[-1]["ways"]
    assert [way["shown"][0]["system"].partition(",")[0] for way in ways] == ["Output of step 1a", "Output of step 1b"]


@pytest.mark.parametrize("word", ["prompt", "question", "tool", "skipped", "ways"])
def test_everything_has_words(word: str) -> None:
    text = ROUTED + '\n## STEP 4: T\n\n@tool(a, b)\n\n## STEP 5: E\n\n## STEP 6: Q\n\n@elicit(confirm, "Sure?")\n'
    known = MARKDOWN.accept(MARKDOWN.parse(text, "a.md"), {})
    words = "\n".join(dry_run_passages(previewed(text, known)))
    marks = {"prompt": "--- prompt", "question": "--- question (confirm)\nSure?\nassumed answer: yes"}
    marks |= {"tool": "--- tool a.b\n{}", "skipped": "skipped: The step is empty", "ways": ">>> otherwise"}
    assert marks[word] in words

"""`cuebook explain` shows what a run would do, touch and cost before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings

from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.model import Step
from cuebook.dialects.markdown.parse import read
from cuebook.dialects.presentation.preview import Choice, Preview, Read, played, unread
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, Breakpoint, ReadSource
from cuebook.kernel.events import StepStarted
from cuebook.kernel.outcomes import Reply, Resumed, Source
from cuebook.kernel.run import Settings
from cuebook.performers.models import Facts, Price
from cuebook.performers.models.model import estimate_text
from cuebook.service.preview.bound import UNSEEN, Terms, Use, use_of
from cuebook.testing import ScriptedModel, model_performer
from tests.dialects.markdown.strategies import TEXTS
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.commands.test_validate import TRIAGE

PRICED = Terms(Facts(price=Price(input=1.0, output=10.0)), max_tokens=1_000, tool_output=2_000)
"""A dollar for a million tokens in, ten for a million out."""


def previewed(text: str, read: Read = unread, **inputs: str) -> Preview:
    return played(MARKDOWN.preview(MARKDOWN.parse(text, "a.md"), inputs, Settings()), read)


def bound(text: str, terms: Terms = PRICED, read: Read = unread, **inputs: str) -> Use:
    return use_of(previewed(text, read, **inputs).acts, terms)


# --- the command ----------------------------------------------------------------------------------------


def test_explain_shows_the_order_the_branches_and_the_questions(cli: CommandLine, server: ModelServer) -> None:
    cli.write("triage.md", TRIAGE)
    before = cli.files()
    ran = cli.call("explain", "triage.md", "--report", "It broke.")
    assert (ran.code, ran.err) == (0, "")
    assert "  report = It broke.\n  depth is not set\n  model test/echo-1\n" in ran.out
    assert "  1 Sort: asks the model, beginning with library:criteria, produces kind\n" in ran.out
    assert "    depends on kind (the output of step 1):\n" in ran.out
    assert '      if kind == "bug"\n        2a Fetch: calls tracker.find\n' in ran.out
    assert '        2b Ask: asks the user (select; "Who decides?"; one of Ada, Bob; default Ada)\n' in ran.out
    assert "  cost: unknown: no price is listed for this model\n" in ran.out
    assert (server.requests, cli.files()) == ([], before)


PUSHING = """\
# Publish

## STEP 1: Look

@tool(builtin, Bash, {"command": "git log", "read_only": true})

## STEP 2: Push

@tool(builtin, Bash, {"command": "git push", "network": ["github.com", "example.com:8443"]})
"""


def test_explain_shows_the_hosts_that_a_command_may_reach_and_what_only_reads(cli: CommandLine) -> None:
    cli.write("publish.md", PUSHING)
    ran = cli.call("explain", "publish.md")
    assert (ran.code, ran.err) == (0, "")
    assert "  allow command bash -c 'git log' (step 1): a command that only reads is allowed (default)\n" in ran.out
    assert "  ask   command bash -c 'git push' (step 2): " in ran.out
    assert "  ask   egress CONNECT https://github.com/ (step 2): reaching a host needs approval (default)\n" in ran.out
    assert "  ask   egress CONNECT https://example.com:8443/ (step 2): " in ran.out
    assert "  host  github.com (tool Bash)\n" in ran.out
    assert cli.call("validate", "publish.md").code == 0


def test_explain_as_json(cli: CommandLine) -> None:
    cli.write("triage.md", TRIAGE)
    made = cli.call("explain", "triage.md", "--depth", "quick", "--json").object
    assert (made["title"], made["inputs"], made["missing"]) == ("Triage", {"depth": "quick"}, ["report"])
    assert [(step["label"], step["does"]) for step in made["steps"]] == [
        ("1", ["model"]),
        ("2", ["branch"]),
        ("3", ["model"]),
    ]
    assert made["steps"][1]["depends_on"] == [{"name": "kind", "from": "the output of step 1"}]
    assert [branch["taken"] for branch in made["steps"][1]["branches"]] == [None, None]
    assert [question["prompt"] for question in made["questions"]] == ["Who decides?"]
    touches = {(one["kind"], one["target"]): one["decision"] for one in made["touches"]}
    assert touches == {("model", "test/echo-1"): "allow", ("tool", "tracker.find"): "ask"}
    assert made["hosts"] == [{"host": "127.0.0.1", "for": "model test/echo-1"}]
    assert any("There is no tool named 'tracker.find'" in note for note in made["notes"])
    assert any("@prompt(library:criteria) was left out" in note for note in made["notes"])
    assert (made["bound"]["cost"], made["bound"]["price_known"]) == (None, False)


def test_a_branch_that_the_inputs_choose_is_known(cli: CommandLine) -> None:
    text = '# A\n\n## INPUTS\n\n- `how` (enum: loud, low): x\n\n## STEP 1: B\n\n```if how == "loud"```\n\nShout.\n\n'
    cli.write("a.md", text + '```elif how == "low"```\n\nWhisper.\n\n```endif```\n')
    made = cli.call("explain", "a.md", "--how", "low", "--json").object
    assert [branch["taken"] for branch in made["steps"][0]["branches"]] == [False, True]
    words = cli.call("explain", "a.md", "--how", "low").out
    assert '    if how == "low" (which holds: how is low)\n      1b Branch b: asks the model\n' in words
    assert "Shout" not in words


def test_an_input_that_does_not_fit_is_refused(cli: CommandLine) -> None:
    cli.write("triage.md", TRIAGE)
    ran = cli.call("explain", "triage.md", "--depth", "deep")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "depth must be one of quick, thorough" in ran.err


def test_the_policy_says_allow_ask_or_deny_and_which_rule(cli: CommandLine) -> None:
    cli.write("triage.md", TRIAGE)
    cli.write("cuebook.policy.toml", '[models]\nask = ["test/*"]\n\n[tools]\ndeny = ["tracker.*"]\n')
    (cli.work / "prompts").mkdir()
    cli.write("prompts/criteria.md", "Be strict.\n")
    touches = {one["kind"]: one for one in cli.call("explain", "triage.md", "--json").object["touches"]}
    assert {kind: one["decision"] for kind, one in touches.items()} == {"file": "allow", "model": "ask", "tool": "deny"}
    assert touches["tool"]["rules"][0]["rule"] == "tools.deny 'tracker.*'"
    assert touches["tool"]["rules"][0]["where"].endswith("cuebook.policy.toml:5")
    assert touches["file"]["target"] == "read:prompts/criteria.md"
    assert (touches["tool"]["steps"], touches["file"]["steps"]) == (["2a"], ["1"])


def test_what_was_trusted_and_allowed_beforehand_counts(cli: CommandLine) -> None:
    cli.write("triage.md", TRIAGE)
    assert cli.call("policy", "allow", "tool", "tracker.find").code == 0
    tool = next(one for one in cli.call("explain", "triage.md", "--json").object["touches"] if one["kind"] == "tool")
    assert (tool["decision"], tool["rules"][0]["where"].partition(" ")[0]) == ("allow", "override")


def test_the_host_of_a_tool_server_is_named(cli: CommandLine) -> None:
    cli.write("triage.md", TRIAGE)
    config = cli.config.read_text()
    cli.config.write_text(config + '\n[mcp.tracker]\nurl = "https://tracker.example.com/mcp"\n')
    made = cli.call("explain", "triage.md", "--json").object
    assert {"host": "tracker.example.com", "for": "tool server tracker"} in made["hosts"]
    targets = [one["target"] for one in made["touches"]]
    assert "POST https://tracker.example.com/mcp" in targets
    cli.config.write_text(config + '\n[mcp.tracker]\ncommand = ["tracker-server"]\n')
    notes = cli.call("explain", "triage.md", "--json").object["notes"]
    assert any("The tool server 'tracker' is started (tracker-server" in note for note in notes)


def test_a_model_without_a_key_is_explained_all_the_same(bare_cli: CommandLine) -> None:
    made = bare_cli.call("explain", "tea.md", "--model", "openai/gpt-5", "--json").object
    assert "OPENAI_API_KEY is not set" in made["model"]["problem"]
    assert made["bound"]["calls"] == 3
    assert made["bound"]["cost"] > 0
    words = bare_cli.call("explain", "tea.md", "--model", "openai/gpt-5", "--budget-money", "0.000001").out
    assert "  the budget of $0.000001 may pause the run\n" in words


def test_the_embedded_model_is_free(bare_cli: CommandLine) -> None:
    made = bare_cli.call("explain", "tea.md", "--json").object
    assert (made["bound"]["cost"], made["hosts"]) == (0.0, [])
    assert json.dumps(made)


# --- the bound ------------------------------------------------------------------------------------------

ONE = "# A\n\n## SYSTEM\n\nBe brief.\n\n## STEP 1: B\n\nSay something about the sea, in one sentence.\n"


def test_the_bound_of_one_call_is_what_its_budget_is_held_against() -> None:
    effect = next(previewed(ONE).every_act()).effect
    assert isinstance(effect, AskModel)
    estimate = model_performer(ScriptedModel([])).estimate(effect, Settings(model="test/x", max_tokens=1_000))
    found = bound(ONE)
    assert found.output_tokens == estimate.output_tokens == 1_000
    assert estimate.input_tokens <= found.input_tokens <= estimate.input_tokens + 2
    assert found.cost == pytest.approx((found.input_tokens * 1.0 + 1_000 * 10.0) / 1_000_000)


def test_every_reply_counts_again_in_all_later_calls() -> None:
    steps = "".join(f"## STEP {number}: S\n\nx\n\n" for number in range(1, 5))
    found = bound(f"# A\n\n{steps}")
    assert (found.calls, found.output_tokens) == (4, 4_000)
    assert 6_000 <= found.input_tokens <= 7_500


def test_a_reply_that_is_filled_in_counts_each_time() -> None:
    named = "# A\n\n## STEP 1: B\n\nx\n\n@output(v)\n\n## STEP 2: C\n\n{{v}} and {{v}}\n"
    plain = "# A\n\n## STEP 1: B\n\nx\n\n@output(v)\n\n## STEP 2: C\n\nnothing\n"
    assert bound(named).input_tokens - bound(plain).input_tokens >= 2_000


PROMPTED = "# A\n\n## STEP 1: B\n\nx\n\n@output(r)\n\n## STEP 2: C\n\n@prompt({})\n\nGo on.\n"


def test_a_reply_that_is_filled_into_a_text_from_elsewhere_counts_each_time() -> None:
    def read(effect: ReadSource) -> Source:
        return Source(Text("{{r}} " * 50 + "{{nobody}} " * 50))

    text = PROMPTED.format("file:f.md")
    found = bound(text, read=read)
    plain = bound(text, read=lambda effect: Source(Text("words " * 100)))
    assert 50_000 <= found.input_tokens - plain.input_tokens <= 55_000
    assert not found.guessed


def test_the_bound_holds_for_a_run_whose_replies_are_as_long_as_may_be() -> None:
    reply = "word " * 300
    limit = estimate_text(reply).upper
    text, filled = PROMPTED.format("file:f.md"), "{{r}} " * 50
    book, terms = MARKDOWN.parse(text, "a.md"), Terms(Facts(), limit, 2_000)
    program = MARKDOWN.start(book, {}, MARKDOWN.interpreter, {})(None)
    outcomes: dict[type, Any] = {AskModel: Reply(Text(reply)), ReadSource: Source(Text(filled)), Breakpoint: Resumed()}
    used, send = 0, None
    try:
        while True:
            asked = program.send(send)
            send = {} if isinstance(asked, StepStarted) else outcomes.get(type(asked))
            if isinstance(asked, AskModel):
                used += model_performer(ScriptedModel([])).estimate(asked, Settings(model="test/x")).input_tokens
    except StopIteration:
        pass
    assert used > 50 * 300
    assert used <= bound(text, terms, read=lambda effect: Source(Text(filled))).input_tokens


def test_a_text_whose_name_is_not_known_yet_is_a_guess() -> None:
    found, plain = bound(PROMPTED.format("file:{{r}}.md")), bound(PROMPTED.format("file:f.md"))
    assert found.guessed
    assert found.input_tokens - plain.input_tokens >= UNSEEN


def test_the_text_of_a_step_goes_into_each_of_its_sub_steps_once() -> None:
    block = '```if k == "a"```\n\n### STEP 2a: X\n\nx\n\n### STEP 2b: Y\n\ny\n\n```else```\n\n### STEP 2c: Z\n\nz\n\n```endif```\n'
    text = "# A\n\n## INPUTS\n\n- `k` (enum: a, b): x\n\n" + PROMPTED.format("file:f.md").partition("\n\n")[2] + block
    found = bound(text, read=lambda effect: Source(Text("{{r}}")))
    plain = bound(text, read=lambda effect: Source(Text("word")))
    assert 2_000 <= found.input_tokens - plain.input_tokens <= 2_100


def test_the_dearest_way_counts() -> None:
    text = "# A\n\n## STEP 1: B\n\nx\n\n@output(v)\n\n## STEP 2: C\n\n{}## STEP 3: D\n\ny\n"
    short = '```if v == "a"```\n\n### STEP 2a: X\n\nx\n\n```else```\n\n### STEP 2b: Y\n\ny\n\n'
    long = short + "### STEP 2c: Z\n\nz\n\n"
    assert bound(text.format(short + "```endif```\n\n")).calls == 3
    found = bound(text.format(long + "```endif```\n\n"))
    assert (found.calls, found.output_tokens) == (4, 4_000)
    assert found.input_tokens >= 1_000 + 2_000 + 3_000


def test_what_is_not_known_yet_is_a_guess_and_said_to_be_one() -> None:
    asking = '# A\n\n## STEP 1: B\n\n@elicit(input, "What?")\n@output(v)\n\n## STEP 2: C\n\n{{v}}\n'
    found = bound(asking)
    assert found.guessed
    assert found.input_tokens >= 2 * UNSEEN
    given_input = "# A\n\n## INPUTS\n\n- `v` (text): x\n\n## STEP 1: B\n\n{{v}}\n"
    assert bound(given_input).guessed
    assert not bound(given_input, v="known").guessed


def test_an_unknown_price_is_unknown_and_never_nothing() -> None:
    assert bound(ONE, Terms(Facts(), 1_000, 2_000)).cost is None
    assert bound(ONE, Terms(Facts(), 1_000, 2_000, free=True)).cost == 0.0


def test_no_call_holds_more_than_the_window() -> None:
    terms = Terms(Facts(window=500), 1_000, 2_000)
    found = bound("# A\n\n## STEP 1: B\n\n" + "word " * 2_000 + "\n", terms)
    assert (found.input_tokens, found.output_tokens) == (500, 500)


# --- any playbook ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(TEXTS)
@example('# 0\n## INPUTS\n- `A` (text): 0\n## STEP 0: B\n```if 0==""```\n## STEP 0: B\n```if A==""```\n0')
def test_no_playbook_is_shown_on_a_way_that_it_does_not_go(text: str) -> None:
    book = read(text).definition
    if book is None:
        return
    preview = previewed(text)
    assert use_of(preview.acts, PRICED).cost is not None
    for part in preview.acts:
        if not isinstance(part, Choice):
            continue
        # Two steps may have the same number and title.
        steps = [one for one in book.steps if (one.label, one.title) == (part.label, part.title) and one.branches]
        for one in part.alternatives:
            shown = {act.label for act in one.acts}
            assert any(shown <= _labels(step, one.branch) for step in steps)


def _labels(step: Step, branch: int | None) -> set[str]:
    own = step.branches[branch].steps if branch is not None and branch < len(step.branches) else ()
    return {step.label, *(sub.label for sub in own)}

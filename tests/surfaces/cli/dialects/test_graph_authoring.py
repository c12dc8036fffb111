"""Workflow graphs with the commands that run nothing, and drafts of workflows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.dialects.test_graph_runs import SORT

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
GITHUB = SORT.replace("answer: {name: Answer,", "answer: {name: Answer, skills: [github, githb],")


@pytest.fixture
def sort(bare_cli: CommandLine) -> Path:
    return bare_cli.write("sort.yml", SORT)


@pytest.mark.usefixtures("sort")
def test_a_sound_workflow_is_found_sound_also_in_a_folder(bare_cli: CommandLine) -> None:
    bare_cli.write("settings.yaml", "name: not a workflow\n")
    bare_cli.write("sort.test.yaml", "- name: a case\n")
    ran = bare_cli.call("validate", ".")
    assert (ran.code, ran.out) == (0, "2 playbooks, no problems\n")


def test_mistakes_have_lines_and_codes(bare_cli: CommandLine) -> None:
    bare_cli.write("bad.yml", SORT.replace("to: thank}", "to: thanks}"))
    ran = bare_cli.call("validate", "bad.yml", "--json")
    assert ran.code == 2
    (file,) = ran.object["files"]
    found = {(one["code"], one["line"]) for one in file["findings"] if one["severity"] == "error"}
    assert found == {("UNKNOWN_EDGE_TARGET", 21)}
    assert "bad.yml:21: error:" in bare_cli.call("validate", "bad.yml").out
    log = bare_cli.call("validate", "bad.yml", "tea.md", "--sarif").object
    assert {one["ruleId"] for one in log["runs"][0]["results"]} == {code for code, _ in found}


def test_an_unknown_skill_is_a_warning(bare_cli: CommandLine) -> None:
    bare_cli.write("skills.yml", GITHUB)
    ran = bare_cli.call("validate", "skills.yml")
    assert ran.code == 0
    assert "warning" in ran.out
    assert "'githb'" in ran.out
    assert "'github', which" not in ran.out
    assert bare_cli.call("validate", "--strict", "skills.yml").code == 2
    (bare_cli.work / ".claude" / "skills" / "githb").mkdir(parents=True)
    bare_cli.write(".claude/skills/githb/SKILL.md", "---\nname: githb\ndescription: x\n---\nBe kind.\n")
    assert bare_cli.call("validate", "--strict", "skills.yml").code == 0


@pytest.mark.usefixtures("sort")
def test_a_workflow_is_drawn_and_summed_up(bare_cli: CommandLine) -> None:
    assert bare_cli.call("graph", "sort.yml").out == (
        'flowchart TD\n    n1(["Read ▸"])\n    n2["Answer"]\n    n3["Thank"]\n'
        '    n1 -->|"kind is question"| n2\n    n1 --> n3\n'
    )
    assert bare_cli.call("graph", "-", stdin=SORT).out == bare_cli.call("graph", "sort.yml").out
    made = bare_cli.call("summary", "sort.yml", "--json").object
    assert (made["entry"], made["decisions"]) == ("read", ["read"])
    assert "if kind is question: answer" in bare_cli.call("summary", "sort.yml").out


@pytest.mark.parametrize("command", [("parse",), ("convert", "--to", "json")])
@pytest.mark.usefixtures("sort")
def test_commands_of_markdown_alone_refuse_a_workflow(bare_cli: CommandLine, command: tuple[str, ...]) -> None:
    ran = bare_cli.call(command[0], "sort.yml", *command[1:])
    assert ran.code == 2
    assert "Markdown playbooks; this is a workflow graph, which is already YAML or JSON" in ran.err


def test_a_dry_run_shows_every_node_and_asks_nothing(cli: CommandLine, server: ModelServer) -> None:
    cli.write("style.md", "Be kind.")
    cli.write("sort.yml", SORT.replace("nodes:", "rules: [./style.md]\nnodes:", 1))
    ran = cli.call("run", "sort.yml", "--message", "Hi", "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert [one["node"] for one in ran.object] == ["read", "answer", "thank"]
    assert ran.object[1]["prompt"] == "## Rules — You MUST Follow These\n\nBe kind.\n\n---\n\nAnswer it."
    assert "Write" in ran.object[1]["tools"]
    assert "if kind is question: answer" in cli.call("run", "sort.yml", "--message", "Hi", "--dry-run").out
    assert server.requests == []
    assert not cli.store.exists()


def test_a_dry_run_of_what_could_not_begin_says_why(bare_cli: CommandLine) -> None:
    bare_cli.write("sort.yml", SORT.replace("nodes:", "rules: [./style.md]\nnodes:", 1))
    ran = bare_cli.call("run", "sort.yml", "--message", "Hi", "--dry-run")
    assert ran.code == 1
    assert "SOURCE_FILE_NOT_FOUND" in ran.err


def test_explain_shows_nodes_skills_and_bounds(bare_cli: CommandLine) -> None:
    bare_cli.write("skills.yml", GITHUB)
    made = bare_cli.call("explain", "skills.yml", "--json").object
    assert made["skills"] == {"github": "not configured: GITHUB_TOKEN is not set", "githb": "unknown"}
    assert [node["decides"] for node in made["nodes"]] == [True, False, False]
    # Two visits at most: 50 turns each, 8 summaries and a closing turn, or 3 where replies are asked for again, and the way on
    # may be asked for twice.
    assert (made["bound"]["visits"], made["bound"]["calls"], made["bound"]["calls_without_tools"]) == (2, 120, 8)
    touched = {(one["kind"], one["target"]): one["decision"] for one in made["touches"]}
    assert touched["tool", "Write"] == "ask"
    assert touched["tool", "Read"] == "allow"
    words = bare_cli.call("explain", "skills.yml").out
    assert "otherwise: thank" in words
    assert "Missing input: message (string)." in words
    assert not bare_cli.store.exists()


# --- what a workflow names and does not hold ---


@pytest.mark.parametrize(
    ("change", "at", "says"),
    [
        (("entry:", "model: openai\nentry:"), "model", "`openai` is a provider, not a model"),
        (
            ("    name: Read", "    name: Read\n    model: nobody/x"),
            "nodes.read.model",
            "There is no provider `nobody`",
        ),
    ],
)
def test_an_unknown_model_is_reported_before_anything_is_paid_for(
    cli: CommandLine, server: ModelServer, change: tuple[str, str], at: str, says: str
) -> None:
    cli.write("sort.yml", SORT.replace(*change, 1))
    (found,) = cli.call("validate", "sort.yml", "--json").object["files"][0]["findings"]
    assert (found["code"], found["severity"]) == ("UNKNOWN_MODEL", "warning")
    assert found["message"].startswith(f"{at}: {says}")
    assert f"The run would not start: {at}: {says}" in " ".join(
        cli.call("explain", "sort.yml", "--json").object["notes"]
    )
    refused = cli.call("run", "sort.yml", "--message", "Hi")
    assert refused.code == 2
    assert refused.err.startswith(f"cuebook: {at}: {says}")
    assert server.requests == []
    assert not cli.store.exists()


def test_a_missing_key_is_reported_before_the_run_and_is_not_a_finding(cli: CommandLine) -> None:
    cli.write("sort.yml", SORT.replace("entry:", "judge_model: nobody/x\nmodel: openai/gpt-5\nentry:", 1))
    assert cli.call("validate", "sort.yml").out == "1 playbook, no problems\n", "nothing asks the judge"
    refused = cli.call("run", "sort.yml", "--message", "Hi")
    assert refused.code == 2
    assert "OPENAI_API_KEY is not set" in refused.err


def test_a_broken_skill_file_is_reported_with_its_line(cli: CommandLine, server: ModelServer) -> None:
    file = cli.work / ".claude" / "skills" / "style" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: style\n  kind: x\n---\nBe kind.\n")
    cli.write("sort.yml", SORT.replace("    name: Read", "    name: Read\n    skills: [style]", 1))
    says = ".claude/skills/style/SKILL.md:3: invalid YAML"
    (found,) = cli.call("validate", "sort.yml", "--json").object["files"][0]["findings"]
    assert (found["code"], found["severity"]) == ("BROKEN_SKILL", "warning")
    assert says in found["message"]
    assert cli.call("explain", "sort.yml", "--json").object["skills"]["style"].startswith(f"cannot be read: {says}")
    server.replies = ['{"kind": "praise"}', '{"choice": "thank", "reason": "It says so."}', "Thanks."]
    ran = cli.call("run", "sort.yml", "--message", "Hi")
    assert ran.code == 0, ran.err
    assert f"the skill 'style' cannot be read, so the node continues without it: {says}" in ran.err


def test_a_missing_source_is_reported_by_its_field(bare_cli: CommandLine) -> None:
    written = SORT.replace("Answer it.", "./answer.md", 1).replace("nodes:", "context: [Hello, ../up.md]\nnodes:", 1)
    bare_cli.write("sort.yml", written)
    ran = bare_cli.call("validate", "sort.yml")
    assert ran.code == 2
    outside, missing = ran.out.splitlines()[:2]
    assert outside.startswith("sort.yml:9: error: context[1]: ")
    assert outside.endswith("[SOURCE_FILE_OUTSIDE_ROOT]")
    assert missing == (
        "sort.yml:18: error: nodes.answer.instruction: There is no file './answer.md' next to the playbook."
        " Check the path. [SOURCE_FILE_NOT_FOUND]"
    )
    failed = bare_cli.call("run", "sort.yml", "--message", "Hi", "--dry-run")
    assert "SOURCE_FILE_NOT_FOUND: nodes.answer.instruction (line 18): There is no file './answer.md'" in failed.err
    assert "SOURCE_FILE_OUTSIDE_ROOT: context[1] (line 9): " in failed.err
    assert ".;" not in failed.err
    bare_cli.write("answer.md", "Answer it.")
    bare_cli.write("sort.yml", written.replace(", ../up.md", ""))
    assert bare_cli.call("validate", "sort.yml").code == 0


def test_a_source_that_an_offline_run_would_fetch_is_reported_with_its_code(bare_cli: CommandLine) -> None:
    bare_cli.write("sort.yml", SORT.replace("nodes:", "rules: ['https://rules.example/a?key=1']\nnodes:", 1))
    ran = bare_cli.call("run", "sort.yml", "--message", "Hi", "--dry-run", "--offline")
    assert "SOURCE_OFFLINE_REQUIRES_FETCH: the run is offline" in ran.err
    assert "rules[0] (line 9): https://rules.example/a" in ran.err


def test_a_skill_that_lacks_a_setting_is_explained_in_words(bare_cli: CommandLine) -> None:
    file = bare_cli.work / ".claude" / "skills" / "github" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: github\n---\nBe kind.\n")
    bare_cli.write("sort.yml", SORT.replace("    name: Read", "    name: Read\n    skills: [github]", 1))
    assert bare_cli.call("explain", "sort.yml", "--json").object["skills"] == {
        "github": "configured, but without some of its tools: GITHUB_TOKEN is not set"
    }


def test_a_bounded_loop_bounds_the_visits(bare_cli: CommandLine) -> None:
    made = bare_cli.call("explain", EXAMPLES / "draft-and-review.yml", "--json").object
    assert made["bound"]["visits"] == 9


# --- new ---


@pytest.mark.parametrize("given", [("order", "--dialect", "graph"), ("order.yml",)])
def test_a_new_workflow_is_valid(bare_cli: CommandLine, given: tuple[str, ...]) -> None:
    ran = bare_cli.call("new", *given)
    assert (ran.code, ran.out) == (0, "order.yml\n")
    assert bare_cli.call("validate", "--strict", "order.yml").code == 0
    again = bare_cli.call("new", *given)
    assert again.code == 2
    assert "already exists" in again.err


def test_a_draft_is_mended_and_saved_when_it_is_valid(cli: CommandLine, server: ModelServer) -> None:
    broken = SORT.replace("to: thank}", "to: thanks}")
    server.replies = [f"Here it is:\n```yaml\n{broken}```\n", f"```yaml\n{SORT}```"]
    ran = cli.call("new", "mail", "--dialect", "graph", "--from", "Sort messages and answer them.")
    assert (ran.code, ran.out) == (0, "mail.yml\n"), ran.err
    assert (cli.work / "mail.yml").read_text() == SORT
    assert "Sort messages and answer them." in server.prompts[0]
    assert "UNKNOWN_EDGE_TARGET" in server.prompts[1]
    assert "The draft has 1 error; asking test/echo-1 to fix it." in ran.err


def test_a_draft_that_stays_broken_is_not_saved(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["nodes: [", "nodes: [", "nodes: [", "never asked for"]
    ran = cli.call("new", "mail.yml", "--from", "Sort messages.")
    assert ran.code == 1
    assert "in 3 attempts; nothing was saved" in ran.err
    assert len(server.requests) == 3
    assert not (cli.work / "mail.yml").exists()


def test_a_markdown_playbook_can_be_drafted_too(cli: CommandLine, server: ModelServer) -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\nBrew it.\n"
    server.replies = [text]
    assert cli.call("new", "brew", "--from", "Brew tea.").code == 0
    assert (cli.work / "brew.playbook.md").read_text() == text


# --- approvals ---

APPROVED = """\
id: send
name: Send
entry: write
nodes:
  write: {name: Write, instruction: Write it.}
  send: {name: Send, instruction: Send it.}
edges:
  - {from: write, to: send}
x_cuebook:
  nodes:
    send: {approval: May it be sent?}
"""


def test_an_approval_is_announced_before_anything_runs(bare_cli: CommandLine) -> None:
    bare_cli.write("send.yml", APPROVED)
    assert [one["approval"] for one in bare_cli.call("explain", "send.yml", "--json").object["nodes"]] == [
        None,
        "May it be sent?",
    ]
    assert "send Send: asks for approval, then asks" in bare_cli.call("explain", "send.yml").out
    shown = bare_cli.call("run", "send.yml", "--dry-run")
    assert shown.out.count("--- approval\nMay it be sent?") == 1
    assert bare_cli.call("run", "send.yml", "--dry-run", "--json").object[1]["approval"] == "May it be sent?"


def test_a_node_waits_until_a_person_decides(cli: CommandLine, server: ModelServer) -> None:
    """The policy says who may decide, and until when; no answer can be given beforehand."""
    cli.write("send.yml", APPROVED)
    policy = cli.home / "config" / "cuebook" / "policy.toml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text('[approvals]\nexpires_after = "60s"\n')
    refused = cli.call("run", "send.yml", "--answer", "send=yes")
    assert refused.code == 2
    assert server.requests == []
    ran = cli.call("run", "send.yml", "--json")
    assert (ran.code, ran.object["status"]) == (3, "awaiting_approval")
    asked = len(server.requests)
    (waiting,) = cli.call("inbox", "--json").object
    assert (waiting["kind"], waiting["prompt"]) == ("approval", "May it be sent?")
    assert 0 < waiting["expires"] - ran.object["updated"] <= 61
    ran = cli.call("decide", ran.object["run"], "approve", "--json")
    assert (ran.code, ran.object["status"], len(server.requests)) == (0, "completed", asked + 1)


@pytest.mark.parametrize(
    ("answer", "expected", "passes"),
    [
        ("{send: approve}", "path: [write, send], approvals: [send]", True),
        ("{send: deny}", "status: cancelled, error: denied it, approvals: [send]", True),
        ("{}", "status: awaiting_approval", True),
        ("{}", "path: [write, send]", False),
        ("{send: deny}", "path: [write, send]", False),
    ],
)
def test_a_test_decides_an_approval(bare_cli: CommandLine, answer: str, expected: str, passes: bool) -> None:
    bare_cli.write("send.yml", APPROVED)
    case = f"- name: one\n  replies: {{write: Hi., send: Sent.}}\n  approvals: {answer}\n  expect: {{{expected}}}\n"
    bare_cli.write("send.test.yaml", case)
    ran = bare_cli.call("test", "send.yml", "--json")
    assert (ran.code, ran.object["passed"]) == ((0, 1) if passes else (1, 0)), ran.out


# --- tests of workflows ---

CASES = """\
- name: a question is answered
  inputs: {message: "Where?", urgency: 2, tags: [a]}
  replies:
    read: {data: {kind: question}}
    answer:
      - calls: [{Read: {path: faq.md}}]
      - It is here.
  routes: {read: answer}
  tools: {Read: "The parcel is here."}
  expect:
    path: [read, answer]
    skipped: [thank]
    results: {read: {kind: question}, answer: {summary: It is here.}}
    prompts: {answer: Answer it.}
    calls: [{Read: {path: faq.md}}]
    events: [workflow:start, "node:enter", route, "tool:call", workflow:end]
- name: up to the decision
  inputs: {message: Hi}
  options: {until_decision: true}
  replies: {read: {data: {kind: praise}}}
  expect: {path: [read]}
- name: wrong inputs are refused
  inputs: {message: Hi, urgency: much}
  expect: {refused: urgency must be a number}
"""


@pytest.mark.usefixtures("sort")
def test_a_workflow_has_tests_beside_it(bare_cli: CommandLine) -> None:
    bare_cli.write("sort.test.yaml", CASES)
    ran = bare_cli.call("test", "sort.yml", "--json")
    assert ran.code == 0, json.dumps(ran.object["cases"], indent=1)
    assert ran.object["passed"] == 3


@pytest.mark.usefixtures("sort")
def test_a_test_without_a_route_says_how_to_add_it(bare_cli: CommandLine) -> None:
    bare_cli.write("sort.test.yaml", CASES.replace("  routes: {read: answer}\n", ""))
    ran = bare_cli.call("test", "sort.yml")
    assert ran.code == 1
    assert "The test has no route from step read. Add one under 'routes'" in ran.out + ran.err


@pytest.mark.parametrize(
    ("change", "about"),
    [
        (("path: [read, answer]", "path: [read, thank]"), "path"),
        (("results: {read: {kind: question}", "results: {read: {kind: praise}"), "result of read"),
        (('events: [workflow:start, "node:enter"', 'events: [workflow:end, "node:enter"'), "events, in this order"),
        (("routes: {read: answer}", "routes: {read: nowhere}"), "status"),
    ],
)
@pytest.mark.usefixtures("sort")
def test_a_test_of_a_workflow_can_fail(bare_cli: CommandLine, change: tuple[str, str], about: str) -> None:
    assert change[0] in CASES
    bare_cli.write("sort.test.yaml", CASES.replace(*change))
    ran = bare_cli.call("test", "sort.test.yaml", "--json")
    assert ran.code == 1
    assert about in [one["about"] for one in ran.object["cases"][0]["failures"]]


# --- edges that are taken at once ---

REVIEW = """\
id: review
name: Review
entry: fetch
nodes:
  fetch: {name: Fetch, instruction: Fetch it.}
  style: {name: Style, instruction: Look at the style.}
  tests: {name: Tests, instruction: Look at the tests.}
  post: {name: Post, instruction: Sum it up.}
edges:
  - {from: fetch, to: style}
  - {from: fetch, to: tests}
  - {from: style, to: post}
  - {from: tests, to: post}
"""


def test_parallel_edges_are_explained_drawn_and_run(cli: CommandLine, server: ModelServer) -> None:
    cli.write("review.yml", REVIEW)
    (finding,) = cli.call("validate", "review.yml", "--json").object["files"][0]["findings"]
    assert (finding["code"], finding["severity"], finding["line"]) == ("AMBIGUOUS_EDGES", "error", 11)
    for words in ("--parallel", "join at 'post'", "x_cuebook.fan_out"):
        assert words in finding["fix"]
    for command in (("run",), ("run", "--dry-run"), ("explain",)):
        refused = cli.call(command[0], "review.yml", *command[1:])
        assert refused.code != 0
        assert "run with --parallel" in refused.err
    assert server.requests == []
    assert "at once style, tests; then post" in cli.call("explain", "review.yml", "--parallel").out
    made = cli.call("explain", "review.yml", "--parallel", "--json").object
    assert made["nodes"][0]["parallel"] == {"to": ["style", "tests"], "join": "post"}
    assert made["bound"]["visits"] == 4
    assert "at once style, tests; then post" in cli.call("run", "review.yml", "--parallel", "--dry-run").out
    drawn = cli.call("graph", "review.yml").out
    assert '    n1 ==>|"at once"| n2\n    n1 ==>|"at once"| n3\n    n2 ==> n4\n    n3 ==> n4\n' in drawn
    ran = cli.call("run", "review.yml", "--parallel", "--json")
    assert ran.code == 0, ran.err
    trace = cli.call("show", ran.object["run"], "--trace").object["trace"]
    assert [step["node"] for step in trace["steps"]] == ["fetch", "style", "tests", "post"]
    assert "parallel branches begin" in cli.call("show", ran.object["run"]).out


def test_a_workflow_that_takes_edges_at_once_is_valid(bare_cli: CommandLine) -> None:
    bare_cli.write("review.yml", REVIEW + "x_cuebook: {parallel: true}\n")
    ran = bare_cli.call("validate", "--strict", "review.yml")
    assert ran.code == 0
    assert "After 'fetch': at once style, tests; then post." in ran.out
    assert bare_cli.call("run", "review.yml", "--strict-spec").code == 2
    replies = "replies: {fetch: A, style: B, tests: C, post: D}"
    bare_cli.write("review.test.yaml", f"- name: both\n  {replies}\n  expect: {{path: [fetch, style, tests, post]}}\n")
    assert bare_cli.call("test", "review.yml").code == 0

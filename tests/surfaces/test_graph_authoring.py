"""Workflow graphs at the commands that run nothing, and drafts of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer
from tests.surfaces.test_graph_running import SORT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GITHUB = SORT.replace("answer: {name: Answer,", "answer: {name: Answer, skills: [github, githb],")


@pytest.fixture
def sort(bare_desk: Desk) -> Path:
    return bare_desk.write("sort.yml", SORT)


@pytest.mark.usefixtures("sort")
def test_a_sound_workflow_is_found_sound_also_in_a_folder(bare_desk: Desk) -> None:
    bare_desk.write("settings.yaml", "name: not a workflow\n")
    bare_desk.write("sort.test.yaml", "- name: a case\n")
    ran = bare_desk.call("validate", ".")
    assert (ran.code, ran.out) == (0, "2 playbooks: nothing found\n")


def test_mistakes_have_lines_and_codes(bare_desk: Desk) -> None:
    bare_desk.write("bad.yml", SORT.replace("to: thank}", "to: thanks}"))
    ran = bare_desk.call("validate", "bad.yml", "--json")
    assert ran.code == 2
    (file,) = ran.object["files"]
    found = {(one["code"], one["line"]) for one in file["findings"] if one["severity"] == "error"}
    assert found == {("UNKNOWN_EDGE_TARGET", 21)}
    assert "bad.yml:21: error:" in bare_desk.call("validate", "bad.yml").out
    log = bare_desk.call("validate", "bad.yml", "tea.md", "--sarif").object
    assert {one["ruleId"] for one in log["runs"][0]["results"]} == {code for code, _ in found}


def test_an_unknown_skill_is_a_warning(bare_desk: Desk) -> None:
    bare_desk.write("skills.yml", GITHUB)
    ran = bare_desk.call("validate", "skills.yml")
    assert ran.code == 0
    assert "warning" in ran.out
    assert "'githb'" in ran.out
    assert "'github', which" not in ran.out
    assert bare_desk.call("validate", "--strict", "skills.yml").code == 2
    (bare_desk.work / ".claude" / "skills" / "githb").mkdir(parents=True)
    bare_desk.write(".claude/skills/githb/SKILL.md", "---\nname: githb\ndescription: x\n---\nBe kind.\n")
    assert bare_desk.call("validate", "--strict", "skills.yml").code == 0


@pytest.mark.usefixtures("sort")
def test_a_workflow_is_drawn_and_summed_up(bare_desk: Desk) -> None:
    assert bare_desk.call("graph", "sort.yml").out == (
        'graph TB\n    n1(["Read ▶"])\n    n2["Answer"]\n    n3["Thank"]\n'
        '    n1 -->|"kind is question"| n2\n    n1 --> n3\n'
    )
    assert bare_desk.call("graph", "-", stdin=SORT).out == bare_desk.call("graph", "sort.yml").out
    made = bare_desk.call("summary", "sort.yml", "--json").object
    assert (made["entry"], made["decisions"]) == ("read", ["read"])
    assert "if kind is question: answer" in bare_desk.call("summary", "sort.yml").out


@pytest.mark.parametrize("command", [("parse",), ("convert", "--to", "json")])
@pytest.mark.usefixtures("sort")
def test_commands_of_markdown_alone_refuse_a_workflow(bare_desk: Desk, command: tuple[str, ...]) -> None:
    ran = bare_desk.call(command[0], "sort.yml", *command[1:])
    assert ran.code == 2
    assert "is for Markdown playbooks; this is a workflow graph" in ran.err


def test_a_dry_run_shows_every_node_and_asks_nothing(desk: Desk, server: ModelServer) -> None:
    desk.write("style.md", "Be kind.")
    desk.write("sort.yml", SORT.replace("nodes:", "rules: [./style.md]\nnodes:", 1))
    ran = desk.call("run", "sort.yml", "--message", "Hi", "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert [one["node"] for one in ran.object] == ["read", "answer", "thank"]
    assert ran.object[1]["prompt"] == "## Rules — You MUST Follow These\n\nBe kind.\n\n---\n\nAnswer it."
    assert "Write" in ran.object[1]["tools"]
    assert "if kind is question: answer" in desk.call("run", "sort.yml", "--message", "Hi", "--dry-run").out
    assert server.requests == []
    assert not desk.store.exists()


def test_a_dry_run_of_what_could_not_begin_says_why(bare_desk: Desk) -> None:
    bare_desk.write("sort.yml", SORT.replace("nodes:", "rules: [./style.md]\nnodes:", 1))
    ran = bare_desk.call("run", "sort.yml", "--message", "Hi", "--dry-run")
    assert ran.code == 1
    assert "SOURCE_FILE_NOT_FOUND" in ran.err


def test_explaining_tells_nodes_skills_and_bounds(bare_desk: Desk) -> None:
    bare_desk.write("skills.yml", GITHUB)
    made = bare_desk.call("explain", "skills.yml", "--json").object
    assert made["skills"] == {"github": "not configured: GITHUB_TOKEN is not set", "githb": "unknown"}
    assert [node["decides"] for node in made["nodes"]] == [True, False, False]
    # Two visits at most: 50 turns each, and the way on may be asked for twice.
    assert (made["bound"]["visits"], made["bound"]["calls"], made["bound"]["calls_without_tools"]) == (2, 102, 4)
    touched = {(one["kind"], one["target"]): one["decision"] for one in made["touches"]}
    assert touched["tool", "Write"] == "ask"
    assert touched["tool", "Read"] == "allow"
    words = bare_desk.call("explain", "skills.yml").out
    assert "otherwise: thank" in words
    assert "Missing input: message (string)." in words
    assert not bare_desk.store.exists()


def test_a_bounded_loop_bounds_the_visits(bare_desk: Desk) -> None:
    made = bare_desk.call("explain", EXAMPLES / "draft-and-review.yml", "--json").object
    assert made["bound"]["visits"] == 9


# --- new ---


@pytest.mark.parametrize("given", [("order", "--dialect", "graph"), ("order.yml",)])
def test_a_new_workflow_is_valid(bare_desk: Desk, given: tuple[str, ...]) -> None:
    ran = bare_desk.call("new", *given)
    assert (ran.code, ran.out) == (0, "order.yml\n")
    assert bare_desk.call("validate", "--strict", "order.yml").code == 0
    again = bare_desk.call("new", *given)
    assert again.code == 2
    assert "there already" in again.err


def test_a_draft_is_mended_and_saved_when_it_is_valid(desk: Desk, server: ModelServer) -> None:
    broken = SORT.replace("to: thank}", "to: thanks}")
    server.replies = [f"Here it is:\n```yaml\n{broken}```\n", f"```yaml\n{SORT}```"]
    ran = desk.call("new", "mail", "--dialect", "graph", "--from", "Sort messages and answer them.")
    assert (ran.code, ran.out) == (0, "mail.yml\n"), ran.err
    assert (desk.work / "mail.yml").read_text() == SORT
    assert "Sort messages and answer them." in server.prompts[0]
    assert "UNKNOWN_EDGE_TARGET" in server.prompts[1]
    assert "The draft has 1 mistake; test/echo-1 is asked to mend it." in ran.err


def test_a_draft_that_stays_broken_is_not_saved(desk: Desk, server: ModelServer) -> None:
    server.replies = ["nodes: [", "nodes: [", "nodes: [", "never asked for"]
    ran = desk.call("new", "mail.yml", "--from", "Sort messages.")
    assert ran.code == 1
    assert "asked 3 times; nothing was saved" in ran.err
    assert len(server.requests) == 3
    assert not (desk.work / "mail.yml").exists()


def test_a_markdown_playbook_can_be_drafted_too(desk: Desk, server: ModelServer) -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\nBrew it.\n"
    server.replies = [text]
    assert desk.call("new", "brew", "--from", "Brew tea.").code == 0
    assert (desk.work / "brew.playbook.md").read_text() == text


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
def test_a_workflow_has_tests_beside_it(bare_desk: Desk) -> None:
    bare_desk.write("sort.test.yaml", CASES)
    ran = bare_desk.call("test", "sort.yml", "--json")
    assert ran.code == 0, json.dumps(ran.object["cases"], indent=1)
    assert ran.object["passed"] == 3


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
def test_a_test_of_a_workflow_can_fail(bare_desk: Desk, change: tuple[str, str], about: str) -> None:
    assert change[0] in CASES
    bare_desk.write("sort.test.yaml", CASES.replace(*change))
    ran = bare_desk.call("test", "sort.test.yaml", "--json")
    assert ran.code == 1
    assert about in [one["about"] for one in ran.object["cases"][0]["failures"]]

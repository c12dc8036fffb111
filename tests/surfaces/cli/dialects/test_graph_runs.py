"""Workflow graphs on the command line: running them, continuing them, and looking at the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer

SORT = """\
id: sort
name: Sort a message
entry: read
inputs:
  message: {type: string, required: true}
  urgency: {type: number, default: 1}
  polite: {type: boolean, default: true}
  tags: {type: "string[]"}
nodes:
  read:
    name: Read
    instruction: Say what kind it is.
    output:
      type: object
      properties: {kind: {type: string}}
      required: [kind]
  answer: {name: Answer, instruction: Answer it.}
  thank: {name: Thank, instruction: Thank for it.}
edges:
  - {from: read, to: answer, when: kind is question}
  - {from: read, to: thank}
"""
LOOP = """\
id: loop
name: Loop
entry: draft
nodes:
  draft: {name: Draft, instruction: Draft it.}
  review: {name: Review, instruction: Review it.}
edges:
  - {from: draft, to: review}
  - {from: review, to: draft, when: it is not good, max_iterations: 2}
  - {from: review, to: end_, when: it is good}
"""


def choice(to: str, reason: str = "It says so.") -> str:
    return json.dumps({"choice": to, "reason": reason})


@pytest.fixture
def sort(cli: CommandLine) -> Path:
    return cli.write("sort.yml", SORT)


def started(cli: CommandLine, server: ModelServer, *more: str) -> Ran:
    server.replies = ['{"kind": "question"}', choice("answer", "It asks."), "Here you are."]
    return cli.call("run", "sort.yml", "--message", "Where?", *more)


def run_of(ran: Ran) -> str:
    return str(ran.object["run"])


def published(ran: Ran) -> list[dict[str, Any]]:
    return [event for event in ran.events if "type" in event and event["type"] != "node:progress"]


@pytest.mark.usefixtures("sort")
def test_a_workflow_runs_and_shows_its_nodes_and_routes(cli: CommandLine, server: ModelServer) -> None:
    ran = started(cli, server)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {"summary": "Here you are."}
    assert "step read: Read" in ran.err
    assert "continues with answer: kind is question (the model says: It asks.)" in ran.err
    assert "thank" not in ran.err
    assert len(server.requests) == 3


@pytest.mark.usefixtures("sort")
def test_inputs_are_options_with_types(cli: CommandLine, server: ModelServer) -> None:
    ran = started(cli, server, "--urgency", "2.5", "--polite", "false", "--tags", "a, b", "--input", "dryRun=true")
    assert ran.code == 0, ran.err
    said = server.requests[0]["messages"][0]["content"]
    assert '{"dryRun":true,"message":"Where?","urgency":2.5,"polite":false,"tags":["a","b"]}' in said
    assert len(server.requests) == 1  # it stops before the first decision
    helped = cli.call("run", "sort.yml", "--help").out
    assert "--urgency NUMBER" in helped
    assert re.search(r"--tags STRING\[\] +\[optional\]", helped)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "Missing input: message (string)."),
        (("--message", "x", "--urgency", "much"), 'urgency must be a number, not "much"'),
        (("--message", "x", "--input", "mesage=y"), "declares no input 'mesage'. Did you mean 'message'?"),
    ],
)
@pytest.mark.usefixtures("sort")
def test_inputs_that_do_not_fit_are_refused(
    cli: CommandLine, server: ModelServer, given: tuple[str, ...], says: str
) -> None:
    ran = cli.call("run", "sort.yml", *given)
    assert ran.code == 2
    assert says in ran.err
    assert server.requests == []


def test_a_workflow_without_declared_inputs_takes_any(cli: CommandLine, server: ModelServer) -> None:
    head, _, rest = SORT.partition("inputs:")
    cli.write("sort.yml", head + rest[rest.index("nodes:") :])
    cli.write("inputs.yaml", "count: 3\nwho: [ann, bob]\n")
    server.replies = ['{"kind": "praise"}', choice("none"), "Thanks."]
    ran = cli.call("run", "sort.yml", "--inputs", "inputs.yaml", "--input", "deep=true", "--input", "name=Ann")
    assert ran.code == 0, ran.err
    assert '{"count":3,"who":["ann","bob"],"deep":true,"name":"Ann"}' in server.requests[0]["messages"][0]["content"]
    assert "continues with thank: the default (no condition holds; the model says: It says so.)" in ran.err


def test_a_default_that_the_model_did_not_choose_says_so(cli: CommandLine, server: ModelServer, sort: Path) -> None:
    server.replies = ['{"kind": "praise"}', "Hm.", "Well.", "Thanks."]
    ran = cli.call("run", "sort.yml", "--message", "Hi")
    assert ran.code == 0, ran.err
    assert "continues with thank: the default (the model named no edge in two attempts)" in ran.err


FLAGGED = """\
id: f
name: F
entry: a
inputs:
  model: {type: string, description: Which lamp}
  urgent: {type: boolean, description: Whether it is}
  count: {type: number}
nodes:
  a: {name: A, instruction: Go.}
edges: []
"""


def test_an_input_with_the_name_of_an_option_has_one_of_its_own(cli: CommandLine, server: ModelServer) -> None:
    cli.write("f.yml", FLAGGED)
    assert "--input-model" in cli.call("run", "f.yml", "--help").out
    server.replies = ["Done."]
    assert cli.call("run", "f.yml", "--input-model", "L1").code == 0
    assert '{"model":"L1"}' in server.requests[0]["messages"][0]["content"]


def test_an_input_that_is_true_or_false_takes_no_option_for_its_value(cli: CommandLine, server: ModelServer) -> None:
    cli.write("f.yml", FLAGGED)
    ran = cli.call("run", "f.yml", "--urgent", "--count", "3")
    assert ran.code == 2
    assert "--urgent" in ran.err
    assert "Expected true or false, got '--count'." in ran.err
    assert server.requests == []


def test_the_error_for_one_input_names_only_that_input(cli: CommandLine) -> None:
    cli.write("f.yml", FLAGGED)
    one = cli.call("run", "f.yml", "--count", "many")
    assert (one.code, "Correct it and start again." in one.err) == (2, True), one.err
    two = cli.call("run", "f.yml", "--count", "many", "--urgent", "maybe")
    assert (two.code, "Correct them and start again." in two.err) == (2, True), two.err


@pytest.mark.usefixtures("sort")
def test_events_are_those_of_the_format_in_their_order(cli: CommandLine, server: ModelServer) -> None:
    ran = started(cli, server, "--events")
    assert ran.code == 0, ran.err
    live = published(ran)
    assert [event["type"] for event in live] == [
        "workflow:start",
        "sources:resolved",
        "node:enter",
        "node:exit",
        "route",
        "node:enter",
        "node:exit",
        "workflow:end",
    ]
    route = live[4]
    assert (route["from"], route["to"], route["reason"]) == ("read", "answer", "kind is question")
    assert live[3]["result"] == {"status": "success", "data": {"kind": "question"}, "toolCalls": []}
    assert set(live[-1]["results"]) == {"read", "answer"}
    words = "".join(event["message"] for event in ran.events if event.get("type") == "node:progress")
    assert words == '{"kind": "question"}Here you are.'
    run = live[0]["run"]
    later = published(cli.call("events", run, "--json"))
    assert [{**event, "id": 0} for event in later] == [{**event, "id": 0} for event in live]
    assert published(cli.call("events", run, "--json", "--after", live[4]["id"])) == later[5:]


@pytest.mark.usefixtures("sort")
def test_a_run_shows_its_results_routes_and_trace(cli: CommandLine, server: ModelServer) -> None:
    run = run_of(started(cli, server, "--json"))
    words = cli.call("show", run).out
    assert "continues with answer: kind is question (the model says: It asks.)" in words
    traced = cli.call("show", run, "--trace").object
    assert [(step["node"], step["status"], step["iteration"]) for step in traced["trace"]["steps"]] == [
        ("read", "success", 1),
        ("answer", "success", 1),
    ]
    assert traced["trace"]["routing"] == {"asked": 1, "saved": 0}
    assert traced["results"]["answer"]["data"] == {"summary": "Here you are."}
    drawn = cli.call("graph", run)
    assert drawn.code == 0
    assert "class n1,n2 success" in drawn.out
    assert cli.call("graph", "--run", run, "--mermaid").out == drawn.out


def test_a_markdown_run_has_no_trace(cli: CommandLine) -> None:
    run = run_of(cli.call("run", "tea.md", "--json"))
    ran = cli.call("show", run, "--trace")
    assert ran.code == 2
    assert "does not define one" in ran.err


@pytest.mark.usefixtures("sort")
def test_a_failed_node_fails_the_run_after_it_has_continued(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [400, choice("thank"), "Thanks.", '{"kind": "praise"}', choice("none"), "Thanks again."]
    ran = cli.call("run", "sort.yml", "--message", "Hi", "--events")
    assert ran.code == 1
    ended = published(ran)[-1]
    assert (ended["type"], ended["status"]) == ("workflow:end", "failed")
    assert ended["results"]["thank"]["status"] == "success"
    again = cli.call("retry", ended["run"], "--events")
    assert again.code == 0, again.out + again.err
    last = published(again)[-1]
    assert last["results"]["read"]["data"] == {"kind": "praise"}
    traced = cli.call("show", ended["run"], "--trace").object
    assert [step["node"] for step in traced["trace"]["steps"]] == ["read", "thank"]
    assert last["results"] == traced["results"]


@pytest.mark.usefixtures("sort")
def test_a_node_that_fails_halts_the_run_if_wished(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [400]
    ran = cli.call("run", "sort.yml", "--message", "Hi", "--on-failure", "halt", "--json")
    assert ran.code == 1
    assert next(step["label"] for step in ran.object["steps"] if step["status"] != "pending") == "read"
    assert len(server.requests) == 1


@pytest.mark.usefixtures("sort")
@pytest.mark.parametrize("view", [(), ("--live", "--no-color")])
def test_why_a_node_failed_is_shown_once(cli: CommandLine, server: ModelServer, view: tuple[str, ...]) -> None:
    server.replies = [400, choice("thank"), "Thanks."]
    ran = cli.call("run", "sort.yml", "--message", "Hi", *view)
    printed = " ".join((ran.out + ran.err).partition("continues with thank")[0].split())
    assert printed.count("refused by the test") == 1


@pytest.mark.usefixtures("sort")
def test_a_breakpoint_pauses_at_a_node_and_a_changed_result_counts(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ['{"kind": "question"}', choice("thank", "It is praise."), "Thanks."]
    paused = cli.call("run", "sort.yml", "--message", "Hi", "--break", "read", "--json")
    assert paused.code == 3, paused.err
    run = run_of(paused)
    ran = cli.call("resume", run, "--set", "read.kind=praise")
    assert ran.code == 0, ran.err
    assert '{"kind":"praise"}' in server.requests[1]["messages"][0]["content"]
    shown = cli.call("show", run, "--json").object
    assert shown["outputs"]["read"] == '{"kind":"praise"}'
    assert shown["values"] == {"read": {"kind": "praise"}, "thank": {"summary": "Thanks."}}
    assert "changed by local: read.kind = praise" in cli.call("show", run).out
    traced = json.loads(cli.call("show", run, "--trace").out)
    assert traced["results"]["read"]["data"] == {"kind": "praise"}
    assert traced["trace"]["steps"][0]["changed"] == ["kind"]
    refused = cli.call("run", "sort.yml", "--message", "Hi", "--break", "raed")
    assert refused.code == 2
    assert "there is no step raed" in refused.err


@pytest.mark.usefixtures("sort")
def test_a_run_restarts_and_forks_from_a_node(cli: CommandLine, server: ModelServer) -> None:
    run = run_of(started(cli, server, "--json"))
    server.replies = ["Once more."]
    again = cli.call("restart", run, "answer", "--json")
    assert again.code == 0, again.err
    assert len(server.requests) == 4
    assert again.object["outputs"]["answer"] == '{"summary":"Once more."}'
    server.replies = ["A third time."]
    forked = cli.call("fork", run, "answer", "--set", "message=Why?", "--events")
    assert forked.code == 0, forked.err
    assert "The input message was changed during the run" in server.requests[-1]["messages"][0]["content"]
    assert [event["type"] for event in published(forked)] == ["node:enter", "node:exit", "workflow:end"]
    assert {event["run"] for event in published(forked)} == {forked.events[-1]["run"]} - {run}
    assert set(published(forked)[-1]["results"]) == {"read", "answer"}


@pytest.mark.usefixtures("sort")
def test_a_changed_result_must_fit_what_its_node_declares(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ['{"kind": "question"}', choice("thank", "It is praise."), "Thanks."]
    run = run_of(cli.call("run", "sort.yml", "--message", "Hi", "--break", "read", "--json"))
    for wrong in ("read=7", 'read={"kind": 5}'):
        refused = cli.call("resume", run, "--set", wrong)
        assert refused.code == 2, refused.err
        assert "does not match the declared output of node read" in refused.err
    assert cli.call("resume", run, "--set", 'read={"kind": "praise"}').code == 0


@pytest.mark.usefixtures("sort")
def test_a_value_that_nothing_is_named_by_is_not_taken(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ['{"kind": "question"}', choice("thank", "It is praise."), "Thanks."]
    run = run_of(cli.call("run", "sort.yml", "--message", "Hi", "--break", "read", "--json"))
    there = "Known names: message, urgency, polite, tags, read.\n"
    for wrong in ("raed.kind=praise", "nonode=1", "input=1", "input.mesage=1"):
        refused = cli.call("resume", run, "--set", wrong)
        assert refused.code == 2, refused.err
        assert refused.err == f"cuebook: There is no value named '{wrong.partition('=')[0]}'. {there}"
    early = cli.call("resume", run, "--set", "thank.summary=Hello")
    assert early.code == 2
    assert early.err == f"cuebook: The node 'thank' has no result yet, so thank.summary cannot be changed. {there}"
    assert cli.call("resume", run, "--set", "input.tone=kind", "--set", "urgency=2").code == 0
    assert 'The input tone was changed during the run: "kind"' in server.requests[-1]["messages"][0]["content"]
    for wrong in ("thnk.summary=Hello", "thank.summary=Hello", "read.kind=5x", "urgency=much"):
        forked = cli.call("fork", run, "read", "--set", wrong)
        assert forked.code == 2, f"{wrong}: what comes after the step is not there yet"
    assert len(cli.call("runs", "--json").object) == 1


@pytest.mark.usefixtures("sort")
def test_two_runs_that_differ_by_a_changed_result_are_not_the_same(cli: CommandLine, server: ModelServer) -> None:
    runs = []
    for kind in ("praise", "question"):
        server.replies = ['{"kind": "question"}', choice("thank", "It is praise."), "Thanks."]
        runs.append(run_of(cli.call("run", "sort.yml", "--message", "Hi", "--break", "read", "--json")))
        assert cli.call("resume", runs[-1], "--set", f"read.kind={kind}").code == 0
    compared = cli.call("diff", *runs, "--json").object
    assert compared["same"] is False
    assert "read" in compared["values"]


def test_visits_are_counted(cli: CommandLine, server: ModelServer) -> None:
    cli.write(
        "loop.yml",
        LOOP.replace("to: end_, when: it is good", "to: finish").replace(
            "edges:", "  finish: {name: Finish, instruction: Finish it.}\nedges:"
        ),
    )
    server.replies = ["one", "bad", choice("draft", "It is bad."), "two", "good", choice("none", "Good."), "done"]
    ran = cli.call("run", "loop.yml")
    assert ran.code == 0, ran.err
    assert "step draft: Draft (visit 2)" in ran.err
    assert "continues with draft: it is not good (the model says: It is bad.)" in ran.err
    run = ran.err.split("run: ")[-1].split()[0]
    assert "draft (visit 2)" in cli.call("show", run).out or "Draft (visit 2)" in cli.call("show", run).out
    assert "×2" in cli.call("graph", run).out


def test_file_operations_happen_on_disk(cli: CommandLine, server: ModelServer) -> None:
    """A scripted model writes a file: with the policy's permission, the file exists afterwards."""
    cli.write(
        "note.yml",
        "id: note\nname: Note\nentry: write\nnodes:\n  write: {name: Write, instruction: Write it.}\nedges: []\n",
    )
    (cli.config.parent / "policy.toml").write_text('[tools]\nallow = ["Write"]\n[files]\nallow = ["write:**"]\n')
    server.replies = [{"tool": "Write", "arguments": {"path": "note.txt", "content": "Tea.\n"}}, "Written."]
    ran = cli.call("run", "note.yml")
    assert ran.code == 0, ran.err
    assert "calls Write" in ran.err
    assert (cli.work / "note.txt").read_text() == "Tea.\n"


def test_a_command_line_of_a_node_gets_the_time_it_asks_for(cli: CommandLine, server: ModelServer) -> None:
    policy = 'version = 1\n[tools]\nallow = ["Bash"]\n[commands]\nallow = ["*"]\n'
    (cli.config.parent / "policy.toml").write_text(policy)
    cli.environ |= {"CUEBOOK_LIMITS_SECONDS": "0.5", "CUEBOOK_LIMITS_MAX_SECONDS": "30"}
    flow = {"id": "f", "name": "F", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Do it."}}, "edges": []}
    server.replies = [
        {"tool": "Bash", "arguments": {"command": "echo begun; sleep 20"}},
        {"tool": "Bash", "arguments": {"command": "sleep 1; echo finished", "timeout": 600, "description": "Build"}},
        "Done.",
    ]
    ran = cli.call("run", cli.write("f.json", json.dumps(flow)))
    assert ran.code == 0, ran.err
    first, second = [one["content"] for one in server.requests[-1]["messages"] if one["role"] == "tool"]
    assert "after 0.5 s" in first
    assert "begun" in first
    assert "at most 30 seconds" in first
    assert second == "finished"


def test_a_failed_run_names_the_node_that_failed_and_calls_the_others_what_they_are(
    cli: CommandLine, server: ModelServer
) -> None:
    flow = {
        "id": "f",
        "name": "F",
        "entry": "a",
        "nodes": {
            "a": {"name": "A", "instruction": "Do a.", "output": {"type": "object", "required": ["x"]}, "max_turns": 1},
            "b": {"name": "B", "instruction": "Do b."},
            "c": {"name": "C", "instruction": "Do c."},
        },
        "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c", "when": "it is so"}, {"from": "b", "to": "b2"}],
    }
    flow["nodes"]["b2"] = {"name": "B2", "instruction": "Do b2."}  # type: ignore[index]
    server.replies = ["no JSON", "Fine.", choice("b2"), "Done."]
    ran = cli.call("run", cli.write("f.json", json.dumps(flow)))
    assert ran.code == 1
    (why,) = re.findall(r"^why: .*(?:\n  .*)*", ran.err, re.MULTILINE)
    assert "Node a failed" in why
    assert "(step" not in why
    run = ran.err.rpartition("\nrun: ")[2].partition("\n")[0]
    shown = cli.call("show", run, "--json").object
    steps = {step["label"]: (step["status"], step["reason"]) for step in shown["steps"]}
    assert steps["c"] == ("skipped", "not reached")
    assert "not reached" in cli.call("show", run).out

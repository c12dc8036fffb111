"""The tool calls of models, as every surface shows them: told apart, with arguments, results, times and plans."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.events import Noted, Performed, RunFinished
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.run import Settings
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from cuebook.service.runs.tool_calls import ToolCalls
from cuebook.service.service import RunView
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.runtime import RuntimeHarness

GRAPH = """\
id: read
name: Read both
entry: work
nodes:
  work: {name: Work, instruction: Read both files.}
edges: []
"""
PIPELINE = """\
name: Read both
steps:
  - id: work
    command: llm
    output: json
    llm: {model: test/one, prompt: Read the file., tools: {allow: [Read, TodoWrite]}, max_tool_calls: 5}
"""
POLICY = 'from_outside = "allow"\n[files]\nallow = ["*"]\n[tools]\nallow = ["*"]\n'
PLAN = {"todos": [{"content": "Read", "status": "completed"}, {"content": "Answer", "status": "pending"}]}
SAYS: list[Line] = [
    Says("", calls=(ToolCall("one", "Read", {"path": "a.txt"}), ToolCall("two", "Read", {"path": "none.txt"}))),
    Says("", calls=(ToolCall("three", "Read", malformed='{"path'), ToolCall("four", "TodoWrite", PLAN))),
    '{"done": true}',
]


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch, POLICY)
    (made.work / "a.txt").write_text("alpha\n")
    yield made
    await made.close()


async def ran(runtime: RuntimeHarness, text: str, name: str, says: list[Line] = SAYS) -> RunView:
    runtime.models = {"test": ScriptedModel(says)}
    runtime.open()
    settings = Settings(model="test/one", workspace=runtime.wiring.factory.workspace.path)
    run = (await runtime.service.start(Playbook.from_text(text, name), {}, settings)).id
    row = await runtime.service.drive(run)
    assert row.status == "completed", row.error
    return await runtime.service.view(run)


async def test_the_answer_of_a_sub_agent_is_its_result(runtime: RuntimeHarness) -> None:
    task = {"description": "count", "prompt": "Count the files."}
    says: list[Line] = [Says("", calls=(ToolCall("one", "Task", task),)), "Six files.", '{"done": true}']
    view = await ran(runtime, GRAPH, "read.yml", says)
    (call,) = view.calls
    assert (call.tool, call.status, call.result) == ("Task", "completed", "Six files.")


async def test_parallel_calls_of_one_tool_are_told_apart(runtime: RuntimeHarness) -> None:
    view = await ran(runtime, GRAPH, "read.yml")
    calls = {call.id: call for call in view.calls}
    assert [(one, calls[one].status) for one in ("one", "two", "three", "four")] == [
        *(("one", "completed"), ("two", "failed"), ("three", "failed"), ("four", "completed")),
    ]
    assert calls["one"].result == "     1\talpha"
    assert "none.txt" in calls["two"].result
    assert calls["three"].malformed == '{"path'
    assert "not a JSON object" in calls["three"].result
    assert all(call.step == "work" and call.seconds is not None for call in view.calls)
    (plan,) = view.plans
    assert (plan.step, plan.done, [item.text for item in plan.items]) == ("work", 1, ["Read", "Answer"])


async def test_a_pipeline_shows_the_calls_of_its_model_too(runtime: RuntimeHarness) -> None:
    says: list[Line] = [
        Says("", calls=(ToolCall("one", "Read", {"path": "a.txt"}), ToolCall("two", "TodoWrite", PLAN))),
        '{"done": true}',
    ]
    view = await ran(runtime, PIPELINE, "read.pipeline.yml", says)
    assert [(call.id, call.step, call.status) for call in view.calls] == [
        *(("one", "work", "completed"), ("two", "work", "completed")),
    ]
    assert [plan.done for plan in view.plans] == [1]


async def test_a_retry_replaces_the_calls_that_it_voids(runtime: RuntimeHarness) -> None:
    runtime.models = {"test": ScriptedModel([SAYS[0], Says("", finish="filter"), SAYS[1], SAYS[2]])}
    runtime.open()
    settings = Settings(model="test/one", workspace=runtime.wiring.factory.workspace.path)
    run = (await runtime.service.start(Playbook.from_text(GRAPH, "read.yml"), {}, settings)).id
    assert (await runtime.service.drive(run)).status == "failed"
    await runtime.service.retry(run)
    assert (await runtime.service.drive(run)).status == "completed"
    live = ToolCalls()
    async for entry in runtime.service.entries(run):
        live.see(entry)
    view = await runtime.service.view(run)
    assert (
        [call.id for call in live.calls.values()] == [call.id for call in view.calls] == ["one", "two", "three", "four"]
    )


def test_a_long_result_is_shown_with_its_ends_and_its_size() -> None:
    calls = ToolCalls(100)
    reply = Reply(Text(""), (ToolCall("one", "Bash", {"command": "make"}),))
    calls.see(Entry("r", 1, 10.0, Place("", "work", 1, 0), Performed(reply, "AskModel")))
    (call,) = calls.calls.values()
    assert (call.status, call.headline, call.seconds) == ("running", "make", None)
    shown, size = calls._shortened("a" * 500 + "z" * 500)
    assert (size, shown[:50], shown[-50:]) == (1000, "a" * 50, "z" * 50)
    assert "900 of 1,000 characters are left out here" in shown
    assert calls.see(Entry("r", 2, 11.0, Place(), Noted("route"))) == []
    assert calls.see(Entry("r", 3, 12.0, Place(), RunFinished("cancelled"))) == [call.key]
    assert calls.calls[call.key].status == "stopped"


def test_show_lists_the_calls_and_prints_them_in_full(tmp_path: Path) -> None:
    server = ModelServer()
    try:
        cli = CommandLine(tmp_path, server.url)
        (cli.config.parent / "policy.toml").write_text(POLICY)
        cli.write("a.txt", "\n".join(f"line {number}" for number in range(1, 400)))
        server.replies = [
            {"tool": "TodoWrite", "arguments": PLAN},
            {"tool": "Read", "arguments": {"file_path": "a.txt"}},
            {"tool": "Read", "arguments": {"file_path": "none.txt"}},
            '{"done": true}',
        ]
        begun = cli.call("run", cli.write("read.yml", GRAPH), "--json")
        assert begun.code == 0, begun.err
        run: str = begun.object["run"]
        shown = cli.call("show", run).out
        assert "calls Read a.txt" in shown
        assert "calls Read none.txt" in shown
        assert "failed: There is no 'none.txt'" in shown
        assert "plan: 1 of 2 done" in shown
        assert "[x] Read" in shown
        assert "line 399" not in shown
        whole = cli.call("show", run, "--calls").out
        assert "line 399" in whole
        assert '"file_path": "a.txt"' in whole
        listed: dict[str, Any] = json.loads(cli.call("show", run, "--calls", "--json").out)
        assert [call["tool"] for call in listed["calls"]] == ["TodoWrite", "Read", "Read"]
        assert listed["plans"][0]["items"][0] == {"text": "Read", "status": "completed"}
        assert cli.call("show", run, "--calls", "--output").code == 2
    finally:
        server.close()


def test_approvals_and_warnings_of_calls_are_shown_at_their_step(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [{"tool": "Bash", "arguments": {"command": "seq 20000"}}, '{"done": true}']
    begun = cli.call("run", cli.write("read.yml", GRAPH), "--json")
    run: str = begun.object["run"]
    assert cli.call("decide", run, "approve").code == 0
    shown = cli.call("show", run)
    before, _, step = shown.out.partition("step work: Work\n")
    assert "approved by local" in step
    assert "warning: Its output has 108,894 bytes" in step
    assert "approved" not in before
    assert "incomplete" not in shown.out, "the model's reply is complete"


def test_calls_of_a_sub_agent_are_shown_at_the_step(cli: CommandLine, server: ModelServer) -> None:
    cli.write("a.txt", "a line")
    server.replies = [
        {"tool": "Task", "arguments": {"prompt": "Look.", "tools": ["Read"]}},
        {"tool": "Read", "arguments": {"path": "a.txt"}},
        "It has a line.",
        '{"done": true}',
    ]
    begun = cli.call("run", cli.write("read.yml", GRAPH), "--json")
    shown = cli.call("show", begun.object["run"])
    assert "  calls Task " in shown.out
    assert "  calls Read a.txt" in shown.out
    calls = cli.call("show", begun.object["run"], "--calls", "--json").object["calls"]
    assert [(one["step"], one["visit"]) for one in calls] == [("work", 1), ("work", 1)]

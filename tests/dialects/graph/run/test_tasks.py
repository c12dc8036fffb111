"""Sub-agents: a node's model hands work to conversations of their own, one level deep, within shared limits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.graph import Graph
from cuebook.dialects.graph.observe import events
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.conversation import Turns
from cuebook.kernel.conversation.subagents import TASK, task_spec, task_tool
from cuebook.kernel.effects import AskModel, Branch, CallTool, ToolSpec
from cuebook.kernel.outcomes import Reply, ToolResult, Usage
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.dialects.graph.harness import GraphHarness, tool
from tests.dialects.graph.run.task_process import FLOW, LINES, service_on
from tests.kernel.engine.test_crashes import die, settle, writes
from tests.support.programs import lines
from tests.support.sampling import some

CHILD = "tests.dialects.graph.run.task_process"


async def begun(service: Service) -> str:
    return (await service.start(Playbook.from_text(FLOW, "tasks.json"), {}, Settings(model="test/lead"))).id


async def test_two_tasks_run_at_once_and_report_their_final_texts(tmp_path: Path) -> None:
    store = MemoryStore()
    service = service_on(store, tmp_path)
    run = await begun(service)
    row = await service.drive(run)
    assert row.status == "completed", row.error
    assert Counter(lines(tmp_path)) == Counter(f"{name}{n}" for name in "ab" for n in range(LINES))
    entries = [entry async for entry in service.entries(run)]
    seen = events(parse(FLOW, "tasks.json"), entries)
    calls = [event["tool"] for event in seen if event["type"] == "tool:call"]
    assert calls == ["Task", "Task"], "the calls of a sub-agent are its own"
    outputs = [event["output"] for event in seen if event["type"] == "tool:result"]
    assert sorted(outputs) == ["Wrote a.", "Wrote b."]
    assert (await service.replay(run)).complete
    await service.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_within_a_sub_agent_no_finished_effect_is_repeated(when: str, tmp_path: Path) -> None:
    async def prepared(name: str) -> tuple[Path, str]:
        folder = tmp_path / name
        folder.mkdir()
        store = SqliteStore(folder / "store.db")
        service = service_on(store, folder)
        run = await begun(service)
        await service.close()
        await store.close()
        return folder, run

    every = writes(CHILD, *await prepared("counted"))
    for number in some(every, 4):
        folder, run = await prepared(f"at{number}")
        await asyncio.to_thread(die, CHILD, folder, run, when, number)
        store = SqliteStore(folder / "store.db")
        service = service_on(store, folder)
        status, _ = await settle(service._engine, folder, run)
        assert status == "completed"
        assert set(Counter(lines(folder)).values()) <= {1}, f"killed {when} write {number}"
        assert (await service.replay(run)).complete
        assert (await service.verify(run)).broken_at is None
        await service.close()
        await store.close()


def node(**more: Any) -> str:
    made = {"name": "A", "instruction": "Do it.", **more}
    return json.dumps({"id": "w", "name": "W", "entry": "a", "nodes": {"a": made}, "edges": []})


@pytest.mark.parametrize(
    ("more", "options", "offered"),
    [
        ({}, {}, ["Read", "Task"]),
        ({"disallowed_tools": ["Task"]}, {}, ["Read"]),
        ({"disallowed_tools": ["Read"]}, {}, []),
        ({}, {"strict_spec": True}, ["Read"]),
    ],
)
async def test_it_is_offered_with_the_built_in_tools(more: Any, options: Any, offered: list[str]) -> None:
    harness = GraphHarness(MemoryStore(), texts={"tools:Read": tool("Read")})
    await harness.run(node(**more), **options)
    assert harness.script.asked[0].tools == offered


# --- the tool itself ---

READ = ToolSpec("Read", "Reads.", {"type": "object"})
ASK = AskModel("Do it.", tools=(READ, task_spec(["Read"])))


def given(arguments: dict[str, Any], most: int = 50) -> Any:
    """The first thing that a sub-agent asks for, or why the call is refused."""
    agent = task_tool(ASK, {"Read": CallTool("Read")}, Turns(most))
    branch: Branch = agent.start(ToolCall("1", TASK, arguments))
    try:
        return next(branch.start(None))
    except StopIteration as stop:
        return stop.value


def test_a_sub_agent_sees_its_prompt_and_its_tools_only() -> None:
    ask = given({"prompt": "Find it."})
    assert ask.prompt == "Find it."
    assert [spec.name for spec in ask.tools] == ["Read"], "there is no Task in a Task"
    assert [block.role for block in ask.context] == ["system"]
    assert given({"prompt": "Find it.", "tools": []}).tools == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs a prompt"),
        ({"prompt": "x", "tools": "Read"}, "must be a list of names"),
        ({"prompt": "x", "tools": ["Task"]}, "A sub-agent cannot have Task. It can have: Read."),
        ({"prompt": "x", "max_turns": 0}, "must be a whole number from 1 to"),
        ({"prompt": "x", "max_turns": 9}, "Only 3 turns are left"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused_with_the_reason(arguments: dict[str, Any], words: str) -> None:
    assert words in given(arguments, most=6)


def test_the_turns_of_sub_agents_are_reserved_and_those_not_needed_are_returned() -> None:
    turns = Turns(16)
    agent = task_tool(ASK, {"Read": CallTool("Read")}, turns)
    branch = agent.start(ToolCall("1", TASK, {"prompt": "x"}))
    assert (turns.left, turns.given) == (4, 12), "ten turns, a summary and a closing turn"
    with pytest.raises(StopIteration, match="Only 1 turns are left for sub-agents"):
        next(agent.start(ToolCall("2", TASK, {"prompt": "x", "max_turns": 4})).start(None))
    work = branch.start(None)
    next(work)
    with pytest.raises(StopIteration) as ended:
        work.send(Reply(Text("Found."), (), "test/m", "stop", Usage(10, 5, cost=0.1, origin="reported")))
    outcome = agent.read(ended.value.value)
    assert isinstance(outcome, ToolResult)
    assert outcome.value == "Found."
    assert (turns.left, turns.given) == (15, 1)


async def test_a_run_of_the_first_interpreter_goes_on_as_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no sub-agents and no closing turn, so that its replay takes the same path."""
    monkeypatch.setattr(Graph, "interpreter", 1)
    calls = {"calls": [{"tool": "Read"}]}
    harness = GraphHarness(MemoryStore(), run={"a": calls}, tools={"Read": "x"}, texts={"tools:Read": tool("Read")})
    row = await harness.start(node(max_turns=1))
    monkeypatch.undo()
    row = await harness.service.drive(row.id)
    assert row.interpreter == 1
    assert row.status == "failed"
    assert [one.tools for one in harness.script.asked] == [["Read"]]
    assert (await harness.service.replay(row.id)).complete

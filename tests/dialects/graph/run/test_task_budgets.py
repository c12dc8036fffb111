"""Sub-agents share the budget of their node: together they never use more than is left of its turns, tokens or money."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, ReadSource
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import Reply, ToolResult, Usage
from cuebook.kernel.ports import Call
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from tests.dialects.graph.run.task_process import Shelf

PRICE = 0.000_01
"""Dollars per token."""


class Crowd:
    """A lead that gives out tasks until it is refused its tools, and sub-agents that never finish on their own.

    Each call uses as many tokens as it has characters, divided by four, and a reply of `said` tokens.
    """

    def __init__(self, agents: int, *, rounds: int = 1, said: int = 200, window: int | None = None) -> None:
        self.agents, self.rounds, self.said, self.window = agents, rounds, said, window
        self.calls: list[tuple[str, AskModel]] = []

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        blocks = list(effect.context)
        is_child = any("You are a sub-agent" in str(block.text) for block in blocks)
        self.calls.append(("child" if is_child else "lead", effect))
        turn = sum(block.role == "assistant" for block in blocks)
        calls: tuple[ToolCall, ...] = ()
        if effect.may_call and is_child:
            calls = (ToolCall(f"r{turn}", "Bash", {"line": str(turn)}),)
        elif effect.may_call and turn < self.rounds:
            calls = tuple(ToolCall(f"t{turn}{n}", "Task", {"prompt": f"Do {n}."}) for n in range(self.agents))
        sent = (sum(len(str(block.text)) for block in blocks) + len(effect.prompt)) // 4
        said = min(self.said, effect.room or self.said)
        usage = Usage(sent, said, cost=(sent + said) * PRICE, origin="reported")
        finish = "tool_calls" if calls else "stop"
        return Reply(Text("" if calls else "Done so far."), calls, "test/m", finish, usage, window=self.window)


class Output:
    """A tool with long results."""

    def __init__(self, size: int) -> None:
        self.size = size

    async def perform(self, effect: CallTool, call: Call) -> ToolResult:
        return ToolResult("x" * self.size)


async def run(crowd: Crowd, *, turns: int = 400, size: int = 400, **budget: Any) -> tuple[RunRow, list[Any]]:
    lead = {"name": "Lead", "instruction": "Have it done.", "max_turns": turns}
    extras = {"nodes": {"lead": {"budget": budget}}} if budget else {}
    flow = {"id": "t", "name": "T", "entry": "lead", "nodes": {"lead": lead}, "edges": [], "x_cuebook": extras}
    service = Service(MemoryStore(), {AskModel: crowd, CallTool: Output(size), ReadSource: Shelf()}, listen_every=0.02)
    row = await service.start(Playbook.from_text(json.dumps(flow), "t.json"), {}, Settings(model="test/m"))
    row = await service.drive(row.id)
    events = [entry.event async for entry in service.entries(row.id)]
    assert (await service.replay(row.id)).complete
    await service.close()
    return row, events


def children(crowd: Crowd) -> list[AskModel]:
    return [ask for who, ask in crowd.calls if who == "child"]


@pytest.mark.parametrize("agents", [1, 4, 8])
async def test_sub_agents_at_once_stay_within_the_tokens_of_their_node(agents: int) -> None:
    crowd = Crowd(agents)
    row, _ = await run(crowd, tokens=40_000)
    assert row.status == "completed", row.error
    assert row.totals.tokens <= 40_000
    assert len(children(crowd)) > 2 * agents, "there was enough for each of them to work"


async def test_sub_agents_at_once_stay_within_the_money_of_their_node() -> None:
    row, _ = await run(Crowd(5), money=0.4)
    assert row.status == "completed", row.error
    assert 0.1 < row.totals.cost <= 0.4


async def test_one_round_after_another_stays_within_the_budget() -> None:
    row, _ = await run(Crowd(3, rounds=6), tokens=60_000)
    assert row.status == "completed", row.error
    assert row.totals.tokens <= 60_000


async def test_each_sub_agent_ends_with_a_closing_turn_within_its_share() -> None:
    crowd = Crowd(3)
    _, events = await run(crowd, tokens=16_000)
    closing = [ask for ask in children(crowd) if not ask.may_call]
    assert len(closing) == 3
    warned = [event.message for event in events if isinstance(event, Warned) and event.code == "closing_turn"]
    assert len(warned) == 3
    assert all("has used up its share of the budget of node lead" in words for words in warned)


@pytest.mark.parametrize(("tokens", "summaries"), [(22_000, 2), (15_000, 0)])
async def test_summaries_count_and_are_left_out_if_they_do_not_fit(tokens: int, summaries: int) -> None:
    crowd = Crowd(2, said=40, window=1_000)
    row, events = await run(crowd, size=390, tokens=tokens)
    compacted = [event for event in events if isinstance(event, Noted) and event.name == "compaction"]
    assert [event.data["summary"] for event in compacted] == [True, True]
    assert len([ask for ask in children(crowd) if "Summarise it for yourself" in ask.prompt]) == summaries
    listed = [event for event in events if isinstance(event, Warned) and event.code == "no_summary"]
    assert len(listed) == 2 - summaries
    assert row.totals.tokens <= tokens


async def test_a_reply_cannot_take_more_than_is_left_of_the_share() -> None:
    crowd = Crowd(2, said=3_000)
    row, _ = await run(crowd, tokens=30_000)
    assert all(ask.room is not None and ask.room <= 10_000 for ask in children(crowd))
    assert row.totals.tokens <= 30_000


async def test_too_small_a_share_is_refused_before_the_first_call() -> None:
    crowd = Crowd(8)
    row, _ = await run(crowd, tokens=2_500)
    assert children(crowd) == []
    results = [str(block.text) for block in crowd.calls[-1][1].context if block.role == "tool"]
    assert len(results) == 8
    assert all("has used up its share of the budget" in words for words in results)
    assert row.totals.tokens <= 2_500


@pytest.mark.parametrize(("turns", "rounds"), [(12, 1), (30, 2), (60, 9)])
async def test_a_node_and_its_sub_agents_stay_within_its_turns(turns: int, rounds: int) -> None:
    crowd = Crowd(3, rounds=rounds)
    row, events = await run(crowd, turns=turns)
    assert row.status == "completed", row.error
    own = [ask for who, ask in crowd.calls if who == "lead" and ask.may_call]
    assert len(own) + len(children(crowd)) <= turns
    assert len(children(crowd)) > turns // 4
    if rounds == 9:
        warned = [
            event.message
            for event in events
            if isinstance(event, Warned) and "of which its sub-agents" in event.message
        ]
        assert warned, "the node says who used its turns"


async def test_without_a_budget_they_are_limited_by_turns_only(tmp_path: Path) -> None:
    crowd = Crowd(2)
    await run(crowd, turns=40)
    assert all(ask.room is None for ask in children(crowd))

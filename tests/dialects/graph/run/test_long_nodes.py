"""Nodes that work for a long time: 200 turns, a limit that is reached, and a resumed run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from cuebook.dialects.graph.observe import events
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource
from cuebook.kernel.events import Noted, Performed, Warned
from cuebook.kernel.outcomes import Reply, Source, ToolResult
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer, Prices, Providers
from cuebook.performers.models.model import Request, estimate_request
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import ModelError, Says, ScriptedModel
from tests.dialects.graph.harness import GraphHarness, skill

WINDOW = 200_000
RESULT = ("A line of a log that says little, but at length.\n" * 700)[:32_768]
TURNS = 200
FLOW = {
    "id": "long", "name": "Long", "entry": "work", "edges": [],
    "nodes": {"work": {"name": "Work", "instruction": "Read everything.", "skills": ["s"], "max_turns": TURNS + 1}},
}  # fmt: skip


class Shelf:
    async def perform(self, effect: ReadSource, call: Call) -> Source:
        return Source(Text(json.dumps(skill("s", "look") if effect.source == "skill:s" else [])))


class Logs:
    async def perform(self, effect: CallTool, call: Call) -> ToolResult:
        return ToolResult(f"{effect.arguments['at']}\n{RESULT}")


def reading(turns: int, because: str = "") -> ScriptedModel:
    """Reads one log after another, and then answers. It summarises when it is asked to."""
    count = 0

    def say(request: Request) -> Says:
        nonlocal count
        if not request.may_call:
            return Says(f"I have read {count} logs.")
        count += 1
        done = count > turns
        call = ToolCall(str(count), "look", {"at": count, "because": because})
        return Says('{"read": true}') if done else Says("Next.", (call,))

    return ScriptedModel(say)


def service_with(model: ScriptedModel, store: Any, folder: Path) -> Service:
    prices = folder / "prices.toml"
    prices.write_text(f'[models."test/*"]\ninput = 1\noutput = 1\nwindow = {WINDOW}\n')
    providers = Providers(lambda name: None, models={"test": model})
    performers: dict[type[Effect], Any] = {
        AskModel: ModelPerformer(providers, prices=Prices(prices)),
        CallTool: Logs(),
        ReadSource: Shelf(),
    }
    return Service(store, performers, listen_every=0.02)


async def test_200_turns_with_32_kb_results_complete_on_a_200k_window(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", synchronous="NORMAL")
    model = reading(TURNS)
    service = service_with(model, store, tmp_path)
    row = await service.start(Playbook.from_text(json.dumps(FLOW), "long.json"), {}, Settings(model="test/model"))
    row = await service.drive(row.id)
    assert row.status == "completed", row.error
    assert len(model.requests) == TURNS + 1, "no summary was needed: old results were enough"
    sizes = [estimate_request(request).likely for request in model.requests]
    assert max(sizes) < WINDOW
    # Linear: the second hundred turns send about as much as the first, not three times as much.
    assert sum(sizes[100:200]) < 1.25 * sum(sizes[:100])
    entries = [entry async for entry in service.entries(row.id)]
    made = [
        entry.event.data for entry in entries if isinstance(entry.event, Noted) and entry.event.name == "compaction"
    ]
    sent = [[(turn.role, turn.text, turn.calls) for turn in request.messages] for request in model.requests]
    breaks = sum(later[: len(earlier)] != earlier for earlier, later in itertools.pairwise(sent))
    assert breaks == len(made) <= TURNS / 8, "between compactions, each request begins with the whole one before it"
    assert all(request.messages[:2] == model.requests[0].messages[:2] for request in model.requests), "the task stays"
    replay = await service.replay(row.id)
    assert replay.complete
    await service.close()
    await store.close()


async def test_a_summary_is_not_a_turn_of_the_node(tmp_path: Path) -> None:
    model = reading(60, because="b" * 40_000)
    service = service_with(model, MemoryStore(), tmp_path)
    row = await service.start(Playbook.from_text(json.dumps(FLOW), "long.json"), {}, Settings(model="test/model"))
    row = await service.drive(row.id)
    assert row.status == "completed", row.error
    asked = [request for request in model.requests if not request.may_call]
    assert 1 <= len(asked) <= 8
    assert all(request.tools for request in asked), "the tools stay listed, so that the provider's cache holds"
    assert max(estimate_request(request).likely for request in model.requests) < WINDOW
    assert "I have read" in model.requests[-1].messages[2].text
    entries = [entry async for entry in service.entries(row.id)]
    calls = [one for one in events(parse(json.dumps(FLOW), "long.json"), entries) if one["type"] == "tool:call"]
    assert len(calls) == 60
    assert (await service.replay(row.id)).complete
    await service.close()


async def test_the_window_is_recorded_so_that_another_configuration_replays_alike(tmp_path: Path) -> None:
    store = MemoryStore()
    service = service_with(reading(40), store, tmp_path)
    row = await service.start(Playbook.from_text(json.dumps(FLOW), "long.json"), {}, Settings(model="test/model"))
    await service.drive(row.id)
    entries = [entry async for entry in service.entries(row.id)]
    replies = [
        entry.event.outcome
        for entry in entries
        if isinstance(entry.event, Performed) and isinstance(entry.event.outcome, Reply)
    ]
    assert {reply.window for reply in replies} == {WINDOW}
    harness = GraphHarness(store)
    assert (await harness.service.replay(row.id)).complete
    await service.close()


async def test_a_node_that_runs_out_of_turns_gives_its_best_answer_with_a_warning() -> None:
    flow = json.dumps({**FLOW, "nodes": {"work": {**FLOW["nodes"]["work"], "max_turns": 2}}})  # type: ignore[index]
    calls = {"calls": [{"tool": "look", "input": {"at": 1}}], "then": {"calls": [{"tool": "look"}]}}
    harness = GraphHarness(
        MemoryStore(),
        run={"work": [calls, {"best": "so far"}]},
        tools={"look": "x"},
        texts={"skill:s": skill("s", "look")},
    )
    row = await harness.run(flow)
    assert row.status == "completed"
    asked = [one.effect for one in harness.script.asked]
    assert [one.may_call for one in asked] == [True, True, False]
    assert all(one.tools for one in asked), "the tools stay listed: earlier turns refer to them"
    warned = [entry.event for entry in await harness.entries(row.id) if isinstance(entry.event, Warned)]
    assert [one.code for one in warned] == ["closing_turn"]


async def test_a_node_closes_while_its_budget_still_affords_it() -> None:
    flow = json.dumps({**FLOW, "x_cuebook": {"nodes": {"work": {"budget": {"tokens": 1_000}}}}})
    harness = GraphHarness(
        MemoryStore(),
        run={
            "work": [
                {"calls": [{"tool": "look", "input": {"at": n}}], "then": {"calls": [{"tool": "look"}]}}
                for n in range(50)
            ]
        },
        tools={"look": "x" * 200},
        texts={"skill:s": skill("s", "look")},
    )
    row = await harness.run(flow)
    asked = [one.effect for one in harness.script.asked]
    assert [one.may_call for one in asked].count(False) == 1
    assert not asked[-1].may_call
    assert row.totals.tokens <= 1_000
    assert row.status == "failed", "its script never stops calling tools, so there is no answer even then"


async def test_a_node_falls_to_the_next_model_of_its_chain(tmp_path: Path) -> None:
    down, up = ScriptedModel([ModelError("overloaded", "Busy.", retryable=False)]), ScriptedModel(["It is done."])
    performers: dict[type[Effect], Any] = {
        AskModel: ModelPerformer(Providers(lambda name: None, models={"a": down, "b": up})),
        ReadSource: Shelf(),
    }
    service = Service(MemoryStore(), performers, listen_every=0.02)
    work = {"name": "Work", "instruction": "Do it.", "model": "a/one, then b/two"}
    flow = json.dumps({**FLOW, "nodes": {"work": work}})
    row = await service.start(Playbook.from_text(flow, "flow.json"), {}, Settings(model="a/zero"))
    row = await service.drive(row.id)
    assert row.status == "completed", row.error
    entries = [entry.event async for entry in service.entries(row.id)]
    replies = [one.outcome for one in entries if isinstance(one, Performed) and isinstance(one.outcome, Reply)]
    assert [reply.model for reply in replies] == ["b/two"]
    assert "model_fallback" in [one.code for one in entries if isinstance(one, Warned)]
    await service.close()

"""The events, trace and results of a workflow run, as a projection of its journal."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from cuebook.dialects.graph.observe import GraphProjection
from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import AskModel, CallTool
from cuebook.kernel.events import TextChunk
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Call, Store
from cuebook.testing import Says
from tests.dialects.graph.harness import GraphHarness, flow, skill, way

OURS = {"run", "sequence", "time", "duration", "tokens", "cost"}


def payload(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in OURS}


async def test_events_have_the_payloads_of_the_format(store: Store) -> None:
    harness = GraphHarness(
        store,
        run={"a": {"calls": [{"tool": "look", "input": {"at": "x"}}, {"tool": "poke"}], "data": {"n": 1}}},
        tools={"look": {"seen": 7}, "poke": {"fails": "It bites."}},
        texts={"skill:s": skill("s", "look", "poke")},
    )
    row = await harness.run(flow("a", "b", nodes={"a": {"skills": ["s"]}}))
    calls = [
        {"tool": "look", "input": {"at": "x"}, "output": {"seen": 7}, "status": "success"},
        {"tool": "poke", "input": {}, "status": "error"},
    ]
    a = {"status": "success", "data": {"n": 1}, "toolCalls": calls}
    b = {"status": "success", "data": {"summary": "b is done."}, "toolCalls": []}
    told = [payload(event) for event in await harness.events(row.id)]
    told[1].pop("sources")
    assert told == [
        {"type": "workflow:start", "workflow": "flow"},
        {"type": "sources:resolved"},
        {"type": "node:enter", "node": "a", "instruction": "Do a."},
        {"type": "tool:call", "node": "a", "tool": "look", "input": {"at": "x"}, "callId": "0"},
        {"type": "tool:call", "node": "a", "tool": "poke", "input": {}, "callId": "1"},
        {"type": "tool:result", "node": "a", "tool": "look", "output": {"seen": 7}, "callId": "0"},
        {"type": "tool:result", "node": "a", "tool": "poke", "output": {"error": "It bites."}, "callId": "1"},
        {"type": "node:exit", "node": "a", "result": a},
        {"type": "route", "from": "a", "to": "b", "reason": "only path", "edge": 0, "asked": False},
        {"type": "node:enter", "node": "b", "instruction": "Do b."},
        {"type": "node:exit", "node": "b", "result": b},
        {"type": "workflow:end", "results": {"a": a, "b": b}, "status": "completed"},
    ]


async def test_every_event_has_its_time_and_cost(store: Store) -> None:
    harness = GraphHarness(store, run={"a": Says("Done.", cost=0.25), "b": Says("Done.", cost=0.5)})
    row = await harness.run(flow("a", "b"))
    told = await harness.events(row.id)
    assert all(event.keys() >= OURS and event["run"] == row.id for event in told)
    assert [event["sequence"] for event in told] == list(range(1, len(told) + 1))
    assert [event["time"] for event in told] == sorted(event["time"] for event in told)
    exits = [event for event in told if event["type"] == "node:exit"]
    assert [event["cost"] for event in exits] == [0.25, 0.5]
    assert (told[-1]["cost"], told[-1]["tokens"]) == (0.75, sum(event["tokens"] for event in exits))
    assert told[-1]["duration"] >= 0


async def test_an_unknown_cost_is_not_zero(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(flow("a"))
    assert (await harness.events(row.id))[-1]["cost"] is None


async def test_progress_is_the_nodes_own_words(store: Store) -> None:
    """Progress does not include the replies of judges and routing questions."""
    node = {"eval": [{"name": "j", "kind": "judge", "rubric": "Good?"}]}
    harness = GraphHarness(
        store,
        run={"a": Says("Word by word.", chunk=5)},
        ask=["VERDICT: yes\nREASONING: Fine."],
        route={"a": "b"},
    )
    await harness.run(flow("a", "b", nodes={"a": node}, edges=way("a b when so")))
    progress = [(event["node"], event["message"]) for event in harness.live if event["type"] == "node:progress"]
    assert progress == [("a", "Word "), ("a", "by wo"), ("a", "rd."), ("b", "b is done.")]
    assert [event["part"] for event in harness.live if event["type"] == "node:progress"] == [1, 2, 3, 4]
    times = [event["time"] for event in harness.live]
    assert times == sorted(times)
    kinds = [event["type"] for event in harness.live if event.get("node") == "a"]
    assert kinds == ["node:enter", "node:progress", "node:progress", "node:progress", "node:exit"]


async def test_an_observer_that_fails_changes_nothing(store: Store) -> None:
    harness = GraphHarness(store)

    def fail(event: Any) -> None:
        raise RuntimeError("I cannot watch.")

    harness.service.observe(fail)
    row = await harness.run(flow("a", "b"))
    assert row.status == "completed"
    assert await harness.way(row.id) == ["a", "b"]


async def test_a_cancelled_run_has_its_end_and_what_it_was_in(store: Store) -> None:
    harness = GraphHarness(store, texts={"skill:s": skill("s", "hold")}, run={"b": {"calls": [{"tool": "hold"}]}})
    entered = asyncio.Event()

    class Hold:
        async def perform(self, effect: CallTool, call: Call) -> ToolResult:
            entered.set()
            await asyncio.sleep(3600)
            return ToolResult("late")

    harness.service._engine.performers = {**harness.service._engine.performers, CallTool: Hold()}
    row = await harness.start(flow("a", "b", "c", nodes={"b": {"skills": ["s"]}}))
    driving = asyncio.create_task(harness.service.drive(row.id))
    await asyncio.wait_for(entered.wait(), 30)
    await harness.service.cancel(row.id, "enough")
    assert (await driving).status == "cancelled"
    told = await harness.events(row.id)
    assert [event["type"] for event in told[-2:]] == ["node:exit", "workflow:end"]
    assert told[-2]["result"]["status"] == "failed"
    assert told[-1]["status"] == "cancelled"
    assert [(step["node"], step["status"]) for step in (await harness.trace(row.id))["steps"]] == [
        ("a", "success"), ("b", "failed"),
    ]  # fmt: skip
    assert set(told[-1]["results"]) == {"a", "b"}


async def test_a_program_that_breaks_has_its_end(store: Store) -> None:
    harness = GraphHarness(store)

    class Broken:
        async def perform(self, effect: AskModel, call: Call) -> Any:
            raise RuntimeError("a defect")

    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: Broken()}
    row = await harness.run(flow("a"))
    assert row.status == "failed"
    told = await harness.events(row.id)
    assert told[-1]["type"] == "workflow:end"
    assert "a defect" in told[-1]["results"]["a"]["data"]["error"]


async def test_a_retried_run_shows_only_the_last_attempt(store: Store) -> None:
    harness = GraphHarness(store, run={"a": [{"fails": "Down."}, {"ok": True}]})
    row = await harness.run(flow("a", "b"), on_failure="halt")
    assert row.status == "failed"
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert [(step["node"], step["status"]) for step in (await harness.trace(row.id))["steps"]] == [
        ("a", "success"), ("b", "success"),
    ]  # fmt: skip
    kinds = [event["type"] for event in await harness.events(row.id)]
    assert kinds.count("workflow:end") == 1
    assert kinds[-1] == "workflow:end"


async def test_evals_and_attempts_are_in_the_result(store: Store) -> None:
    node = {"eval": [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}], "retry": {"max": 1}}
    harness = GraphHarness(store, run={"a": [{"y": 1}, {"x": 1}]})
    row = await harness.run(flow("a", nodes={"a": node}))
    result = (await harness.results(row.id))["a"]
    assert result["evals"] == [{"name": "e", "kind": "value", "pass": True}]
    (retry,) = [event for event in await harness.events(row.id) if event["type"] == "node:retry"]
    assert (retry["node"], retry["attempt"]) == ("a", 1)
    assert retry["reason"].startswith("eval failed (policy: all_pass):")
    assert retry["preamble"].startswith("## Previous attempt failed evaluation")


@pytest.mark.parametrize("early", [True, False])
async def test_text_that_comes_before_its_record_is_kept_for_it(store: Store, early: bool) -> None:
    harness = GraphHarness(store)
    row = await harness.run(flow("a"))
    entries = await harness.entries(row.id)
    asked = next(entry for entry in entries if type(entry.event).__name__ == "ModelAsked")
    chunk = TextChunk(row.id, asked.seq, "a", 0, "hello")
    at = 0 if early else entries.index(asked) + 1
    projection = GraphProjection(harness.workflow)
    seen: list[Any] = [*entries[:at], chunk, *entries[at:]]
    told = [event for one in seen for event in projection.see(one).published]
    assert [event["type"] for event in told][2:5] == ["node:enter", "node:progress", "node:exit"]


async def test_credentials_in_a_url_are_not_published(store: Store) -> None:
    address = "https://ann:pass-7f3a@docs.example/a/b?token=tok-91c2#key-55d0"
    text = flow("a", rules=[address, "https://docs.example/open"])
    found = GraphHarness(store, texts={address: "Be kind.", "https://docs.example/open": "Be short."})
    gone = GraphHarness(store, texts={address: Failed("unreachable", f"{address} does not answer.")})
    for harness, offline in ((gone, False), (found, True), (found, False)):
        row = await harness.run(text, offline=offline)
        told = json.dumps([await harness.events(row.id), await harness.trace(row.id), msgspec.to_builtins(row.error)])
        assert "docs.example/a/b" in told
        for secret in ("ann:", "7f3a", "91c2", "55d0"):
            assert secret not in told
        origins = [one["origin"] for one in (await harness.trace(row.id))["sources"].values()]
        assert origins == ["Do a.", "https://***@docs.example/a/b?***", "https://docs.example/open"]


async def test_a_repaired_reply_is_reported_by_an_event_and_in_the_trace(store: Store) -> None:
    node = {"output": {"type": "object", "required": ["x"]}}
    harness = GraphHarness(store, run={"a": [{"y": 1}, "", {"x": 1}]})
    row = await harness.run(flow("a", nodes={"a": node}))
    assert row.status == "completed"
    said = [event["reason"] for event in await harness.events(row.id) if event.get("code") == "repair"]
    assert [("1 of 2" in said[0], "'x' is a required property" in said[0])] == [(True, True)]
    assert "2 of 2" in said[1]
    assert "empty" in said[1]
    assert (await harness.trace(row.id))["steps"] == [{"node": "a", "status": "success", "repairs": 2, "iteration": 1}]
    again = harness.asked("run", "a")[1]
    assert "'x' is a required property" in again.prompt
    assert again.blocks[-1] == '{"y": 1}', "it is shown what it said"


async def test_arguments_that_cannot_be_read_are_shown_as_they_came(store: Store) -> None:
    broken = Says("", (ToolCall("7", "look", malformed='{"at": '),))
    harness = GraphHarness(store, run={"a": [broken, "Done."]}, texts={"skill:s": skill("s", "look")})
    row = await harness.run(flow("a", nodes={"a": {"skills": ["s"]}}))
    assert row.status == "completed"
    (called,) = [event for event in await harness.events(row.id) if event["type"] == "tool:call"]
    assert (called["input"], called["callId"], called["malformed"]) == ('{"at": ', "7", True)
    assert (await harness.results(row.id))["a"]["toolCalls"][0]["input"] == '{"at": '

"""Retries on the real engine. The conformance cases cover more."""

from __future__ import annotations

from cuebook.kernel.events import Warned
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, skill

EVAL = {"eval": [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}]}


async def test_a_reflection_sees_what_was_tried(store: Store) -> None:
    harness = GraphHarness(
        store,
        run={"a": [{"calls": [{"tool": "look"}, {"tool": "poke"}], "data": {"y": 1}}, {"x": 1}]},
        ask=["I forgot."],
        tools={"look": 1, "poke": {"fails": "No."}},
        texts={"skill:s": skill("s", "look", "poke")},
    )
    node = {**EVAL, "skills": ["s"], "retry": {"max": 1, "instruction": {"reflect": "What was it?"}}}
    await harness.run(flow("a", nodes={"a": node}), {"q": 1})
    (asked,) = harness.asked("ask")
    for words in (
        "Do a.",
        "e (value): output_required: 'x' missing segment 'x'",
        "- look (ok)\n- poke (error)",
        "What was it?",
    ):
        assert words in asked.prompt
    assert asked.context == {"input": {"q": 1}}


async def test_a_reflection_that_fails_is_warned_of(store: Store) -> None:
    harness = GraphHarness(store, run={"a": [{"y": 1}, {"x": 1}]}, ask=[{"fails": "Down."}])
    row = await harness.run(flow("a", nodes={"a": {**EVAL, "retry": {"max": 1, "instruction": {"auto": True}}}}))
    assert row.status == "completed"
    warned = [entry.event.code for entry in await harness.entries(row.id) if isinstance(entry.event, Warned)]
    assert warned == ["reflection"]


async def test_attempts_lie_within_one_visit(store: Store) -> None:
    harness = GraphHarness(store, run={"a": [{"y": 1}, {"y": 2}, {"x": 1}]})
    row = await harness.run(flow("a", nodes={"a": {**EVAL, "retry": {"max": 2}}}))
    (step,) = await store.steps(row.id)
    assert (step.label, step.visit, step.status, step.totals.calls) == ("a", 1, "completed", 3)

"""Guards, which decide only what they can prove."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.model import Edge, Guard, Match
from cuebook.dialects.graph.run.route import narrowed, proved
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, way

VALUES: dict[str, Any] = {"input": {"n": 1}, "a": {"x": 1, "none": None, "list": [1, 2]}}


@pytest.mark.parametrize(
    ("guard", "verdict"),
    [
        (Guard(0, (Match("a.x", "equals", 1),)), True),
        (Guard(0, (Match("a.x", "equals", 2),)), False),
        (Guard(0, (Match("a.missing", "equals", 2),)), None),
        (Guard(0, (Match("a.none", "equals", 2),)), None),
        (Guard(0, (Match("b.x", "equals", 2),)), None),
        (Guard(0, (Match("a.x", "equals", 2), Match("a.missing", "equals", 1))), False),
        (Guard(0, (Match("a.x", "equals", 1), Match("a.missing", "equals", 1))), None),
        (Guard(0, (Match("any:a.list[*]", "equals", 2),)), True),
        (Guard(0, (Match("a.list[*]", "equals", 2),)), False),
        (Guard(0, output_required=("a.x", "input.n")), True),
        (Guard(0, output_required=("a.none",)), False),
        (Guard(0), None),
    ],
)
def test_what_is_proved(guard: Guard, verdict: bool | None) -> None:
    assert proved(guard, VALUES) is verdict


def test_two_that_are_proved_true_decide_nothing() -> None:
    edges = [Edge("a", "b", "x", index=0), Edge("a", "c", "y", index=1), Edge("a", "d", "z", index=2)]
    yes = (Match("a.x", "equals", 1),)
    guards = {0: Guard(0, yes), 1: Guard(1, yes)}
    assert narrowed(edges, guards, VALUES) == (edges, None)
    assert narrowed(edges, {0: Guard(0, yes)}, VALUES) == (edges, edges[0])


async def test_questions_that_were_saved_are_counted(store: Store) -> None:
    guards = [{"from": "a", "to": "b", "output_matches": [{"path": "a.x", "equals": 1}]}]
    text = flow(
        "a", "b", "c", "d", edges=way("a b when one", "a c when two", "b d when go"), x_cuebook={"guards": guards}
    )
    harness = GraphHarness(store, run={"a": {"x": 1}}, route={"b": "d"})
    row = await harness.run(text)
    trace = await harness.trace(row.id)
    assert trace["routing"] == {"asked": 1, "saved": 1}
    assert trace["edges"][0]["saved"] is True


async def test_a_guard_holds_for_a_lone_edge_without_a_condition(store: Store) -> None:
    guards = [{"from": "a", "to": "b", "output_matches": [{"path": "a.x", "equals": 1}]}]
    for x, error, calls in ((2, "NO_ROUTE", ["run a"]), (1, "", ["run a", "run b"])):
        harness = GraphHarness(store, run={"a": {"x": x}})
        row = await harness.run(flow("a", "b", x_cuebook={"guards": guards}))
        assert (row.error.code if row.error else "", harness.calls) == (error, calls)
        assert (await harness.trace(row.id))["routing"] == {"asked": 0, "saved": 0}

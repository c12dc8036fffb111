"""Parallel branches: their number is bounded, and they are merged in document order."""

from __future__ import annotations

import asyncio
from typing import Any

from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Call, Store
from tests.dialects.graph.harness import GraphHarness, flow, way


def fanned(*to: str, most: int = 4, **changes: Any) -> str:
    x_cuebook = {
        "fan_out": [{"node": "a", "to": list(to), "join": "z", "max_concurrency": most}],
        **changes.pop("x", {}),
    }
    nodes = ("a", *to, "z")
    return flow(*nodes, x_cuebook=x_cuebook, **changes)


class Slow:
    """Delays every model call, and records the order of the calls and the maximum concurrency."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.at_once = self.most = 0
        self.order: list[str] = []
        self.delays: dict[str, float] = {}

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        node = effect.prompt[3:4]
        await asyncio.sleep(self.delays.get(node, 0.01))
        self.order.append(node)
        self.at_once -= 1
        reply: Reply = await self._inner.perform(effect, call)
        return reply


def slowly(harness: GraphHarness, **delays: float) -> Slow:
    slow = Slow(harness.script)
    slow.delays = delays
    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: slow}
    return slow


async def test_concurrency_is_limited(store: Store) -> None:
    harness = GraphHarness(store)
    slow = slowly(harness)
    row = await harness.run(fanned("b", "c", "d", "e", "f", most=2))
    assert (row.status, slow.most) == ("completed", 2)
    assert await harness.way(row.id) == ["a", "b", "c", "d", "e", "f", "z"]


async def test_the_result_does_not_depend_on_which_is_faster(store: Store) -> None:
    seen = []
    for delays in ({"b": 0.05}, {"c": 0.05}):
        harness = GraphHarness(store, run={"b": {"n": 1}, "c": {"n": 2}})
        slow = slowly(harness, **delays)
        row = await harness.run(fanned("b", "c"))
        seen.append(
            (await harness.trace(row.id), harness.asked("run", "z")[0].blocks, list(await harness.results(row.id)))
        )
        assert slow.order in (["a", "c", "b", "z"], ["a", "b", "c", "z"])
    assert seen[0] == seen[1]


async def test_a_branch_may_be_longer_and_may_decide(store: Store) -> None:
    edges = way("a b", "b b2 when more", "b z when enough", "b2 z", "c z")
    text = flow("a", "b", "b2", "c", "z", edges=[*edges, {"from": "z", "to": "c", "when": "never", "max_iterations": 1}],
                x_cuebook={"fan_out": [{"node": "a", "to": ["b", "c"], "join": "z"}]})  # fmt: skip
    harness = GraphHarness(store, run={"b2": {"deep": 1}}, route={"b": "b2", "z": "none"})
    row = await harness.run(text, until_decision=False)
    trace = await harness.trace(row.id)
    assert await harness.way(row.id) == ["a", "b", "b2", "c", "z"]
    assert [f"{edge['from']}>{edge['to']}" for edge in trace["edges"]] == ["a>b", "a>c", "b>b2", "b2>z", "c>z"]
    assert harness.asked("run", "z")[0].context["b2"] == {"deep": 1}


async def test_steps_of_branches_are_listed_once(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c"))
    steps = [(step.label, step.status) for step in await store.steps(row.id)]
    assert sorted(steps) == [("a", "completed"), ("b", "completed"), ("c", "completed"), ("z", "completed")]


async def test_a_branch_that_cannot_continue_fails_the_run(store: Store) -> None:
    edges = way("a b", "b z when ready", "c z")
    text = flow("a", "b", "c", "z", edges=[*edges, *way("z c when never x1")],
                x_cuebook={"fan_out": [{"node": "a", "to": ["b", "c"], "join": "z"}]})  # fmt: skip
    harness = GraphHarness(store, route={"b": "none"})
    row = await harness.run(text)
    assert (row.status, row.error.code if row.error else "") == ("failed", "NO_ROUTE")
    assert (await harness.events(row.id))[-1]["type"] == "workflow:end"
    assert "z" not in await harness.way(row.id)


async def test_a_failure_in_a_branch_halts_after_the_others(store: Store) -> None:
    harness = GraphHarness(store, run={"b": {"fails": "Down."}})
    row = await harness.run(fanned("b", "c"), on_failure="halt")
    assert row.status == "failed"
    assert await harness.way(row.id) == ["a", "b", "c"]


async def test_visits_in_branches_count_for_the_limit(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c", "d"), max_steps=4)
    assert (row.status, row.error.code if row.error else "") == ("failed", "MAX_STEPS")
    assert await harness.way(row.id) == ["a", "b", "c", "d"]


async def test_a_dry_run_stops_at_a_decision_in_a_branch(store: Store) -> None:
    edges = way("a b", "b b2 when more", "b z when enough", "b2 z", "c z", "z c when never x1")
    fan = {"node": "a", "to": ["b", "c"], "join": "z", "max_concurrency": 1}
    text = flow("a", "b", "b2", "c", "z", edges=edges, x_cuebook={"fan_out": [fan]})
    for inputs, options in (({"dryRun": True}, {}), ({}, {"until_decision": True})):
        harness = GraphHarness(store)
        row = await harness.run(text, inputs, **options)
        assert (row.status, harness.calls) == ("completed", ["run a", "run b"])
        assert [edge["to"] for edge in (await harness.trace(row.id))["edges"]] == ["b"]


async def test_a_dry_run_stops_where_conditions_leave_the_node_that_fans_out(store: Store) -> None:
    edges = way("a b when one", "a c when two", "b z", "c z")
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c", edges=edges), until_decision=True)
    assert (row.status, harness.calls) == ("completed", ["run a"])


async def test_a_failure_halts_before_branches_that_have_not_begun(store: Store) -> None:
    harness = GraphHarness(store, run={"b": {"fails": "Down."}})
    row = await harness.run(fanned("b", "c", most=1), on_failure="halt")
    assert (row.status, await harness.way(row.id)) == ("failed", ["a", "b"])


async def test_the_limit_holds_over_branches_one_after_the_other(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c", "d", most=1), max_steps=3)
    assert (row.status, row.error.code if row.error else "") == ("failed", "MAX_STEPS")
    assert harness.calls == ["run a", "run b", "run c"]


async def test_the_limit_holds_for_branches_at_once(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c", "d"), max_steps=2)
    assert (row.status, row.error.code if row.error else "") == ("failed", "MAX_STEPS")
    assert harness.calls == ["run a"]


async def test_branches_within_a_branch_meet_once(store: Store) -> None:
    """The node at which they join begins another branch, so the outer branch has ended."""
    fans = [{"node": "a", "to": ["b", "c"], "join": "z"}, {"node": "b", "to": ["d", "e"], "join": "c"}]
    harness = GraphHarness(store)
    row = await harness.run(flow("a", "b", "d", "e", "c", "z", x_cuebook={"fan_out": fans}))
    assert row.status == "completed"
    assert sorted(await harness.way(row.id)) == ["a", "b", "c", "d", "e", "z"]
    trace = await harness.trace(row.id)
    assert [f"{edge['from']}>{edge['to']}" for edge in trace["edges"]] == [
        "a>b",
        "a>c",
        "b>d",
        "b>e",
        "d>z",
        "e>z",
        "c>z",
    ]


async def test_a_route_names_an_edge_only_where_it_follows_one(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(fanned("b", "c"))
    edges = (await harness.trace(row.id))["edges"]
    assert [(edge["from"], edge["to"], edge["reason"], edge.get("edge")) for edge in edges] == [
        ("a", "b", "fan out", None), ("a", "c", "fan out", None), ("b", "z", "join", None), ("c", "z", "join", 2),
    ]  # fmt: skip


async def test_steps_of_branches_are_counted_from_the_beginning(store: Store) -> None:
    edges = way("a b when so", "a y when not so", "b c", "c d", "d z")
    fan = {"fan_out": [{"node": "b", "to": ["c", "d"], "join": "z"}]}
    text = flow("a", "b", "c", "d", "z", "y", edges=edges, x_cuebook=fan)
    for chosen, done, listed in (("b", 5, 6), ("y", 2, 4)):
        harness = GraphHarness(store, route={"a": chosen})
        row = await harness.run(text)
        assert (row.totals.steps_done, row.totals.steps) == (done, 6)
        assert len(await store.steps(row.id)) == listed

"""The context of the next node: the results so far, without those that were replaced."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.run import state
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import Asked, GraphHarness, flow, way

TIMES = 30
SAID = [{"n": number, "x": "y" * 1_000} for number in range(TIMES + 1)]
"""The number of results of a loop, far more than the context shows."""


def length(asked: Asked) -> int:
    return sum(map(len, asked.blocks))


def results_shown(asked: Asked) -> list[str]:
    """The nodes whose results are shown, once for each result."""
    return [block.split()[3].rstrip(",") for block in asked.blocks if block.startswith("Result of node ")]


async def looped(store: Store, text: str) -> GraphHarness:
    harness = GraphHarness(store, run={"a": SAID}, route={"a": [*["a"] * TIMES, "b"]})
    row = await harness.run(text)
    assert row.status == "completed", row.error
    return harness


async def test_what_a_loop_is_shown_does_not_grow_without_end(store: Store) -> None:
    harness = await looped(store, flow("a", "b", edges=way(f"a a when again x{TIMES}", "a b when done")))
    for kind in ("run", "route"):
        every = harness.asked(kind)
        assert max(map(length, every)) < 2_000
        assert [one.context["a"]["n"] for one in every[-2:]] == [TIMES - 1, TIMES]
    assert len((await harness.trace((await store.runs(tenant="local"))[0].id))["steps"]) == TIMES + 2


@pytest.mark.parametrize("options", [{}, {"strict_spec": True}], ids=["", "strict"])
async def test_a_context_holds_the_latest_result_of_each_node_and_no_other(
    store: Store, options: dict[str, Any]
) -> None:
    """This applies to the nodes of a cycle, to later nodes and to routing, even if the earlier result was a failure."""
    edges = way("s a", "a b", "b a when again x2", "b c when done")
    drafts = [{"draft": "dash"}, {"fails": "The model is down."}, {"draft": "three"}]
    harness = GraphHarness(
        store, run={"a": drafts, "b": [{"ok": n == 2} for n in range(3)]}, route={"b": ["a", "a", "c"]}
    )
    await harness.run(flow("s", "a", "b", "c", edges=edges), **options)
    assert [results_shown(asked) for asked in harness.asked("run", "a")] == [["s"], ["s", "a", "b"], ["s", "a", "b"]]
    for kind, node in (("run", "c"), ("route", "b")):
        asked = harness.asked(kind, node)[-1]
        assert sorted(results_shown(asked)) == ["a", "b", "s"]
        assert (asked.context["a"], asked.context["b"]) == ({"draft": "three"}, {"ok": True})
        assert not any("dash" in block or "which failed" in block for block in asked.blocks)
    assert "which failed" in "".join(harness.asked("route", "b")[1].blocks)


async def test_what_comes_before_a_loop_stays_the_beginning_of_every_context(store: Store) -> None:
    edges = way("r s", "s a", "a b", "b a when again x3", "b c when done")
    harness = GraphHarness(store, route={"b": ["a", "a", "a", "c"]})
    await harness.run(flow("r", "s", "a", "b", "c", edges=edges))
    begun = harness.asked("run", "a")[0].blocks
    assert len(begun) == 4
    assert all(asked.blocks[:4] == begun for asked in harness.asked("run")[2:])


async def test_results_that_count_are_shown_however_long_a_loop_beside_them(store: Store) -> None:
    edges = way("s a", f"a a when again x{TIMES}", "a b when done")
    harness = await looped(store, flow("s", "a", "b", edges=edges))
    (asked,) = harness.asked("run", "b")
    assert asked.context["s"] == {"summary": "s is done."}
    assert asked.context["a"]["n"] == TIMES
    assert sum("Result of node s" in block for block in asked.blocks) == 1


async def test_a_branch_that_loops_is_shown_what_came_before_it(store: Store) -> None:
    edges = way("s b", "s c when never", f"b b when again x{TIMES}", "b z when done", "c z")
    fan = {"fan_out": [{"node": "s", "to": ["b", "c"], "join": "z"}]}
    harness = GraphHarness(store, run={"s": {"fact": 42}, "b": SAID}, route={"b": [*["b"] * TIMES, "z"]})
    row = await harness.run(flow("s", "b", "c", "z", edges=edges, x_cuebook=fan))
    assert row.status == "completed", row.error
    for kind, node in (("run", "b"), ("route", "b"), ("run", "z")):
        asked = harness.asked(kind, node)[-1]
        assert asked.context["s"] == {"fact": 42}
        assert length(asked) < 2_000
    assert harness.asked("run", "z")[0].context["b"]["n"] == TIMES
    assert "s" in harness.asked("run", "c")[0].context


async def test_a_checkpoint_keeps_what_is_shown(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if results were left out before it and a person has changed an input."""
    monkeypatch.setattr(state, "FIRST_CHECKPOINT", 2)
    text = flow("s", "a", "b", "c", edges=way("s a", f"a a when again x{TIMES}", "a b when done", "b c when on"))
    harness = GraphHarness(store, run={"a": SAID}, route={"a": [*["a"] * TIMES, "b"], "b": "c"})
    row = await harness.paused(text, {"q": 1}, "s")
    await harness.service.resume(row.id, overrides={"q": 5})
    assert (await harness.service.drive(row.id)).status == "completed"
    fork = await harness.service.restart(row.id, "b")
    assert (await harness.service.drive(fork.id)).status == "completed"
    for kind, node in (("run", "b"), ("route", "b"), ("run", "c")):
        first, again = harness.asked(kind, node)
        assert first.blocks == again.blocks
        assert any("was changed" in block or '{"q":5}' in block for block in first.blocks)


# --- ids with dots ----------------------------------------------------------------------------------------------


async def test_a_projection_may_name_a_node_with_a_dot(store: Store) -> None:
    for wanted, shown in (("x.y", {"v": 1, "w": 2}), ("x.y.w", {"w": 2}), ("x", {"summary": "x is done."})):
        text = flow("x", "x.y", "z", x_cuebook={"nodes": {"z": {"context": [wanted]}}})
        harness = GraphHarness(store, run={"x.y": {"v": 1, "w": 2}})
        assert (await harness.run(text)).status == "completed"
        context = harness.asked("run", "z")[0].context
        assert context == {"input": {}, wanted if wanted == "x" else "x.y": shown}


async def test_a_result_of_a_node_with_a_dot_can_be_changed(store: Store) -> None:
    text = flow("x", "x.y", "z", nodes={"x.y": {"output": {"type": "object", "properties": {"v": {"type": "number"}}}}})
    for overrides, found in (({"x.y": {"v": 2}}, {"v": 2}), ({"x.y.v": 3}, {"v": 3})):
        harness = GraphHarness(store, run={"x.y": {"v": 1}})
        row = await harness.paused(text, {}, "x.y")
        await harness.service.resume(row.id, overrides=overrides)
        assert (await harness.service.drive(row.id)).status == "completed"
        assert harness.asked("run", "z")[0].context["x.y"] == found
        results = await harness.results(row.id)
        assert (results["x.y"]["data"], results["x"]["data"]) == (found, {"summary": "x is done."})

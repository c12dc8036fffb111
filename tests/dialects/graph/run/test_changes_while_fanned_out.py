"""Changes, retries and restarts while parallel branches run, and their limits."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, way

FAN = {"node": "a", "to": ["b", "c"], "join": "z"}
EDGES = way("a b", "a c when never", "b b2 when more", "b z when enough", "b2 z", "c c2", "c2 z")


def fanned(most: int = 4, **changes: Any) -> str:
    fan = {"fan_out": [{**FAN, "max_concurrency": most}]}
    return flow("a", "b", "b2", "c", "c2", "z", edges=EDGES, x_cuebook=fan, **changes)


def wants(value: int) -> dict[str, Any]:
    return {"requires": {"output_matches": [{"path": "input.q", "equals": value}]}}


# --- changing an input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 4])
async def test_a_changed_input_holds_in_its_branch_and_after_it_and_not_beside_it(store: Store, most: int) -> None:
    text = fanned(most, nodes={"b2": wants(5), "c2": wants(1), "z": wants(5)})
    harness = GraphHarness(store, run={"a": {"fact": 42}}, route={"b": "b2"})
    row = await harness.paused(text, {"q": 1}, "b")
    await harness.service.resume(row.id, overrides={"q": 5})
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert (await harness.service.replay(row.id)).complete
    fork = await harness.service.restart(row.id, "z")
    assert (await harness.service.drive(fork.id)).status == "completed"
    first, again = harness.asked("run", "z")
    assert first.blocks == again.blocks
    assert "The input q was changed during the run: 5" in first.blocks


async def test_a_way_is_asked_for_with_what_came_before_the_branch(store: Store) -> None:
    harness = GraphHarness(store, run={"a": {"fact": 42}}, route={"b": "b2"})
    row = await harness.paused(fanned(), {"q": 1}, "b")
    await harness.service.resume(row.id, overrides={"q": 5})
    await harness.service.drive(row.id)
    (asked,) = harness.asked("route", "b")
    assert asked.context == {"input": {"q": 5}, "a": {"fact": 42}, "b": {"summary": "b is done."}}


async def test_another_process_resumes_it_after_the_change(store: Store) -> None:
    text = fanned(nodes={"c2": wants(1), "b2": wants(5)})
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.paused(text, {"q": 1}, "b", "c2")
    await harness.service.resume(row.id, overrides={"q": 5})
    other = GraphHarness(store, route={"b": "b2"})
    row = await other.service.drive(row.id)
    assert (row.status, other.calls) == ("completed", ["route b", "run b2", "run z"])


async def test_of_two_branches_the_later_one_has_the_last_word(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.paused(fanned(1), {"q": 1}, "b", "c")
    for value in (5, 6):
        await harness.service.resume(row.id, overrides={"q": value})
        row = await harness.service.drive(row.id)
    assert row.status == "completed"
    changed = [block for block in harness.asked("run", "z")[0].blocks if "was changed" in block]
    assert changed == ["The input q was changed during the run: 6"]


async def test_a_branch_warns_once_of_what_is_missing(store: Store) -> None:
    node = {"output": {"type": "object", "properties": {"x": {"type": "number"}}}}
    edges = [*EDGES, *way("z e when on", "z d when off")]
    text = flow("a", "b", "b2", "c", "c2", "z", "d", "e", edges=edges, nodes={"b": node}, x_cuebook={"fan_out": [FAN]})
    harness = GraphHarness(store, run={"b": {"y": 1}}, route={"b": "b2", "z": "e"})
    row = await harness.run(text)
    assert row.status == "completed", row.error
    warned = [event["node"] for event in await harness.events(row.id) if event["type"] == "node:warning"]
    assert warned == ["b"]


# --- limits -----------------------------------------------------------------------------------------------------


def long(*lengths: int) -> str:
    """Branches with these numbers of nodes."""
    ways = [[f"{letter}{number}" for number in range(length)] for letter, length in zip("bcd", lengths, strict=False)]
    fan = {"node": "a", "to": [way[0] for way in ways], "join": "z"}
    return flow("a", *(node for way in ways for node in way), "z", x_cuebook={"fan_out": [fan]})


async def test_parallel_branches_do_not_exceed_the_visit_limit(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(long(40, 40), max_steps=45)
    assert (row.status, row.error.code if row.error else "") == ("failed", "MAX_STEPS")
    assert len(harness.calls) == 45
    assert row.error is not None
    assert "The run has visited 45 nodes, which is the limit; node b22 would be next." in row.error.message


@pytest.mark.parametrize(("lengths", "most"), [((30, 2), 34), ((2, 30, 2), 36), ((11, 10, 9), 32)])
async def test_a_branch_may_use_what_the_others_do_not_need(store: Store, lengths: tuple[int, ...], most: int) -> None:
    harness = GraphHarness(store)
    row = await harness.run(long(*lengths), max_steps=most)
    assert row.status == "completed", row.error
    assert len(harness.calls) == most
    assert sorted(harness.calls) == sorted(f"run {node}" for node in harness.workflow.nodes)
    assert (await harness.service.replay(row.id)).complete
    edges = [(edge["from"], edge["to"]) for edge in (await harness.trace(row.id))["edges"]]
    assert len(edges) == len(set(edges)) == most - 2 + len(lengths)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
async def test_a_retry_at_the_limit_does_nothing_again(store: Store, most: int) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.run(fanned(), max_steps=most)
    assert row.error is not None
    assert row.error.code == "MAX_STEPS"
    before = list(harness.calls)
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert row.error is not None
    assert (row.error.code, harness.calls) == ("MAX_STEPS", before)


async def test_a_retry_at_the_limit_of_one_line_does_nothing_again(store: Store) -> None:
    harness = GraphHarness(store, route={"a": "b"})
    text = flow("a", "b", "c", edges=way("a b when on x1", "a c when off x1"))
    row = await harness.run(text, max_steps=1)
    assert harness.calls == ["run a", "route a"]
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "failed"
    assert harness.calls == ["run a", "route a"]


async def test_a_fan_out_within_a_branch_says_that_its_visits_are_shared(store: Store) -> None:
    fans = [FAN, {"node": "b", "to": ["d", "e"], "join": "f"}]
    edges = way("a b", "a c when never", "b d", "d e", "e f", "f z", "c z")
    harness = GraphHarness(store)
    row = await harness.run(
        flow("a", "b", "d", "e", "f", "c", "z", edges=edges, x_cuebook={"fan_out": fans}), max_steps=4
    )
    assert row.error is not None
    assert row.error.code == "MAX_STEPS"
    assert "share the remaining visits" in row.error.message
    assert "max_concurrency: 1" in row.error.fix


# --- restarting -------------------------------------------------------------------------------------------------


async def test_a_run_is_restarted_from_a_node_of_a_branch(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.run(fanned(1))
    fork = await harness.service.restart(row.id, "c")
    before = len(harness.calls)
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert harness.calls[before:] == ["run c", "run c2", "run z"]
    assert await harness.trace(fork.id) == await harness.trace(row.id)


async def test_a_fork_in_a_branch_changes_what_it_is_shown(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.run(fanned(1), {"q": 1})
    fork = await harness.service.fork(row.id, "c", values={"q": 7})
    assert (await harness.service.drive(fork.id)).status == "completed"
    for node in ("c", "c2", "z"):
        assert "The input q was changed during the run: 7" in harness.asked("run", node)[-1].blocks


async def test_a_node_that_was_in_several_branches_is_called_by_its_branch(store: Store) -> None:
    edges = way("a b", "b c", "c z", "z a when again x1", "z e when done")
    fan = {"fan_out": [{**FAN, "max_concurrency": 1}]}
    harness = GraphHarness(store, route={"z": ["a", "e"]})
    row = await harness.run(flow("a", "b", "c", "z", "e", edges=edges, x_cuebook=fan))
    assert row.status == "completed", row.error
    with pytest.raises(BadInput, match=r"Step c of run .* was reached in 2 branches") as refused:
        await harness.service.restart(row.id, "c")
    first, second = str(refused.value.fix).removeprefix("Specify one of: ").removesuffix(".").split(", ")
    for name, nodes in ((first, ["c", "z", "a", "b", "c", "z", "e"]), (second, ["c", "z", "e"])):
        fork = await harness.service.restart(row.id, name)
        before = len(harness.asked("run"))
        harness.script._route["z"] = ["a", "e"] if name == first else ["e"]
        assert (await harness.service.drive(fork.id)).status == "completed"
        assert [one.node for one in harness.asked("run")[before:]] == nodes


async def test_a_node_that_was_not_reached_is_reported(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "z"})
    row = await harness.run(fanned())
    with pytest.raises(BadInput, match="has not reached step b2") as refused:
        await harness.service.restart(row.id, "b2")
    assert refused.value.fix == "Steps it has reached: a, b, c, c2, z."

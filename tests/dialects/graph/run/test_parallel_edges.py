"""Edges without conditions that are taken at once: their branches, their join, and everything that may interrupt them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cuebook
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.graph.parse import parse, read
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import ScriptedModel
from tests.dialects.graph.harness import GraphHarness, flow, way
from tests.dialects.graph.run.crash_process import FLOW, service_on
from tests.dialects.graph.run.test_fan_out import slowly
from tests.dialects.graph.run.test_resume import CHILD, left, new
from tests.dialects.graph.samples import DATA
from tests.kernel.engine.test_crashes import die, settle, writes
from tests.support.programs import lines
from tests.support.sampling import many, some


def forked(*edges: str, x: dict[str, Any] | None = None, **changes: Any) -> str:
    names = dict.fromkeys(name for edge in edges for name in edge.split()[:2])
    return flow(*names, edges=way(*edges), x_cuebook={"parallel": True, **(x or {})}, **changes)


DIAMOND = ("a b", "a c", "b z", "c z")
LONG = ("a b", "a c", "b b2 when more", "b z when enough", "b2 z", "c c2", "c2 z")


async def routes(harness: GraphHarness, run: str) -> list[str]:
    return [f"{edge['from']}>{edge['to']}" for edge in (await harness.trace(run))["edges"]]


async def test_edges_without_conditions_are_taken_at_once(store: Store) -> None:
    harness = GraphHarness(store, run={"a": {"n": 0}, "b": {"n": 1}, "c": {"n": 2}})
    slow = slowly(harness)
    row = await harness.run(forked(*DIAMOND))
    assert (row.status, slow.most) == ("completed", 2)
    assert await harness.way(row.id) == ["a", "b", "c", "z"]
    edges = (await harness.trace(row.id))["edges"]
    assert [(edge["from"], edge["to"], edge["reason"], edge["edge"]) for edge in edges] == [
        ("a", "b", "fan out", 0), ("a", "c", "fan out", 1), ("b", "z", "join", 2), ("c", "z", "join", 3),
    ]  # fmt: skip
    assert harness.asked("route") == []
    kinds = [(event["type"], event.get("node") or event.get("from") or "") for event in harness.live]
    assert (kinds[0][0], kinds[-1][0]) == ("workflow:start", "workflow:end")
    assert kinds.index(("node:exit", "a")) < kinds.index(("route", "a")) < kinds.index(("node:enter", "b"))
    for node in ("b", "c"):
        order = [kind for kind, of in kinds if of == node and kind != "node:progress"]
        assert order == ["node:enter", "node:exit", "route"]
        assert kinds.index(("route", node)) < kinds.index(("node:enter", "z"))
    assert harness.asked("run", "c")[0].context == {"input": {}, "a": {"n": 0}}
    assert list(harness.asked("run", "z")[0].context) == ["input", "a", "b", "c"]
    assert (await harness.service.replay(row.id)).complete


async def test_an_option_takes_them_at_once(store: Store) -> None:
    text = flow("a", "b", "c", "z", edges=way(*DIAMOND))
    harness = GraphHarness(store)
    with pytest.raises(InvalidPlaybook, match=r"run with --parallel: .* \[AMBIGUOUS_EDGES\]"):
        await harness.run(text)
    row = await harness.run(text, parallel=True)
    assert (row.status, sorted(harness.calls)) == ("completed", ["run a", "run b", "run c", "run z"])
    fork = await harness.service.restart(row.id, "c")
    assert (await harness.service.drive(fork.id)).status == "completed"


def test_python_takes_the_option(tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text(flow("a", "b", "c", "z", edges=way(*DIAMOND)))
    model = ScriptedModel(lambda asked: "Done.")
    result = cuebook.run(path, model=model, store=MemoryStore(), options={"parallel": True})
    assert (result.status, set(result.values)) == ("completed", {"a", "b", "c", "z"})


async def test_the_join_does_not_depend_on_which_is_faster() -> None:
    seen = []
    for delays in ({"b": 0.03}, {"c": 0.03}):
        harness = GraphHarness(MemoryStore(), run={"b": {"n": 1}, "c": {"n": 2}})
        slowly(harness, **delays)
        row = await harness.run(forked(*DIAMOND))
        seen.append((await harness.trace(row.id), harness.asked("run", "z")[0].blocks))
    assert seen[0] == seen[1]


async def test_a_branch_may_decide_loop_and_be_longer() -> None:
    edges = ("a b", "a c", "b b2 when more", "b z when enough", "b2 b when again x1", "b2 z when done", "c z")
    harness = GraphHarness(MemoryStore(), route={"b": "b2", "b2": ["b", "z"]})
    row = await harness.run(forked(*edges))
    assert row.status == "completed", row.error
    assert await harness.way(row.id) == ["a", "b", "b2", "b", "b2", "c", "z"]


async def test_a_branch_may_end_without_reaching_the_join() -> None:
    edges = ("a b", "a c", "b stop when hopeless", "b z when fine", "c z")
    harness = GraphHarness(MemoryStore(), route={"b": "stop"})
    row = await harness.run(forked(*edges))
    assert row.status == "completed", row.error
    assert await harness.way(row.id) == ["a", "b", "stop", "c", "z"]
    assert await routes(harness, row.id) == ["a>b", "a>c", "b>stop", "stop>z", "c>z"]
    assert list(harness.asked("run", "z")[0].context) == ["input", "a", "b", "stop", "c"]


async def test_forks_nest() -> None:
    edges = ("a b", "a c", "b d", "b e", "d f", "e f", "f z", "c g", "c h", "g z", "h z")
    harness = GraphHarness(MemoryStore())
    row = await harness.run(forked(*edges))
    assert row.status == "completed", row.error
    assert await harness.way(row.id) == ["a", "b", "d", "e", "f", "c", "g", "h", "z"]
    assert set(harness.asked("run", "f")[0].context) == {"input", "a", "b", "d", "e"}
    assert (await harness.service.replay(row.id)).complete


async def test_branches_that_meet_earlier_join_there_first(store: Store) -> None:
    edges = ("a b", "a c", "a d", "b e", "c e", "e z", "d z")
    harness = GraphHarness(store)
    row = await harness.run(forked(*edges))
    assert row.status == "completed", row.error
    assert await harness.way(row.id) == ["a", "b", "c", "e", "d", "z"]
    assert Counter(harness.calls) == {f"run {node}": 1 for node in "abcdez"}
    assert list(harness.asked("run", "e")[0].context) == ["input", "a", "b", "c"]
    assert list(harness.asked("run", "z")[0].context) == ["input", "a", "b", "c", "e", "d"]
    assert (await harness.service.replay(row.id)).complete
    before = len(harness.calls)
    fork = await harness.service.restart(row.id, "e")
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert [call for call in harness.calls[before:] if call in ("run e", "run z")] == ["run e", "run z"]
    assert "run a" not in harness.calls[before:]


async def test_an_edge_straight_to_the_join_waits_for_the_others() -> None:
    harness = GraphHarness(MemoryStore())
    row = await harness.run(forked("a b", "a c", "a z", "b z", "c z"))
    assert await harness.way(row.id) == ["a", "b", "c", "z"]
    assert await routes(harness, row.id) == ["a>b", "a>c", "a>z", "b>z", "c>z"]


async def test_a_fork_is_repeated_in_a_loop_until_its_edges_are_exhausted() -> None:
    edges = ("a b", "a c x1", "b z", "c z", "z a when again x2", "z end when done")
    harness = GraphHarness(MemoryStore(), route={"z": ["a", "a", "end"]})
    row = await harness.run(forked(*edges))
    assert row.status == "completed", row.error
    assert await harness.way(row.id) == ["a", "b", "c", "z", "a", "b", "z", "a", "b", "z", "end"]


async def test_a_guard_that_is_proved_false_leaves_its_branch_out() -> None:
    guards = [{"from": "a", "to": "c", "output_matches": [{"path": "a.deep", "equals": True}]}]
    edges = ("a b", "a c", "a d", "b z", "c z", "d z")
    for deep, nodes in ((False, ["a", "b", "d", "z"]), (True, ["a", "b", "c", "d", "z"])):
        harness = GraphHarness(MemoryStore(), run={"a": {"deep": deep}})
        row = await harness.run(forked(*edges, x={"guards": guards}))
        assert (row.status, await harness.way(row.id)) == ("completed", nodes)
        assert (await harness.trace(row.id))["routing"] == {"asked": 0, "saved": 0}


@pytest.mark.parametrize(("policy", "nodes"), [("continue", ["a", "b", "c", "z"]), ("halt", ["a", "b", "c"])])
async def test_a_failed_branch_follows_the_failure_policy(policy: str, nodes: list[str]) -> None:
    harness = GraphHarness(MemoryStore(), run={"b": {"fails": "Down."}})
    row = await harness.run(forked(*DIAMOND), on_failure=policy)
    assert (row.status, await harness.way(row.id)) == ("failed", nodes)
    assert row.error is not None
    assert (row.error.code, row.error.details["step"]) == ("node_failed", "b")
    if policy == "continue":
        assert "which failed" in "".join(harness.asked("run", "z")[0].blocks)


async def test_a_retry_repeats_only_the_failed_branch_and_what_follows(store: Store) -> None:
    harness = GraphHarness(store, run={"b": [{"fails": "Down."}, {"n": 1}]})
    row = await harness.run(forked(*DIAMOND), on_failure="halt")
    assert row.status == "failed"
    before = len(harness.calls)
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    again = harness.calls[before:]
    assert again[0] == "run b"
    assert again[-1] == "run z"
    assert "run a" not in again


async def test_a_run_is_restarted_and_forked_from_within_a_branch(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.run(forked(*LONG), {"q": 1})
    assert row.status == "completed", row.error
    before = len(harness.calls)
    fork = await harness.service.restart(row.id, "c2")
    assert (await harness.service.drive(fork.id)).status == "completed"
    again = harness.calls[before:]
    assert {"run c2", "run z"} <= set(again)
    assert not {"run a", "run b", "run c"} & set(again)
    assert await harness.trace(fork.id) == await harness.trace(row.id)
    fork = await harness.service.fork(row.id, "c2", values={"q": 7})
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert "The input q was changed during the run: 7" in harness.asked("run", "c2")[-1].blocks


async def test_another_process_resumes_two_paused_branches(store: Store) -> None:
    harness = GraphHarness(store, route={"b": "b2"})
    row = await harness.paused(forked(*LONG), {}, "b", "c")
    other = GraphHarness(store, route={"b": "b2"})
    for _ in range(2):
        if row.status == "paused":
            await other.service.resume(row.id)
            row = await other.service.drive(row.id)
    assert row.status == "completed", row.error
    assert Counter([*harness.calls, *other.calls]) == Counter(
        ["run a", "run b", "route b", "run b2", "run c", "run c2", "run z"]
    )


async def test_an_approval_in_one_branch_does_not_stop_the_others(store: Store) -> None:
    extras = {"nodes": {"b": {"approval": "Go on with b?"}, "z": {"approval": "Sum it up?"}}}
    harness = GraphHarness(store)
    row = await harness.run(forked("a b", "a c", "b z", "c c2", "c2 z", x=extras))
    assert (row.status, harness.calls) == ("awaiting_approval", ["run a", "run c", "run c2"])
    other = GraphHarness(store)
    for question in ("Go on with b?", "Sum it up?"):
        (wait,) = await other.service.waits(row.id)
        assert wait.prompt == question
        await other.service.decide(wait.id, "approve")
        row = await other.service.drive(row.id)
    assert (row.status, other.calls) == ("completed", ["run b", "run z"])


async def test_the_limit_holds_for_branches_at_once() -> None:
    harness = GraphHarness(MemoryStore())
    row = await harness.run(forked(*LONG[:2], "b z", "c z"), max_steps=3)
    assert (row.status, row.error.code if row.error else "") == ("failed", "MAX_STEPS")
    assert sorted(harness.calls) == ["run a", "run b", "run c"]


async def test_many_edges_are_taken_in_portions() -> None:
    names = [f"n{number:02}" for number in range(20)]
    harness = GraphHarness(MemoryStore())
    slow = slowly(harness)
    row = await harness.run(forked(*(f"a {name}" for name in names), *(f"{name} z" for name in names)))
    assert (row.status, slow.most) == ("completed", 16)
    assert await harness.way(row.id) == ["a", *names, "z"]


async def test_every_node_of_a_forked_workflow_runs_once_and_after_all_nodes_before_it() -> None:
    """Random workflows without cycles: those that are not refused run each node once, with all results it depends on."""
    random, ran = Random(7), 0
    for _ in range(many(25, 2_000)):
        names = [f"n{number}" for number in range(random.randint(3, 9))]
        ways = {(random.randrange(max(0, end - 3), end), end) for end in range(1, len(names))}
        ways |= {(begin, len(names) - 1) for begin in range(len(names) - 1) if begin not in dict(ways)}
        ways |= {(begin, len(names) - 1) for begin in range(len(names) - 1) if random.random() < 0.1}
        text = forked(*(f"{names[begin]} {names[end]}" for begin, end in sorted(ways)))
        problems = read(text, "flow.yml").errors
        if problems:
            assert {problem.code for problem in problems} == {"NO_JOIN"}
            continue
        harness = GraphHarness(MemoryStore())
        row = await harness.run(text)
        assert row.status == "completed", (text, row.error)
        assert sorted(await harness.way(row.id)) == names, text
        shown = {asked.node: asked.context for asked in harness.asked("run")}
        assert all(names[begin] in shown[names[end]] for begin, end in ways), text
        ran += 1
    assert ran > 8


# --- killed in the middle of two branches ---

_CRASH = json.loads(FLOW)
FORK = json.dumps(
    _CRASH
    | {
        "entry": "start",
        "nodes": {id: _CRASH["nodes"][id] for id in ("start", "left", "check", "right", "end")},
        "edges": way("start left", "start right", "left check", "check end", "right end"),
        "x_cuebook": {"parallel": True},
    }
)


async def prepared(folder: Path) -> tuple[Path, str]:
    store = SqliteStore(folder / "store.db")
    service = service_on(store, folder)
    row = await service.start(Playbook.from_text(FORK, "crash.yml"), {"q": 1}, Settings(model="test/place"))
    await service.close()
    await store.close()
    return folder, row.id


async def settled(folder: Path, run: str) -> dict[str, Any]:
    """The trace and the results of a run that is driven to its end."""
    store = SqliteStore(folder / "store.db")
    service = service_on(store, folder)
    assert (await settle(service._engine, folder, run))[0] == "completed"
    entries = [entry async for entry in service.entries(run)]
    assert (await service.replay(run)).complete
    assert (await service.verify(run)).broken_at is None
    await service.close()
    await store.close()
    return left(parse(FORK, "crash.yml"), entries)


@pytest.mark.timeout(600)
async def test_killed_in_the_middle_of_two_branches(tmp_path: Path) -> None:
    whole, run = await prepared(new(tmp_path / "whole"))
    wanted, wanted_lines = await settled(whole, run), Counter(lines(whole))
    assert [step["node"] for step in wanted["trace"]["steps"]] == ["start", "left", "check", "right", "end"]
    every = writes(CHILD, *await prepared(new(tmp_path / "counted")))
    died = 0
    for number in some(every, 4):
        folder, run = await prepared(new(tmp_path / f"at{number}"))
        died += await asyncio.to_thread(die, CHILD, folder, run, "after", number)
        assert await settled(folder, run) == wanted, f"killed after write {number}"
        assert Counter(lines(folder)) == wanted_lines
    assert died >= 3


# --- workflows from elsewhere ---

SHAPES = {
    "three reviews": ("fetch style", "fetch tests", "fetch breaking", "style post", "tests post", "breaking post"),
    "four scans": tuple(f"scope {one}" for one in "abcd") + tuple(f"{one} report" for one in "abcd"),
    "two checks": ("migrations env", "migrations rollback", "env report", "rollback report"),
    "a guide": ("code patterns", "code workflow", "patterns guide", "workflow guide", "guide publish"),
    "a decision after three": (
        "detect schema", "detect rollback", "detect impact", "schema go", "rollback go", "impact go", "go notify",
    ),
}  # fmt: skip
"""Shapes that published workflows have."""


@pytest.mark.parametrize("edges", SHAPES.values(), ids=SHAPES)
async def test_published_shapes_run_with_the_option(edges: tuple[str, ...]) -> None:
    names = dict.fromkeys(name for edge in edges for name in edge.split())
    harness = GraphHarness(MemoryStore())
    row = await harness.run(flow(*names, edges=way(*edges)), parallel=True)
    assert row.status == "completed", row.error
    assert Counter(await harness.way(row.id)) == Counter(list(names))
    assert len((await harness.trace(row.id))["edges"]) == len(edges)


def _ambiguous() -> list[Path]:
    found = []
    for path in sorted(DATA.rglob("*.yml")):
        try:
            document = parse(path.read_text(encoding="utf-8"), path.name)
        except InvalidPlaybook:
            continue
        found += [path] if document.forks else []
    return found


@pytest.mark.skipif(not _ambiguous(), reason="no published workflow with parallel edges is beside the project")
async def test_published_workflows_with_parallel_edges_run_with_the_option() -> None:
    for path in _ambiguous():
        text = path.read_text(encoding="utf-8")
        document = parse(text, path.name)
        said = {node.id: _fitting(node.output) for node in document.nodes.values()}
        harness = GraphHarness(MemoryStore(), run=said)
        row = await harness.run(text, parallel=True)
        assert row.status == "completed", (path.name, row.error)
        assert {to for fork in document.forks for to in fork.to} <= set(await harness.way(row.id))


def _fitting(schema: dict[str, Any] | None) -> Any:
    """A value that matches a schema."""
    schema = schema or {}
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "object":
            properties = schema.get("properties", {})
            return {name: _fitting(properties.get(name)) for name in properties} or {"summary": "Done."}
        case "array":
            return []
        case "boolean":
            return True
        case "number" | "integer":
            return 1
    return "so"

"""A workflow that is killed at any journal write is resumed, and its trace is as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.observe import GraphProjection, events
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.graph.run import state
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.projection import seen
from cuebook.kernel.events import Checkpointed, ModelAsked
from cuebook.kernel.journal import Entry
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.dialects.graph.harness import GraphHarness, flow, way
from tests.dialects.graph.run.crash_process import FLOW, service_on
from tests.kernel.engine.test_crashes import die, settle, writes
from tests.support.programs import lines
from tests.support.sampling import THOROUGH, some

CHILD = "tests.dialects.graph.run.crash_process"
TIMES = ("time", "duration", "run")


@pytest.fixture(autouse=True)
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FIRST_CHECKPOINT", 2)


async def begun(service: Service) -> str:
    row = await service.start(Playbook.from_text(FLOW, "crash.yml"), {"q": 1}, Settings(model="test/place"))
    return row.id


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def prepared(folder: Path) -> tuple[Path, str]:
    """A folder with a run that has not been driven yet."""
    store = SqliteStore(folder / "store.db")
    service = service_on(store, folder)
    run = await begun(service)
    await service.close()
    await store.close()
    return folder, run


def left(workflow: Workflow, entries: list[Entry]) -> dict[str, Any]:
    """The trace and the results."""
    return seen(GraphProjection(workflow), entries).trace() or {}


async def picture(service: Service, run: str) -> dict[str, Any]:
    """Everything that must be equal, whatever happened to the process: all but the times."""
    workflow = parse(FLOW, "crash.yml")
    entries = [entry async for entry in service.entries(run)]
    told = [{name: one for name, one in event.items() if name not in TIMES} for event in events(workflow, entries)]
    branches = {"left", "right"}
    return {
        **left(workflow, entries),
        "status": (await service.row(run)).status,
        # Which branch was faster does not matter.
        "events": [
            {**event, "sequence": 0} for event in told if branches.isdisjoint((event.get("node"), event.get("from")))
        ],
        "numbers": [event["sequence"] for event in told],
        "steps": [(s.path, s.label, s.visit, s.status) for s in await service.steps(run)],
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_write(when: str, tmp_path: Path) -> None:
    whole = new(tmp_path / "whole")
    store = SqliteStore(whole / "store.db")
    service = service_on(store, whole)
    run = await begun(service)
    assert await settle(service._engine, whole, run) == ("completed", 0)
    wanted, wanted_lines = await picture(service, run), Counter(lines(whole))
    await service.close()
    await store.close()
    assert [step["node"] for step in wanted["trace"]["steps"]] == [
        "draft", "draft", "check", "check", "start", "left", "right", "end",
    ]  # fmt: skip
    every = writes(CHILD, *await prepared(new(tmp_path / "counted")))
    died, doubted = 0, 0
    for number in some(every, 8):
        folder, run = await prepared(new(tmp_path / f"at{number}"))
        died += await asyncio.to_thread(die, CHILD, folder, run, when, number)
        store = SqliteStore(folder / "store.db")
        service = service_on(store, folder)
        status, doubts = await settle(service._engine, folder, run)
        doubted += doubts
        assert status == "completed"
        assert await picture(service, run) == wanted, f"killed {when} write {number}"
        assert Counter(lines(folder)) == wanted_lines
        assert (await service.replay(run)).complete
        assert (await service.verify(run)).broken_at is None
        await service.close()
        await store.close()
    assert died >= 6
    assert doubted > 0 or not THOROUGH, "some tool must have been caught half done"


async def test_it_continues_from_a_checkpoint(tmp_path: Path) -> None:
    """The replay begins at the last checkpoint, and the context is the same as without one."""
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store, tmp_path)
    run = await begun(service)
    await service.drive(run)
    entries = [entry async for entry in service.entries(run)]
    kept = [entry.event for entry in entries if isinstance(entry.event, Checkpointed)]
    assert [event.state["following"] for event in kept] == ["check", "end"]
    fork = await service.fork(run, "end")
    row = await service.drive(fork.id)
    assert row.status == "completed"
    workflow = parse(FLOW, "crash.yml")
    again = [entry async for entry in service.entries(fork.id)]
    assert left(workflow, again)["trace"] == left(workflow, entries)["trace"]
    contexts = [[e.event.context for e in one if isinstance(e.event, ModelAsked)][-1] for one in (entries, again)]
    assert contexts[0] == contexts[1]
    await service.close()
    await store.close()


async def test_an_observer_that_comes_late_sees_the_same(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store, tmp_path)
    observed: list[Any] = []
    service.observe(observed.append)
    run = await begun(service)
    await service.drive(run)
    workflow = parse(FLOW, "crash.yml")
    live = GraphProjection(workflow)
    told = [event for one in observed for event in live.see(one).published]
    entries = [entry async for entry in service.entries(run)]
    assert [event for event in told if event["type"] != "node:progress"] == events(workflow, entries)
    await service.close()
    await store.close()


async def test_long_results_are_kept_by_reference(store: Store) -> None:
    """A checkpoint contains their digests; they are read when a node needs them."""
    harness = GraphHarness(store, run={name: {"long": name * 5_000} for name in "abcd"})
    row = await harness.run(flow("a", "b", "c", "d"))
    entries = await harness.entries(row.id)
    (record,) = [one async for one in store.records(row.id) if one.kind == "Checkpointed"]
    assert len(record.body) < 2_000
    fork = await harness.service.restart(row.id, "d")
    assert (await harness.service.drive(fork.id)).status == "completed"
    first, again = harness.asked("run", "d")
    assert first.blocks == again.blocks
    assert again.context["a"] == {"long": "a" * 5_000}
    assert await harness.trace(fork.id) == left(harness.workflow, entries)["trace"]


async def test_a_retry_goes_back_behind_a_checkpoint(store: Store) -> None:
    node = {"eval": [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}]}
    harness = GraphHarness(store, run={"b": [{"y": 1}, {"x": 1}]})
    row = await harness.run(flow("a", "b", "c", "d", "e", nodes={"b": node}))
    assert row.status == "failed"
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.calls == [f"run {name}" for name in "abcdebcde"]
    assert [step["status"] for step in (await harness.trace(row.id))["steps"]] == ["success"] * 5


async def test_changes_and_warnings_survive_a_checkpoint(store: Store) -> None:
    node = {"output": {"type": "object", "properties": {"x": {"type": "number"}}}}
    names = ("a", "b", "c", "d", "e")
    edges = way("a b when on", "a e when off", "b c", "c d", "d e when on", "d a when off x1")
    text = flow(*names, edges=edges, nodes={"a": node})
    harness = GraphHarness(store, run={"a": {"y": 1}}, route={"a": "b", "d": "e"})
    harness.workflow = parse(text, "flow.yml")
    settings = Settings(model="test/scripted", breakpoints=("a",))
    row = await harness.service.start(Playbook.from_text(text, "flow.yml"), {"q": 1}, settings)
    assert (await harness.service.drive(row.id)).status == "paused"
    await harness.service.resume(row.id, overrides={"q": 5})
    assert (await harness.service.drive(row.id)).status == "completed"
    before = await harness.events(row.id)
    assert [event["node"] for event in before if event["type"] == "node:warning"] == ["a"]
    fork = await harness.service.restart(row.id, "d")
    assert (await harness.service.drive(fork.id)).status == "completed"
    for kind in ("run", "route"):
        first, again = harness.asked(kind, "d")
        assert first.blocks == again.blocks
    assert "The input q was changed during the run: 5" in harness.asked("run", "d")[1].blocks
    kinds = ("type", "node", "from", "to", "reason")
    after = await harness.events(fork.id)
    assert [[event.get(kind) for kind in kinds] for event in after] == [
        [event.get(kind) for kind in kinds] for event in before
    ]

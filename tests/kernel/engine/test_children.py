"""Child runs: journals of their own, driven inside the drive of their parent, with waits that the outermost run lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import ENDED, CancelRequested, RunFinished
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Budget, RunRow, Settings, Signal
from tests.support.programs import Held, begin, engine_on, eventually, lines


@pytest.fixture
async def engine(store: Store, tmp_path: Path) -> AsyncIterator[Engine]:
    made = engine_on(store, tmp_path)
    yield made
    await made.close()


async def answer(engine: Engine, run: str, answer: dict[str, Any] | None = None) -> None:
    for wait in await engine.store.waits(run=run):
        await engine.store.complete_wait(wait.id, answer or {"value": "yes"}, "me", engine.clock())


async def children(engine: Engine, run: str) -> list[RunRow]:
    return await engine.store.runs(caller=run, limit=None)


async def test_a_childs_question_is_listed_once_by_the_outermost_run(engine: Engine, tmp_path: Path) -> None:
    run = await begin(engine, "calling", deep=True)
    assert (await engine.drive(run)).status == "awaiting_input"
    (between,) = await children(engine, run)
    (inner,) = await children(engine, between.id)
    assert [between.status, inner.status] == ["awaiting_input"] * 2
    (wait,) = await engine.store.waits()
    assert (wait.run, wait.prompt, wait.place.step) == (run, "Go on?", "")
    assert wait.details["child"] == {
        "run": inner.id,
        "name": "everything",
        "step": "2",
        "chain": [between.id, inner.id],
    }
    assert await engine.store.ready(engine.clock(), engine.driver) == []
    await answer(engine, run)
    assert await engine.store.ready(engine.clock(), engine.driver) == [run], "children are never driven on their own"
    row = await engine.drive(run)
    assert row.status == "completed"
    assert lines(tmp_path) == ["before", "between", "one", "two", "three", "after"]
    for one in (run, between.id, inner.id):
        assert (await engine.store.run(one)).status == "completed"
        assert (await engine.verify(one)).problem == ""
        assert (await engine.replay(one)).complete
    assert (row.totals.calls, row.totals.steps_done) == (2, 6), "what the children used counts for the run"


async def test_a_child_that_waits_is_not_driven_for_the_news_of_another_branch(engine: Engine) -> None:
    run = await begin(engine, "calling", beside=True)
    await engine.drive(run)
    (child,) = await children(engine, run)
    before = child.epoch
    beside = next(wait for wait in await engine.store.waits(run=run) if wait.prompt == "Beside?")
    await engine.store.complete_wait(beside.id, {"value": "sure"}, "me", engine.clock())
    assert (await engine.drive(run)).status == "awaiting_input"
    assert (await engine.store.run(child.id)).epoch == before
    await answer(engine, run)
    assert (await engine.drive(run)).status == "completed"


async def test_an_answer_that_arrives_while_the_parent_works_continues_the_child(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, append=held)
    run = await begin(engine, "calling", beside=True, child="waiting")
    driving = asyncio.create_task(engine.drive(run))
    await held.entered.wait()
    held.go.set()
    await driving
    assert {wait.kind for wait in await store.waits(run=run)} == {"timer", "question"}
    assert (await store.run(run)).status == "awaiting_input"
    await engine.close()


async def test_cancelling_the_parent_cancels_a_child_that_waits(engine: Engine, tmp_path: Path) -> None:
    run = await begin(engine, "calling", child="undoing")
    await engine.drive(run)
    assert (await engine.store.run(run)).status == "awaiting_input"
    await engine.store.signal(Signal(run, "cancel", {"reason": "enough"}, "me"))
    assert await engine.store.waits() == []
    assert (await engine.drive(run)).status == "cancelled"
    (child,) = await children(engine, run)
    assert child.status == "cancelled"
    assert lines(tmp_path) == ["before", "do", "undo"], "the child undoes its work"
    events = [entry.event async for entry in engine.entries(child.id)]
    assert [(one.by, one.reason) for one in events if isinstance(one, CancelRequested)] == [("me", "enough")]


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_reaches_a_child_at_work(store: Store, tmp_path: Path, times: int) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    run = await begin(engine, "calling", child="holding")
    driving = asyncio.create_task(engine.drive(run))
    await held.entered.wait()
    for _ in range(times):
        await store.signal(Signal(run, "cancel", {}, "me"))
    await engine.hear(run)
    row = await driving
    assert row.status == "cancelled"
    (child,) = await children(engine, run)
    assert child.status == "cancelled"
    assert held.interrupted == 1
    assert [one.status in ENDED for one in await store.runs(limit=None)] == [True, True]
    await engine.close()


async def test_a_failed_child_names_its_run_and_a_retry_continues_it_there(engine: Engine, tmp_path: Path) -> None:
    run = await begin(engine, "calling", child="failing")
    row = await engine.drive(run)
    (child,) = await children(engine, run)
    assert (row.status, child.status) == ("failed", "failed")
    assert row.error is not None
    assert row.error.code == "child_failed"
    assert row.error.message == f"The playbook 'failing' failed in run {child.id}: the tool refused fragile once"
    assert row.error.fix == (
        f"`cuebook show {child.id}` shows what happened, and `cuebook retry {run}` continues it there."
    )
    await engine.store.signal(Signal(run, "retry", {}, "me"))
    assert (await engine.drive(run)).status == "completed"
    assert lines(tmp_path) == ["before", "step 1", "step 2", "fragile", "fragile", "step 3", "after"]
    assert len(await children(engine, run)) == 1
    ends = [e.event.status async for e in engine.entries(child.id) if isinstance(e.event, RunFinished)]
    assert ends == ["failed", "completed"]
    assert (await engine.store.run(run)).totals.steps_done == 6


async def test_a_step_that_is_repeated_as_a_whole_starts_another_child(engine: Engine, tmp_path: Path) -> None:
    run = await begin(engine, "calling", child="failing")
    await engine.drive(run)
    await engine.store.signal(Signal(run, "retry", {"whole_step": True}, "me"))
    assert (await engine.drive(run)).status == "completed"
    assert [one.status for one in await children(engine, run)] == ["completed", "failed"]


async def test_parent_and_children_share_one_budget(engine: Engine) -> None:
    settings = Settings(budget=Budget(steps=2))
    run = await begin(engine, "calling", settings=settings)
    await engine.drive(run)
    (wait,) = await engine.store.waits(run=run)
    assert (wait.kind, wait.prompt) == ("budget", "The budget of 2 steps is used up.")
    await answer(engine, run, {"settings": {"budget": {"steps": 3}}})
    assert (await engine.drive(run)).status == "awaiting_input"
    await answer(engine, run)
    await engine.drive(run)
    (wait,) = await engine.store.waits(run=run)
    assert (wait.kind, wait.prompt) == ("budget", "The budget of 3 steps is used up.")
    await answer(engine, run, {"settings": {"budget": {"steps": 10}}})
    assert (await engine.drive(run)).status == "completed"
    entries = [entry async for entry in engine.entries(run)]
    assert not [
        entry for entry in entries if entry.place.step == "after" and "WaitOpened" in type(entry.event).__name__
    ]


async def test_children_are_not_nested_without_end(engine: Engine) -> None:
    run = await begin(engine, "calling", child="endless")
    row = await engine.drive(run)
    assert row.status == "failed"
    assert row.error is not None
    assert "nested more than 5 deep" in row.error.message
    assert len(await engine.store.runs(limit=None)) == 6


async def test_a_timer_in_a_child_wakes_its_parent(engine: Engine) -> None:
    run = await begin(engine, "calling", child="waiting")
    row = await engine.drive(run)
    assert (row.status, row.reason) == ("paused", "timer")
    await engine.store.expire(engine.clock() + 100)
    row = await engine.drive(run)
    assert (row.status, row.reason) == ("paused", "message")
    await engine.store.signal(Signal(run, "message", {"channel": "news", "value": "hello"}, "me"))
    assert (await engine.drive(run)).status == "completed"
    finished = [e.event.result async for e in engine.entries(run) if isinstance(e.event, RunFinished)]
    assert finished == [[["Message", "hello"]]]


async def test_handing_over_releases_parent_and_child_between_two_effects(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_on(store, tmp_path, hold=held)
    run = await begin(engine, "calling", child="holding")
    driving = asyncio.create_task(engine.drive(run))
    await held.entered.wait()
    engine.hand_over()
    held.go.set()
    await driving
    assert [one.driver for one in await store.runs(limit=None)] == ["", ""]
    await engine.close()
    other = engine_on(store, tmp_path)
    await eventually(lambda: other.store.ready(other.clock(), other.driver))
    assert (await other.drive(run)).status == "completed"
    assert held.performed == 1
    await other.close()

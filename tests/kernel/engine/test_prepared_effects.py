"""Performers that prepare: preparation runs while the intent is written, and nothing acts before that is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from cuebook.kernel.effects import CallTool, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Fenced, StoreError
from cuebook.kernel.events import Performed, StepFinished, StepStarted
from cuebook.kernel.outcomes import AnyOutcome, Failed, ToolResult
from cuebook.kernel.ports import Batch, Call, Store
from cuebook.kernel.run import Signal
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin


class Prepared:
    """Notes the content of the store when it begins."""

    prepares: Literal[True] = True

    def __init__(self, store: Store, begins: bool = True) -> None:
        self.store = store
        self.begins = begins
        self.seen: list[list[str]] = []
        self.acted = 0

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        if not self.begins:
            return Failed("no_such_tool", "There is none.")
        self.seen.append(await kinds(self.store))
        await call.begin()
        self.seen.append(await kinds(self.store))
        await call.begin()  # as often as one likes
        self.acted += 1
        return ToolResult("done")


class Failing(SqliteStore):
    """Refuses the first batch that contains an intent."""

    error: Exception

    def append(self, batch: Batch) -> asyncio.Future[None]:
        if any(record.kind == "Performing" for record in batch.records):
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.02, refused.set_exception, self.error)
            return refused
        return super().append(batch)


async def kinds(store: Store) -> list[str]:
    return [record.kind async for record in store.records("run")]


async def doubts(engine: Engine) -> list[bool]:
    """For each failed outcome, whether the effect may have happened nevertheless."""
    outcomes = [entry.event.outcome async for entry in engine.entries("run") if isinstance(entry.event, Performed)]
    return [bool(one.details.get("in_doubt")) for one in outcomes if isinstance(one, Failed)]


def calling(state: Any) -> Program[Any]:
    yield StepStarted("1")
    try:
        result = yield CallTool("t")
    finally:
        yield StepFinished("1")
    return result.value


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    made = SqliteStore(tmp_path / "store.db")
    yield made
    await made.close()


def engine_of(store: Store, performer: Prepared) -> Engine:
    return Engine(store, lambda *about: calling, {CallTool: performer}, listen_every=0.02)


async def test_the_intent_is_on_record_before_it_acts_and_not_before_it_is_ready(store: Store) -> None:
    performer = Prepared(store)
    engine = engine_of(store, performer)
    row = await engine.drive(await begin(engine, "calling"))
    before, after = performer.seen
    assert (row.status, performer.acted) == ("completed", 1)
    assert "Performing" not in before
    assert after[-1] == "Performing"
    assert (await kinds(store)).count("Performing") == 1
    await engine.close()


async def test_an_effect_that_never_begins_has_its_intent_before_its_outcome(store: Store) -> None:
    engine = engine_of(store, Prepared(store, begins=False))
    row = await engine.drive(await begin(engine, "calling"))
    assert row.status == "failed"
    told = await kinds(store)
    assert told.index("Performing") < told.index("Performed")
    await engine.close()


@pytest.mark.parametrize("error", [StoreError("The disk is full."), Fenced("Another one drives it.")])
async def test_an_intent_that_cannot_be_written_ends_the_drive_and_nothing_acts(
    error: Exception, tmp_path: Path
) -> None:
    store = Failing(tmp_path / "failing.db")
    store.error = error
    performer = Prepared(store)
    engine = engine_of(store, performer)
    with pytest.raises(type(error)):
        await engine.drive(await begin(engine, "calling"))
    assert performer.acted == 0
    assert not {"Performing", "Performed"} & set(await kinds(store))
    await engine.close()
    await store.close()


async def test_a_cancel_while_the_intent_is_written_leaves_it_on_record(tmp_path: Path) -> None:
    class Slow(SqliteStore):
        def append(self, batch: Batch) -> asyncio.Future[None]:
            if not any(record.kind == "Performing" for record in batch.records):
                return super().append(batch)
            loop = asyncio.get_running_loop()
            later: asyncio.Future[None] = loop.create_future()
            written = super().append(batch)
            writing.set()
            loop.call_later(0.3, lambda: written.add_done_callback(lambda done: later.set_result(done.result())))
            return later

    writing = asyncio.Event()
    store = Slow(tmp_path / "slow.db")
    performer = Prepared(store)
    engine = engine_of(store, performer)
    driving = asyncio.create_task(engine.drive(await begin(engine, "calling")))
    await writing.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    row = await driving
    told = await kinds(store)
    assert (row.status, performer.acted) == ("cancelled", 0)
    assert told.index("Performing") < told.index("Performed")
    assert await doubts(engine) == [False], "it was never let go"
    await engine.close()
    await store.close()


async def test_an_effect_cancelled_during_preparation_has_no_intent(store: Store) -> None:
    ready = asyncio.Event()

    class Slow(Prepared):
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            ready.set()
            await asyncio.sleep(60)
            return await super().perform(effect, call)

    performer = Slow(store)
    engine = engine_of(store, performer)
    driving = asyncio.create_task(engine.drive(await begin(engine, "calling")))
    await ready.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert ((await driving).status, performer.acted) == ("cancelled", 0)
    assert "Performing" not in await kinds(store)
    assert await doubts(engine) == [False]
    await engine.close()


async def test_an_outcome_being_written_is_not_in_doubt_after_an_immediate_cancel(tmp_path: Path) -> None:
    class Slow(SqliteStore):
        def append(self, batch: Batch) -> asyncio.Future[None]:
            if any(record.kind == "Performed" for record in batch.records):
                writing.set()
            return super().append(batch)

    writing = asyncio.Event()
    store = Slow(tmp_path / "slow.db")
    engine = engine_of(store, Prepared(store))
    driving = asyncio.create_task(engine.drive(await begin(engine, "calling")))
    await writing.wait()
    driver = engine._driving["run"]
    assert driver is not None
    assert driver.acting == {}
    await driving
    await engine.close()
    await store.close()


async def test_a_repeat_that_is_cancelled_before_it_begins_leaves_the_doubt(store: Store) -> None:
    entered = asyncio.Event()

    class Slow(Prepared):
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            if self.seen:
                entered.set()
                await asyncio.sleep(60)
            self.seen.append([])
            await call.begin()
            entered.set()
            await asyncio.sleep(60)
            raise AssertionError

    performer = Slow(store)
    engine = engine_of(store, performer)
    driving = asyncio.create_task(engine.drive(await begin(engine, "calling")))
    await entered.wait()
    driving.cancel()  # as if it were killed: its intent is on record, and no outcome
    await asyncio.gather(driving, return_exceptions=True)
    assert (await engine.drive("run")).status == "awaiting_approval"
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"decision": "repeat"}, "me", engine.clock())
    entered.clear()
    driving = asyncio.create_task(engine.drive("run"))
    await entered.wait()
    await store.signal(Signal("run", "cancel", {}, "me"))
    assert (await driving).status == "cancelled"
    assert await doubts(engine) == [True]
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "awaiting_approval"
    assert [one.kind for one in await store.waits(run="run")] == ["in_doubt"]
    await engine.close()


async def test_a_repeat_that_fails_before_it_begins_leaves_the_doubt(store: Store) -> None:
    entered = asyncio.Event()

    class Refusing(Prepared):
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            if entered.is_set():
                return Failed("secret_missing", "It is not there.")
            await call.begin()
            entered.set()
            await asyncio.sleep(60)
            raise AssertionError

    engine = engine_of(store, Refusing(store))
    driving = asyncio.create_task(engine.drive(await begin(engine, "calling")))
    await entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await engine.drive("run")
    (wait,) = await store.waits(run="run")
    await store.complete_wait(wait.id, {"decision": "repeat"}, "me", engine.clock())
    assert (await engine.drive("run")).status == "failed"
    assert await doubts(engine) == [True]
    await store.signal(Signal("run", "retry", {}, "me"))
    assert (await engine.drive("run")).status == "awaiting_approval"
    await engine.close()

"""Records are numbered, chained, and durable before they are shown; no news is lost in the meantime."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import EMPTY, Text
from cuebook.kernel.effects import AskModel, Program, RunCommand
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import StoreError
from cuebook.kernel.events import Performed, RunFinished, Suspended, WaitOpened
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import AnyOutcome, CommandResult
from cuebook.kernel.ports import Batch, Call, Store
from cuebook.kernel.run import Signal
from cuebook.stores.sqlite import group_commit
from tests.support.programs import PROGRAMS, EchoModel, begin, engine_on, lines


async def test_an_answer_that_arrives_while_the_run_is_released_is_processed(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    release = store.release
    answered: list[Any] = []

    async def releasing(batch: Batch, *, unless_news: bool) -> bool:
        if unless_news and not answered:
            (wait,) = await eventually_one(store)
            answered.append(await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock()))
        return await release(batch, unless_news=unless_news)

    store.release = releasing  # type: ignore[method-assign]
    row = await engine.drive(await begin(engine, "everything"))
    assert (row.status, row.totals.calls, row.driver) == ("completed", 2, ""), "what is returned is what is stored"
    stored = await store.run("run")
    assert (stored.status, stored.totals) == (row.status, row.totals)
    kinds = [type(entry.event) async for entry in engine.entries("run")]
    assert (kinds.count(Suspended), kinds.count(RunFinished)) == (0, 1), "it was never let go"
    assert (await engine.verify("run")).broken_at is None
    await engine.close()


async def eventually_one(store: Store) -> list[Any]:
    while not (waits := await store.waits(run="run")):
        await asyncio.sleep(0)
    return waits


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("what", ["answer", "cancel"])
async def test_no_news_is_lost_while_the_run_is_released(
    what: str, thread: bool, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever iteration of the event loop it arrives, the run continues or is ready to."""
    if thread:
        monkeypatch.setattr(group_commit, "SLOW", -10.0)
    for turns in range(12):
        run = f"run{turns}"
        engine = Engine(
            store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), engine_on(store, tmp_path).performers,
            listen_every=60,
        )  # fmt: skip
        acting: list[asyncio.Task[None]] = []

        async def act(wait: str, run: str = run, turns: int = turns, engine: Engine = engine) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            if what == "answer":
                await store.complete_wait(wait, {"value": "yes"}, "me", engine.clock())
            else:
                await store.signal(Signal(run, "cancel", {}, "me"))
            await engine.hear(run)

        def seen(event: Any, acting: list[asyncio.Task[None]] = acting, act: Any = act) -> None:
            if isinstance(event, Entry) and isinstance(event.event, WaitOpened):
                acting.append(asyncio.create_task(act(event.event.wait)))

        engine.observe(seen)
        row = await engine.drive(await begin(engine, "undoing", run))
        await asyncio.gather(*acting)
        if row.status == "awaiting_input":
            assert await store.ready(engine.clock(), "another") == [run], f"after {turns} turns it is forgotten"
            row = await engine.drive(run)
        assert row.status == {"answer": "completed", "cancel": "cancelled"}[what]
        assert (await engine.verify(run)).broken_at is None
        await engine.close()


@pytest.mark.parametrize("length", [10, 5000])
async def test_an_outcome_that_no_store_can_hold_fails_its_effect(length: int, store: Store) -> None:
    class Halves:
        async def perform(self, effect: RunCommand, call: Call) -> AnyOutcome:
            return CommandResult(0, Text("x" * length + "\ud83d"))

    def start(state: Any) -> Program[Any]:
        yield RunCommand(("cat", "emoji"))

    PROGRAMS["half a surrogate pair"] = lambda inputs: start
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {RunCommand: Halves()})
    row = await engine.drive(await begin(engine, "half a surrogate pair"))
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "not_storable"
    await engine.close()


@pytest.mark.parametrize("where", ["prompt", "context", "later context"])
async def test_text_that_no_store_can_hold_is_not_sent_to_a_model(where: str, store: Store) -> None:
    def start(state: Any) -> Program[Any]:
        if where == "later context":
            yield AskModel("?", EMPTY.add("user", "Hi"))
        context = EMPTY.add("user", "Hi") if where == "later context" else EMPTY
        yield AskModel("\ud83d") if where == "prompt" else AskModel("?", context.add("user", "\ud83d"))

    PROGRAMS["half a prompt"] = lambda inputs: start
    engine = Engine(store, lambda row, text, inputs, options: PROGRAMS[row.name](inputs), {AskModel: EchoModel()})
    row = await engine.drive(await begin(engine, "half a prompt"))
    assert row.status == "failed", "and the run can be looked at, retried and forked"
    await engine.close()


async def test_a_context_is_stored_block_by_block_once(store: Store, tmp_path: Path) -> None:
    written: list[str] = []
    append = store.append

    def appending(batch: Batch) -> Any:
        written.extend(batch.texts or {})
        asked = [engine.codec.decode(record.body) for record in batch.records if record.kind == "ModelAsked"]
        written.extend(block.text.digest for event in asked for block in getattr(event, "added", ()))
        return append(batch)

    def start(state: Any) -> Program[Any]:
        context = EMPTY.add("system", "Be brief.")
        for number in range(5):
            reply = yield AskModel("", context.add("user", f"question {number}"))
            context = context.add("user", f"question {number}").add("assistant", reply.content)

    PROGRAMS["talking"] = lambda inputs: start
    store.append = appending  # type: ignore[method-assign]
    engine = engine_on(store, tmp_path)
    run = await begin(engine, "talking")
    assert (await engine.drive(run)).status == "completed"
    assert written.count(Text("Be brief.").digest) == 1
    assert [written.count(Text(f"question {number}").digest) for number in range(5)] == [1] * 5
    assert not (await engine.verify(run)).missing
    await engine.close()


async def test_a_failed_write_ends_the_drive_and_the_next_drive_continues(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    await begin(engine, "everything")
    append, broken = store.append, [True]

    def breaking(batch: Batch) -> Any:
        if broken and any(record.kind == "Performed" for record in batch.records):
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreError("The disk fell off."))
            return failed
        return append(batch)

    store.append = breaking  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="fell off"):
        await engine.drive("run")
    broken.clear()
    assert (await engine.drive("run")).status == "awaiting_input"
    assert lines(tmp_path, "asked") == ["draft", "draft"], "what was not stored was not seen"
    outcomes = [entry async for entry in engine.entries("run") if isinstance(entry.event, Performed)]
    assert [entry.place.attempt for entry in outcomes if entry.event.fingerprint == "AskModel"] == [2]  # type: ignore[union-attr]
    assert (await engine.verify("run")).broken_at is None
    await engine.close()

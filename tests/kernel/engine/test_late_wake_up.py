"""A process that learns late that its intent is durable: it acts only if no one has claimed the run in the meantime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cuebook.kernel import boot_clock
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Fenced
from cuebook.kernel.events import Performing
from cuebook.kernel.ports import Batch, Store
from tests.support.programs import begin, engine_on, lines

LONG_AGO = -1e9


def delay_intents(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]]
) -> list[Batch]:
    """The process is stopped as soon as an intent is durable, and is continued after `meanwhile`."""
    append = engine.store.append
    delayed: list[Batch] = []

    async def stopped(done: asyncio.Future[None]) -> None:
        await done
        await meanwhile()

    def appended(batch: Batch) -> asyncio.Future[None]:
        done = append(batch)
        if all(record.kind != Performing.__name__ for record in batch.records):
            return done
        delayed.append(batch)
        return asyncio.ensure_future(stopped(done))

    monkeypatch.setattr(engine.store, "append", appended)
    return delayed


async def take_over(engine: Engine) -> None:
    await engine.store.retire(engine.driver)
    await engine.store.claim("run", "another", engine.store.now())


@pytest.mark.parametrize("beats", [False, True])
async def test_what_another_driver_may_have_repeated_is_not_begun(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    """Even if a heartbeat reaches the store before the process learns that its intent is durable."""
    engine = engine_on(store, tmp_path)

    async def taken_over() -> None:
        await take_over(engine)
        engine._confirmed = LONG_AGO
        if beats:
            await engine._send_heartbeat()

    delayed = delay_intents(engine, monkeypatch, taken_over)
    await begin(engine, "failing")
    with pytest.raises(Fenced):
        await engine.drive("run")
    assert len(delayed) == 1
    assert lines(tmp_path) == []


async def test_a_machine_that_slept_does_not_take_its_lease_for_recent(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual clock stops during sleep."""
    engine = engine_on(store, tmp_path)
    awake = boot_clock.seconds_since_boot

    async def taken_over_during_sleep() -> None:
        await take_over(engine)
        monkeypatch.setattr(boot_clock, "seconds_since_boot", lambda: awake() + 3600)

    delay_intents(engine, monkeypatch, taken_over_during_sleep)
    await begin(engine, "failing")
    with pytest.raises(Fenced):
        await engine.drive("run")
    assert lines(tmp_path) == []


async def test_a_run_that_no_one_has_claimed_continues(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_on(store, tmp_path)

    async def nothing() -> None:
        engine._confirmed = LONG_AGO

    delayed = delay_intents(engine, monkeypatch, nothing)
    await begin(engine, "nested")
    assert (await engine.drive("run")).status == "completed"
    assert len(delayed) == len(lines(tmp_path)) == 8

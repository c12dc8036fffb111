"""One driver loop: ready runs, runs that a caller waits for, and callers who stop waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.kernel.ports import Store
from cuebook.service.service import Service
from cuebook.service.worker import Worker
from tests.support.programs import Held, begin, eventually, service_on


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[Service]:
    made = service_on(store, tmp_path)
    yield made
    await made._engine.close()


async def has(service: Service, status: str, count: int) -> bool:
    return len(await service.runs(status=[status])) == count


async def test_ready_runs_are_driven(service: Service) -> None:
    worker = Worker(service, "", every=0.01)
    await worker.open()
    runs = [await begin(service._engine, "everything", f"run{number}") for number in range(5)]
    for run in runs:
        await worker.take(run)
    await eventually(lambda: has(service, "awaiting_input", 5))
    for run in runs:
        await service.answer((await service.waits(run))[0].id, "yes")
    await eventually(lambda: has(service, "completed", 5))
    await worker.until_idle()
    await worker.close()


async def test_a_caller_can_drive_a_run_beyond_the_limit_and_without_an_open_worker(service: Service) -> None:
    worker = Worker(service, "", at_once=0)
    run = await begin(service._engine, "everything")
    await worker.take(run)
    assert await worker.drive_until(run, None)
    assert (await service.row(run)).status == "awaiting_input"
    assert not worker.drives(run)
    assert await service.kept("", "served") == {}, "only an open worker keeps runs"


async def test_a_run_continues_when_its_caller_stops_waiting(store: Store, tmp_path: Path) -> None:
    service = service_on(store, tmp_path, hold=Held())
    worker = Worker(service, "", every=0.01)
    await worker.open()
    run = await begin(service._engine, "undoing", hold=True)
    await worker.take(run)
    assert not await worker.drive_until(run, time.monotonic() + 0.05)
    assert not await worker.watch_until(run, time.monotonic() + 0.05)
    assert worker.drives(run)
    assert len(worker._tasks) + len(worker._requested) == 1, "a caller and the worker share one task"
    await worker.close()
    assert not worker.drives(run)
    await service._engine.close()


async def test_a_run_that_this_process_has_not_quite_released_is_waited_for(service: Service) -> None:
    """Its claim is gone but its driver is still being dropped; trying again at once would leave the driver no time."""
    run = await begin(service._engine, "counting")
    service._engine._driving[run] = None

    async def drop() -> None:
        await asyncio.sleep(0.05)
        del service._engine._driving[run]

    dropping = asyncio.create_task(drop())
    assert (await service.drive(run)).status == "completed"
    await dropping

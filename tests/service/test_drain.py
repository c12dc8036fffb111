"""A worker that is drained: its runs continue in the next process without being asked, each where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import CallTool, Program
from cuebook.kernel.ports import Store
from cuebook.service.service import Service
from cuebook.service.worker import SERVED, Worker
from tests.support.programs import PROGRAMS, Held, append, begin, eventually, lines, service_on


async def working(store: Store, folder: Path, held: Held) -> tuple[Service, Worker]:
    service = service_on(store, folder, hold=held)
    worker = Worker(service, "", every=0.01)
    await worker.open()
    return service, worker


def holding(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """An effect that is held up between two others."""

    def start(state: Any) -> Program[Any]:
        yield append("before")
        yield CallTool("hold")
        yield append("after")

    return start


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, "holding", holding)


async def is_completed(service: Service, run: str) -> bool:
    return (await service.row(run)).status == "completed"


@pytest.mark.parametrize("early", [False, True])
async def test_the_next_worker_continues_a_run_between_two_effects(store: Store, tmp_path: Path, early: bool) -> None:
    """Even if it was open all the time, where the store is shared."""
    held = Held()
    first, draining = await working(store, tmp_path, held)
    run = await begin(first._engine, "holding")
    await draining.take(run)
    await held.entered.wait()
    second, next_worker = service_on(store, tmp_path, hold=held), None
    if early and first.is_shared:
        second, next_worker = await working(store, tmp_path, held)
    drained = asyncio.create_task(draining.drain(30))
    await asyncio.sleep(0.05)
    held.go.set()
    await drained
    assert not draining.is_driving
    assert next_worker is not None or (await first.row(run)).status == "running"
    if next_worker is None:
        _, next_worker = await working(store, tmp_path, held)
    await eventually(lambda: is_completed(second, run))
    assert (held.performed, held.interrupted, lines(tmp_path)) == (1, 0, ["before", "after"])
    await next_worker.drain(0)
    assert await second.kept("", SERVED) == {}
    for service in (first, second):
        await service._engine.close()


async def test_an_effect_that_takes_too_long_is_cut_off_and_its_run_released(store: Store, tmp_path: Path) -> None:
    held = Held()
    first, draining = await working(store, tmp_path, held)
    run = await begin(first._engine, "undoing", hold=True)
    await draining.take(run)
    await held.entered.wait()
    await draining.drain(0.05)
    row = await first.row(run)
    assert (row.status, row.driver, held.interrupted) == ("running", "", 1)
    second, next_worker = await working(store, tmp_path, held)

    async def asks() -> bool:
        return [wait.kind for wait in await second.waits(run)] == ["in_doubt"]

    await eventually(asks)
    await next_worker.close()
    for service in (first, second):
        await service._engine.close()


async def test_a_draining_worker_leaves_new_runs_to_the_next_one(store: Store, tmp_path: Path) -> None:
    held = Held()
    first, draining = await working(store, tmp_path, held)
    await draining.drain(0)
    run = await begin(first._engine, "counting")
    await draining.take(run)
    assert not await draining.drive_until(run, None)  # a caller is not kept waiting
    assert (await first.row(run)).status == "pending"
    second, next_worker = await working(store, tmp_path, held)
    await eventually(lambda: is_completed(second, run))
    await next_worker.close()
    for service in (first, second):
        await service._engine.close()

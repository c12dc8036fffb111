"""The limit on the runs of one tenant that are driven at the same time, within one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.kernel.effects import CallTool
from cuebook.kernel.errors import AtLimit, Busy
from cuebook.kernel.events import ENDED
from cuebook.kernel.outcomes import AnyOutcome, ToolResult
from cuebook.kernel.ports import Call, Store
from cuebook.service.service import Service
from cuebook.service.worker import Worker
from tests.support.programs import begin, eventually, service_on

LIMIT = 2


class Counting:
    """A tool that blocks until it is released, and counts who is inside."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside = self.most = 0

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.go.wait()
            await asyncio.sleep(0.01)
        finally:
            self.inside -= 1
        return ToolResult("done")


@pytest.fixture
def tool() -> Counting:
    return Counting()


@pytest.fixture
async def service(store: Store, tmp_path: Path, tool: Counting) -> AsyncIterator[Service]:
    made = service_on(store, tmp_path, tenant_runs=LIMIT, hold=tool)
    yield made
    await made._engine.close()


async def held(service: Service, tool: Counting, count: int = LIMIT) -> list[asyncio.Task[object]]:
    """Runs of the tenant `local` that are being driven and do not end yet."""
    tasks: list[asyncio.Task[object]] = []
    for number in range(count):
        run = await begin(service._engine, "undoing", f"held{number}", hold=True)
        tasks.append(asyncio.create_task(service.take_up(run)))

    async def inside() -> bool:
        return tool.inside == count

    await eventually(inside)
    return tasks


async def test_a_run_of_a_tenant_at_its_limit_is_not_claimed(service: Service, tool: Counting) -> None:
    tasks = await held(service, tool)
    await begin(service._engine, "undoing", "more", hold=True)
    with pytest.raises(AtLimit, match="2 of 2 runs of tenant local are being driven"):
        await service.take_up("more")
    row = await service.row("more")
    assert (row.status, row.driver, row.epoch) == ("pending", "", 0)
    assert await service.is_due("more"), "it is left ready"
    tool.go.set()
    await asyncio.gather(*tasks)
    assert (await service.take_up("more")).status == "completed"


async def test_another_tenant_has_its_own_limit(service: Service, tool: Counting) -> None:
    tasks = await held(service, tool)
    await begin(service._engine, "counting", "other", tenant="other", steps=1)
    assert (await service.take_up("other")).status == "completed"
    tool.go.set()
    await asyncio.gather(*tasks)


async def test_a_run_that_waits_for_a_person_holds_no_slot(service: Service) -> None:
    for number in range(LIMIT * 2):
        run = await begin(service._engine, "undoing", f"run{number}")
        assert (await service.take_up(run)).status == "awaiting_input"


async def test_a_run_that_fails_or_is_interrupted_frees_its_slot(service: Service, tool: Counting) -> None:
    for number in range(LIMIT + 1):
        await begin(service._engine, "failing", f"failing{number}", tool="fail")
        assert (await service.take_up(f"failing{number}")).status == "failed"
    tasks = await held(service, tool)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await begin(service._engine, "counting", "last", steps=1)
    assert (await service.take_up("last")).status == "completed"


async def test_driving_waits_and_says_why_once(service: Service, tool: Counting) -> None:
    tasks = await held(service, tool)
    await begin(service._engine, "counting", "more", steps=1)
    said: list[str] = []
    waiting = asyncio.create_task(service.drive("more", said.append))

    async def heard() -> bool:
        return bool(said)

    await eventually(heard)
    await asyncio.sleep(0.5)  # it asks several times
    assert said == ["2 of 2 runs of tenant local are being driven"]
    assert (await service.row("more")).status == "pending"
    tool.go.set()
    assert (await waiting).status == "completed"
    await asyncio.gather(*tasks)


async def test_a_run_that_has_nothing_to_do_does_not_wait_for_a_slot(service: Service, tool: Counting) -> None:
    await begin(service._engine, "undoing", "asking")
    await service.take_up("asking")
    tasks = await held(service, tool)
    assert (await service.drive("asking")).status == "awaiting_input"
    with pytest.raises(Busy):
        await service.take_up("held0")
    tool.go.set()
    await asyncio.gather(*tasks)


async def test_a_worker_passes_over_a_tenant_at_its_limit(service: Service, tool: Counting) -> None:
    """Ten runs of one tenant come first, and the worker has room for three; another tenant's run is driven all the same."""
    worker = Worker(service, "", at_once=LIMIT + 1, every=0.02)
    await worker.open()
    many = [await begin(service._engine, "undoing", f"run{number}", hold=True) for number in range(10)]
    other = await begin(service._engine, "counting", "other", tenant="other", steps=3)
    for run in (*many, other):
        await worker.take(run)

    async def passed() -> bool:
        return (await service.row(other)).status == "completed" and tool.inside == LIMIT

    await eventually(passed)
    assert [(await service.row(run)).status for run in many].count("pending") == len(many) - LIMIT
    assert worker._failures == {}
    tool.go.set()

    async def done() -> bool:
        return all([(await service.row(run)).status in ENDED for run in many])

    await eventually(done)
    assert tool.most == LIMIT
    await worker.until_idle()
    await worker.close()
    assert worker._slots == {}

"""The sweep of a worker: how soon and how often it wakes a run that no wake-up brought to a worker."""

from __future__ import annotations

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.sweep import Sweep
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore

TEXT = "name: A\nsteps:\n  - {id: a, command: cli true}\n"


class Server:
    """A dispatcher whose server can be down; it records the wake-ups that were tried."""

    def __init__(self) -> None:
        self.is_up = True
        self.tried: list[str] = []

    async def connect(self) -> None: ...

    async def wake(self, row: RunRow, *, ending: bool = False) -> bool:
        self.tried.append(row.id)
        return self.is_up

    async def has_worker(self, row: RunRow) -> bool:
        return True

    async def close(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sweep, "time", made)
    return made


async def started(count: int) -> tuple[Server, Sweep, list[str]]:
    server = Server()
    service = Service(MemoryStore(), {}, dispatcher=server)
    runs = [(await service.start(Playbook.from_text(TEXT, "inline"), {}, Settings())).id for _ in range(count)]
    server.tried.clear()
    made = Sweep(service, lambda: True)
    assert await made.look() == [], "their wake-ups are on their way"
    return server, made, runs


async def test_after_an_outage_a_run_is_woken_without_the_delay_of_failed_attempts(clock: Clock) -> None:
    server, made, (run,) = await started(1)
    server.is_up = False
    clock.now += 2 * sweep.GRACE
    for _ in range(50):
        assert await made.look() == []
        clock.now += sweep.EVERY
    assert server.tried == [run] * 50
    server.is_up = True
    assert await made.look() == [run]


async def test_a_run_that_stays_ready_is_woken_less_and_less_often(clock: Clock) -> None:
    _, made, (run,) = await started(1)
    clock.now += 2 * sweep.GRACE
    for delay in (10, 20, 40, 80, 160, 300, 300):
        assert await made.look() == [run]
        clock.now += delay - 1
        assert await made.look() == []
        clock.now += 1


async def test_a_sweep_that_meets_an_outage_tries_one_run_and_the_next_sweep_another(clock: Clock) -> None:
    server, made, runs = await started(3)
    server.is_up = False
    clock.now += 2 * sweep.GRACE
    for _ in range(3):
        await made.look()
        clock.now += sweep.EVERY
    assert sorted(server.tried) == sorted(runs)
    server.is_up = True
    assert sorted(await made.look()) == sorted(runs)

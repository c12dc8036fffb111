"""Slots of a limit within one process: waiters are served in order, and every way out frees what was taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from cuebook.kernel.engine.slots import DriverSlots
from cuebook.kernel.errors import StoreError
from cuebook.kernel.ports import Store
from cuebook.stores.memory import MemoryStore
from tests.support.programs import eventually


def slots_of(store: Store, driver: str = "d1") -> DriverSlots:
    async def beat() -> None:
        await store.heartbeat(driver, 0.0)

    return DriverSlots(store, driver, beat)


@pytest.fixture
async def slots(store: Store) -> AsyncIterator[DriverSlots]:
    made = slots_of(store)
    yield made
    await made.close()


def unsaid() -> None:
    raise AssertionError("nothing has to wait here")


async def is_free(store: Store, name: str = "x", most: int = 1) -> int | None:
    await store.heartbeat("another", 0.0)
    slot = await store.take_slot(name, most, "another")
    if slot is not None:
        await store.free_slot(slot)
    return slot


async def test_a_slot_is_held_within_the_block_and_free_afterwards(store: Store, slots: DriverSlots) -> None:
    async with slots.hold("x", 1, unsaid):
        assert await is_free(store) is None
    await eventually(lambda: is_free(store))


async def test_waiters_are_served_in_order_and_each_hears_once_that_it_waits(slots: DriverSlots) -> None:
    order: list[int] = []
    waiting: list[int] = []

    async def work(number: int) -> None:
        async with slots.hold("x", 1, lambda: waiting.append(number)):
            order.append(number)
            await asyncio.sleep(0)

    async with slots.hold("x", 1, unsaid):
        tasks = [asyncio.create_task(work(number)) for number in range(5)]
        await eventually(lambda: _value(len(waiting) == 5))
        assert not order
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]
    assert sorted(waiting) == [0, 1, 2, 3, 4]


async def test_two_processes_never_hold_more_together(shared_store: Store) -> None:
    """Two drivers, each with its own queue, as in two processes."""
    held = most = 0
    all_taken = asyncio.Event()

    async def work(slots: DriverSlots) -> None:
        nonlocal held, most
        async with slots.hold("x", 3, lambda: None):
            held += 1
            most = max(most, held)
            if held == 3:
                all_taken.set()
            await all_taken.wait()
            await asyncio.sleep(0.005)
            held -= 1

    drivers = [slots_of(shared_store, "d1"), slots_of(shared_store, "d2")]
    await asyncio.gather(*(work(slots) for slots in drivers for _ in range(12)))
    assert most == 3
    for slots in drivers:
        await slots.close()
    assert await is_free(shared_store, most=1)


@pytest.mark.parametrize("moment", ["waiting", "holding"])
async def test_a_cancelled_holder_or_waiter_leaves_nothing_taken(store: Store, slots: DriverSlots, moment: str) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with slots.hold("x", 1, reached.set if moment == "waiting" else unsaid):
            reached.set()
            await asyncio.sleep(60)

    other = await slots.take("x", 1) if moment == "waiting" else None
    task = asyncio.create_task(work())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if other is not None:
        assert await is_free(store) is None
        slots.free(other)
    await eventually(lambda: is_free(store))


async def test_a_waiter_that_is_cancelled_while_the_store_takes_its_slot_gives_it_back() -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def take_slot(self, *values: Any, **named: Any) -> int | None:
            begun.set()
            await going.wait()
            return await super().take_slot(*values, **named)

    store = Slow()
    task = asyncio.create_task(slots_of(store).take("x", 1))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    going.set()
    await eventually(lambda: is_free(store))


async def test_a_slot_that_cannot_be_freed_is_freed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuebook.kernel.engine.slots._AFTER_FAILURE", 0.01)
    failures = [StoreError("The network is down."), StoreError("The network is still down.")]

    class Failing(MemoryStore):
        async def free_slot(self, slot: int) -> None:
            if failures:
                raise failures.pop()
            await super().free_slot(slot)

    store = Failing()
    slots = slots_of(store)
    async with slots.hold("x", 1, unsaid):
        pass
    await eventually(lambda: is_free(store))
    assert not failures


async def test_a_waiter_survives_a_store_that_cannot_be_reached_for_a_while() -> None:
    failures = [StoreError("The network is down.")]

    class Failing(MemoryStore):
        async def take_slot(self, *values: Any, **named: Any) -> int | None:
            if failures:
                raise failures.pop()
            return await super().take_slot(*values, **named)

    async with slots_of(Failing()).hold("x", 1, lambda: None):
        assert not failures


async def test_a_slot_that_lasts_is_not_freed_at_the_end(store: Store, slots: DriverSlots) -> None:
    async with slots.hold("x", 1, unsaid, lasts=60.0):
        pass
    assert await is_free(store) is None


async def test_a_limit_that_was_just_reached_is_not_asked_about_again() -> None:
    asked = 0

    class Counting(MemoryStore):
        async def take_slot(self, *values: Any, **named: Any) -> int | None:
            nonlocal asked
            asked += 1
            return await super().take_slot(*values, **named)

    slots = slots_of(Counting())
    first = await slots.take("x", 1)
    assert first is not None
    for _ in range(20):
        assert await slots.take("x", 1) is None
    assert asked < 10
    await slots.free(first)
    assert await slots.take("x", 1) is not None, "a slot that was freed here can be taken at once"


def _value(value: Any) -> Awaitable[Any]:
    async def given() -> Any:
        return value

    return given()

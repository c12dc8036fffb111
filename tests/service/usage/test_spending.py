"""What runs use is counted once, with the records that cause it, and outlives the runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import Fenced
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Signal
from cuebook.kernel.spending import Spending
from cuebook.service.copies.transfer import copy_decisions
from cuebook.service.usage import UsageReport
from cuebook.stores.memory import MemoryStore
from tests.service.budgets.spenders import ADMIN, Clock, Priced, spend, spender
from tests.support.shared_stores import SharedStore, open_shared


async def used(store: Store) -> list[tuple[str, ...]]:
    return [
        (row.day, row.owner, row.playbook, row.model, f"{row.runs}+{row.calls}", f"{row.cost:g}?{row.unknown_costs}")
        for row in await store.spending()
    ]


async def total(store: Store) -> Spending:
    return await store.spent("local", "", "9999")


async def test_each_call_counts_for_its_day_person_playbook_and_model(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    assert await spend(service, "a", n=3) == "completed"
    assert await spend(service, "b", owner="bob") == "completed"
    assert await used(store) == [
        ("2026-03-10", "ann", "talking", "", "1+0", "0?0"),
        ("2026-03-10", "ann", "talking", "lab/one", "0+3", "3?0"),
        ("2026-03-10", "bob", "talking", "", "1+0", "0?0"),
        ("2026-03-10", "bob", "talking", "lab/one", "0+1", "1?0"),
    ]
    found = await total(store)
    assert (found.input, found.output, found.cached, found.reasoning) == (40, 160, 16, 80)


async def test_a_day_begins_at_midnight_in_the_time_zone_and_a_call_counts_when_it_began(
    store: Store, tmp_path: Path
) -> None:
    clock = Clock("2026-03-29 00:30", "Europe/Berlin")
    model = Priced()

    async def until_tomorrow() -> None:
        clock.set("2026-03-30 00:10")

    service = spender(store, tmp_path, model, clock, "Europe/Berlin")
    await spend(service, "early")  # still the day before in UTC
    clock.set("2026-03-29 23:50")
    model.before = until_tomorrow
    await spend(service, "late")
    assert {row.day for row in await store.spending()} == {"2026-03-29"}
    assert (await total(store)).unknown_costs == 0


async def test_a_fork_and_a_replay_count_only_what_they_ask_again(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced())
    await spend(service, "run", name="everything")
    await service.answer((await store.waits())[0].id, "yes")
    await service._engine.drive("run")
    before = await total(store)
    await service._engine.replay("run")
    await service._engine.verify("run")
    fork = await service.restart("run", "3")
    await service._engine.drive(fork.id)
    after = await total(store)
    assert (before.calls, after.calls) == (2, 3)
    assert (before.runs, after.runs) == (1, 2)


async def test_a_child_counts_once_for_the_playbook_that_was_started(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced())
    await spend(service, "run", name="calling")
    await service.answer((await store.waits())[0].id, "yes")
    await service._engine.drive("run")
    row = await store.run("run")
    assert (row.totals.calls, (await total(store)).calls) == (2, 2)
    assert {(one.playbook, one.runs) for one in await store.spending()} == {("calling", 1), ("calling", 0)}


async def test_a_voided_call_and_its_repetition_both_count(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced())
    await spend(service, "run", name="failing after a call")
    await service.retry("run", whole_step=True)
    await service._engine.drive("run")
    assert (await total(store)).calls == 2


async def test_a_refused_call_costs_nothing_and_a_lost_one_is_unknown(store: Store, tmp_path: Path) -> None:
    model = Priced()
    service = spender(store, tmp_path, model)
    await spend(service, "refused", prompt="refused")
    assert ((await total(store)).calls, (await total(store)).unknown_costs) == (0, 0)
    asked = asyncio.Event()

    async def forever() -> None:
        asked.set()
        await asyncio.Event().wait()

    model.before = forever
    driving = asyncio.create_task(spend(service, "run"))
    await asked.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    assert (await total(store)).unknown_costs == 1
    model.before = None
    await service._engine.drive("run")
    found = await total(store)
    assert (found.calls, found.cost, found.unknown_costs) == (1, 1.0, 1)
    assert found.unknown_costs == (await store.run("run")).totals.unknown_costs


async def test_what_was_used_stays_when_runs_are_deleted(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced())
    await spend(service, "run", n=2)
    await service.retention.delete("run", ADMIN)
    assert ((await total(store)).runs, (await total(store)).cost) == (1, 2.0)


async def test_erasing_a_persons_data_makes_what_they_used_anonymous(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    await spend(service, "mine")
    await spend(service, "theirs", owner="bob")
    await service.retention.erase(ADMIN, owner="ann", dry_run=True)
    assert {row.owner for row in await store.spending()} == {"ann", "bob"}
    await service.retention.erase(ADMIN, owner="ann")
    await spend(service, "again")
    await service.retention.erase(ADMIN, owner="ann")
    rows = [row for row in await store.spending() if row.model]
    assert {(row.owner, row.cost) for row in rows} == {("", 2.0), ("bob", 1.0)}
    report = await service.usage(ADMIN)
    assert [group.name for group in report.by("person")] == ["", "bob"]


async def test_a_copy_of_the_store_has_it_too_and_once(store: Store, tmp_path: Path) -> None:
    target = MemoryStore()
    service = spender(store, tmp_path, Priced())
    await spend(service, "run")
    for _ in range(2):
        await copy_decisions(store, target)
    assert await target.spending() == await store.spending()


async def test_a_driver_that_was_replaced_adds_nothing(shared_store: SharedStore, tmp_path: Path) -> None:
    model, store, second = Priced(), shared_store, open_shared(tmp_path)
    service, other = spender(store, tmp_path, model), spender(second, tmp_path, Priced())

    async def lose_it() -> None:
        while not any(row.model for row in await store.spending()):  # until the record of the call is durable
            await asyncio.sleep(0)
        await store.retire(service._engine.driver)
        model.before = None
        await other._engine.drive("run")

    model.before = lose_it
    with pytest.raises(Fenced):
        await spend(service, "run")
    found = await total(store)
    assert (found.calls, found.cost, found.unknown_costs) == (1, 1.0, 1)
    await second.close()


async def report(store: Store, tmp_path: Path, who: Principal, **days: Any) -> UsageReport:
    clock = Clock()
    service = spender(store, tmp_path, Priced(), clock)
    for run, owner, at in (
        ("a", "ann", "2026-03-08 10:00"),
        ("b", "bob", "2026-03-09 10:00"),
        ("c", "ann", "2026-03-10 10:00"),
    ):
        clock.set(at)
        await spend(service, run, owner, n=2 if owner == "bob" else 1)
    return await service.usage(who, **days)


async def test_a_report_has_every_day_and_the_most_expensive_first(store: Store, tmp_path: Path) -> None:
    found = await report(store, tmp_path, ADMIN, since="2026-03-07", until="2026-03-10")
    assert [(day.name, day.used.cost) for day in found.by("day")] == [
        ("2026-03-07", 0), ("2026-03-08", 1), ("2026-03-09", 2), ("2026-03-10", 1)
    ]  # fmt: skip
    assert [(one.name, one.used.cost) for one in found.by("person")] == [("ann", 2.0), ("bob", 2.0)]
    assert [one.name for one in found.by("model")] == ["lab/one"]
    assert (found.total.used.cost, found.total.used.runs) == (4.0, 3)


async def test_a_person_sees_only_what_they_used(store: Store, tmp_path: Path) -> None:
    found = await report(store, tmp_path, Principal("ann", roles=frozenset({"viewer"})), since="2026-03-01")
    assert [one.name for one in found.by("person")] == ["ann"]
    assert found.total.used.cost == 2.0


async def test_signals_and_answers_add_nothing(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced())
    await spend(service, "run", name="everything")
    before = await total(store)
    await store.signal(Signal("run", "cancel", {}, "me"))
    await service._engine.drive("run")
    assert await total(store) == before

"""What a store counts, alike in every store."""

from __future__ import annotations

from cuebook.kernel.ports import Job, JobCount, Store
from tests.support.records import claim, create, driven, wait_row


async def test_an_empty_store_has_nothing(store: Store) -> None:
    tally = await store.tally(100.0)
    assert (tally.runs, tally.queued, tally.waits, tally.jobs) == ({}, 0, {}, {})


async def test_runs_waits_and_jobs_of_all_tenants_are_counted(store: Store) -> None:
    for run in ("r1", "r2", "r3"):
        await create(store, run)
    writer = await claim(store, "r1")
    await store.append(writer.batch(*driven(), opened=[wait_row("w1", "r1", kind="approval"), wait_row("w2", "r1")]))
    jobs = (("late", 40.0, "local"), ("later", 90.0, "other"), ("soon", 101.0, "local"), ("never", None, "local"))
    for name, due, tenant in jobs:
        await store.put_job(Job(tenant=tenant, kind="schedule", name=name, due=due))
    await store.put_job(Job(tenant="local", kind="message", name="one", due=None))
    tally = await store.tally(100.0)
    assert sum(tally.runs.values()) == 3
    assert tally.runs["pending"] >= 2
    assert tally.queued == 2, "one of them is driven"
    assert tally.waits == {"approval": 1, "question": 1}
    assert tally.jobs == {"schedule": JobCount(4, 2, 60.0), "message": JobCount(1, 0, 0.0)}

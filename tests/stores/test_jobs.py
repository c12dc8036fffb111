"""Jobs: kept, taken by one process, and added together with the records that they follow from."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from cuebook.kernel.errors import Fenced
from cuebook.kernel.events import Checkpointed
from cuebook.kernel.ports import Job, Store
from cuebook.service.job_runner import JobRunner
from tests.support.programs import eventually
from tests.support.records import claim, create


def job(name: str = "one", due: float | None = 10.0, tenant: str = "local", **body: Any) -> Job:
    return Job(tenant=tenant, kind="schedule", name=name, due=due, body=body)


async def test_a_new_job_does_not_replace_another_of_its_name(store: Store) -> None:
    first = await store.put_job(job(n=1))
    assert first is not None
    assert await store.put_job(job(n=2)) is None
    assert await store.job("local", "schedule", "one") == first
    assert await store.job("other", "schedule", "one") is None


async def test_only_the_first_of_two_changes_takes_effect(store: Store) -> None:
    known = await store.put_job(job())
    assert known is not None
    changed = await store.put_job(msgspec.structs.replace(known, due=20.0))
    assert changed is not None
    assert await store.put_job(msgspec.structs.replace(known, due=30.0)) is None
    assert not await store.drop_job(known)
    assert await store.job("local", "schedule", "one") == changed
    assert await store.drop_job(changed)
    assert await store.job("local", "schedule", "one") is None


async def test_a_job_that_is_due_is_taken_once(store: Store) -> None:
    for name, due in (("late", 3.0), ("early", 1.0), ("later", 99.0), ("never", None)):
        await store.put_job(job(name, due))
    taken = await store.take_jobs(["schedule"], 5.0, 35.0)
    assert [one.name for one in taken] == ["early", "late"]
    assert [one.due for one in taken] == [1.0, 3.0]
    assert await store.take_jobs(["schedule"], 5.0, 35.0) == []
    assert await store.next_due(["schedule"]) == 35.0
    assert [one.name for one in await store.take_jobs(["schedule"], 35.0, 65.0)] == ["early", "late"]
    assert not await store.drop_job(taken[0])


async def test_jobs_are_listed_by_tenant_and_page(store: Store) -> None:
    for name in ("c", "a", "b"):
        await store.put_job(job(name))
    await store.put_job(job("x", tenant="other"))
    assert [one.name for one in await store.jobs("schedule", "local", limit=2)] == ["a", "b"]
    assert [one.name for one in await store.jobs("schedule", "local", after="b")] == ["c"]
    assert [one.tenant for one in await store.jobs("schedule")] == ["local"] * 3 + ["other"]
    assert await store.jobs_named("schedule", "b") == [await store.job("local", "schedule", "b")]
    assert await store.jobs_named("webhook", "b") == []
    assert await store.next_due(["message"]) is None


async def test_jobs_are_added_with_the_records_they_follow_from(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(Checkpointed({}, {}), jobs=[job(n=1)]))
    kept = await store.job("local", "schedule", "one")
    assert kept is not None
    assert (kept.body, kept.version) == ({"n": 1}, 1)
    await store.append(writer.batch(Checkpointed({}, {}), jobs=[job(n=2)]))
    assert await store.job("local", "schedule", "one") == kept


async def test_a_replaced_driver_adds_no_jobs(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await claim(store)
    with pytest.raises(Fenced):
        await store.append(writer.batch(Checkpointed({}, {}), jobs=[job()]))
    assert await store.job("local", "schedule", "one") is None


async def test_a_runner_does_what_is_due_and_keeps_what_the_handler_returns(store: Store) -> None:
    now = store.now()
    await store.put_job(job("again", now - 5))
    await store.put_job(job("done", now - 4))
    await store.put_job(job("later", now + 900))
    seen: list[str] = []

    async def handle(one: Job) -> Job | None:
        seen.append(one.name)
        return msgspec.structs.replace(one, due=now + 500) if one.name == "again" else None

    runner = JobRunner(store, {"schedule": handle})
    await runner.once()
    await runner.settled()
    assert seen == ["again", "done"]
    assert {one.name: one.due for one in await store.jobs("schedule")} == {"again": now + 500, "later": now + 900}


async def test_a_job_whose_handler_fails_is_tried_again_later(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await store.put_job(job(due=store.now()))

    async def fail(one: Job) -> Job | None:
        raise RuntimeError("no")

    runner = JobRunner(store, {"schedule": fail})
    await runner.once()
    await runner.settled()
    kept = await store.job("local", "schedule", "one")
    assert kept is not None
    assert kept.due is not None
    assert kept.due > store.now()
    assert "schedule one failed" in caplog.text


async def test_a_long_job_is_kept_from_others_while_it_lasts(store: Store) -> None:
    await store.put_job(job(due=store.now()))
    begun, end = 0, asyncio.Event()

    async def wait(one: Job) -> Job | None:
        nonlocal begun
        begun += 1
        await end.wait()
        return None

    runners = [JobRunner(store, {"schedule": wait}, held=1.2, look=0.05) for _ in range(2)]
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    await asyncio.sleep(1.8)  # longer than it is held for
    assert begun == 1
    end.set()

    async def gone() -> bool:
        return await store.job("local", "schedule", "one") is None

    await eventually(gone)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert begun == 1

"""Notices are put in the transaction of the records that they follow from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.notices import NOTICE, notice, notices_of
from cuebook.kernel.ports import Job, Outbox, Store
from cuebook.kernel.run import Signal
from tests.support.programs import begin, engine_on

_NOTICES: tuple[Outbox, ...] = (notices_of,)


async def notices(store: Store) -> list[Job]:
    return sorted(await store.jobs(NOTICE), key=lambda job: job.body["at"])


def engine(store: Store, folder: Path) -> Engine:
    return engine_on(store, folder, outboxes=_NOTICES)


async def test_a_run_that_begins_to_wait_for_a_person_puts_one_notice(store: Store, tmp_path: Path) -> None:
    drives = engine(store, tmp_path)
    await drives.drive(await begin(drives, "undoing"))
    (wait,) = await store.waits(run="run")
    (put,) = await notices(store)
    assert (put.tenant, put.name, put.due) == ("local", wait.id, wait.opened)
    told = {"what": "waiting", "run": "run", "wait": wait.id, "playbook": "undoing", "owner": "me", "text": "Keep?"}
    assert put.body == {"at": wait.opened, **told}
    await drives.close()


async def test_each_end_of_a_run_is_a_notice(store: Store, tmp_path: Path) -> None:
    drives = engine(store, tmp_path)
    await drives.drive(await begin(drives, "counting", "done"))
    await drives.drive(await begin(drives, "failing", "broken", tool="fail"))
    await drives.drive(await begin(drives, "undoing", "left"))
    await store.signal(Signal("left", "cancel", {}, "me"))
    await drives.drive("left")
    put = [(job.body["run"], job.body["what"], job.body.get("text", "")) for job in await notices(store)]
    assert put[0] == ("done", "ended", "")
    assert put[1] == ("broken", "failed", "the tool refused fragile")
    assert put[2][:2] == ("left", "waiting")
    assert put[3][:2] == ("left", "ended")
    await drives.close()


async def test_waits_for_a_time_or_a_message_are_no_notice(store: Store, tmp_path: Path) -> None:
    drives = engine(store, tmp_path)
    await drives.drive(await begin(drives, "waiting", seconds=0))
    assert (await store.run("run")).status == "paused"
    assert await notices(store) == []
    await drives.close()


async def test_a_child_run_is_reported_by_the_run_that_started_it(store: Store, tmp_path: Path) -> None:
    drives = engine(store, tmp_path)
    await drives.drive(await begin(drives, "calling", child="failing"))
    put = [(job.body["run"], job.body["what"]) for job in await notices(store)]
    assert put == [("run", "failed")]
    await drives.close()


async def test_nothing_is_put_when_there_is_no_outbox(store: Store, tmp_path: Path) -> None:
    drives = engine_on(store, tmp_path)
    await drives.drive(await begin(drives, "undoing"))
    assert await notices(store) == []
    await drives.close()


async def test_of_two_notices_with_one_key_the_first_counts(store: Store) -> None:
    first = notice("local", "budget", at=5.0, key="march", owner="ana", text="80 % of 100 EUR")
    assert await store.put_job(first) is not None
    assert await store.put_job(notice("local", "budget", at=6.0, key="march", text="90 %")) is None
    (put,) = await notices(store)
    assert put.body == {"at": 5.0, "what": "budget", "owner": "ana", "text": "80 % of 100 EUR"}


@pytest.mark.parametrize("length", [400, 401, 10_000])
def test_a_notice_keeps_the_beginning_of_a_long_text(length: int) -> None:
    text = str(notice("local", "failed", at=1.0, key="k", text="x" * length).body["text"])
    assert len(text) == 400
    assert text.endswith("…") == (length > 400)

"""Concurrent writes are committed together; a failed write does not affect others; no write is left pending."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.errors import Fenced, StoreError
from cuebook.kernel.events import ValueSet
from cuebook.stores.sqlite import SqliteStore, group_commit
from cuebook.stores.sqlite.group_commit import Writer
from tests.support.records import RecordWriter, claim, create, driven, numbers, wait_row


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many writes each commit contained."""
    counted: list[int] = []
    attempt = Writer._attempt

    def counting(self: Writer[Any], writes: list[Any], begun: bool) -> None:
        counted.append(len(writes))
        attempt(self, writes, begun)

    monkeypatch.setattr(Writer, "_attempt", counting)
    return counted


async def pens_of(store: SqliteStore, number: int) -> list[RecordWriter]:
    await asyncio.gather(*(create(store, f"run{n}") for n in range(number)))
    return [await claim(store, f"run{n}") for n in range(number)]


async def test_many_appends_are_few_commits(file_store: SqliteStore, commits: list[int]) -> None:
    writers = await pens_of(file_store, 50)
    commits.clear()
    for _ in range(4):
        await asyncio.gather(*(file_store.append(writer.batch(*driven())) for writer in writers))
    assert sum(commits) == 200
    assert len(commits) < 50
    for writer in writers:
        assert await numbers(file_store, writer.run) == [1, 2, 3, 4, 5]


async def test_one_bad_write_does_not_affect_others(file_store: SqliteStore, commits: list[int]) -> None:
    good, bad, stale, last = await pens_of(file_store, 4)
    stale.epoch = 0
    lone = bad.batch(*driven())
    lone.texts = {"digest": "\ud800"}
    commits.clear()
    results = await asyncio.gather(
        file_store.append(good.batch(*driven())),
        file_store.append(lone),
        file_store.append(stale.batch(*driven())),
        file_store.append(last.batch(*driven(), opened=[wait_row(run="run3")])),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), StoreError, Fenced, type(None)]
    assert commits[0] == 4, "they were tried together first"
    assert [len(await numbers(file_store, writer.run)) for writer in (good, bad, stale, last)] == [2, 1, 1, 2]
    assert [wait.id for wait in await file_store.waits()] == ["w"]


async def test_after_a_bad_write_the_next_one_is_fine(file_store: SqliteStore) -> None:
    (writer,) = await pens_of(file_store, 1)
    bad = RecordWriter("run0", writer.epoch, (writer.seq, writer.chain)).batch(*driven())
    bad.texts = {"digest": "\ud800"}
    with pytest.raises(StoreError, match="could not be stored"):
        await file_store.append(bad)
    await file_store.append(writer.batch(*driven()))
    assert await numbers(file_store, "run0") == [1, 2]


async def test_a_write_is_kept_if_another_in_its_commit_is_refused(file_store: SqliteStore) -> None:
    first, second = await pens_of(file_store, 2)
    second.epoch = 99
    done, refused = file_store.append(first.batch(*driven())), file_store.append(second.batch(*driven()))
    await done
    with pytest.raises(Fenced):
        await refused


async def test_slow_commits_move_to_a_thread_and_come_back(
    file_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    where: list[str] = []
    attempt = Writer._attempt

    def noting(self: Writer[Any], writes: list[Any], begun: bool) -> None:
        where.append(threading.current_thread().name)
        attempt(self, writes, begun)

    (writer,) = await pens_of(file_store, 1)
    monkeypatch.setattr(Writer, "_attempt", noting)
    monkeypatch.setattr(group_commit, "SLOW", -10.0)
    for _ in range(3):
        await file_store.append(writer.batch(*driven()))
    assert all(name.startswith("cuebook-writer") for name in where[1:])
    monkeypatch.setattr(group_commit, "SLOW", 10.0)
    for _ in range(3):
        await file_store.append(writer.batch(*driven()))
    assert where[-2:] == ["MainThread", "MainThread"]
    assert await numbers(file_store, "run0") == list(range(1, 8))


@pytest.mark.parametrize("slow", [False, True])
async def test_closing_finishes_what_was_submitted(slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "store.db")
    (writer,) = await pens_of(store, 1)
    if slow:
        attempt = Writer._attempt

        def dawdling(self: Writer[Any], writes: list[Any], begun: bool) -> None:
            time.sleep(0.02)
            attempt(self, writes, begun)

        monkeypatch.setattr(Writer, "_attempt", dawdling)
        await store.append(writer.batch(*driven()))
    under_way = store.append(writer.batch(*driven()))
    if slow:
        await asyncio.sleep(0)
    waiting = store.append(writer.batch(*driven()))
    refused = store.append(RecordWriter("run0", 99).batch(*driven()))
    last = writer.seq
    await store.close()
    async with asyncio.timeout(5):
        await under_way
        await waiting
        with pytest.raises(Fenced):
            await refused
    with pytest.raises(StoreError, match="closed"):
        store.append(writer.batch(*driven()))
    again = SqliteStore(tmp_path / "store.db")
    assert (await numbers(again, "run0"))[-1] == last
    await again.close()


async def test_a_write_is_stored_even_if_no_one_waits_for_it(file_store: SqliteStore) -> None:
    (writer,) = await pens_of(file_store, 1)
    file_store.append(writer.batch(*driven())).cancel()
    await file_store.append(writer.batch(ValueSet("a", 1)))
    assert await numbers(file_store, "run0") == [1, 2, 3]

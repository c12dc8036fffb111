"""Removing runs from a SQLite file: in short transactions, overwritten on the disk, and found by an older store's migration."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.events import ArtifactMade, Checkpointed
from cuebook.kernel.ports import Removal
from cuebook.stores.sqlite import SqliteStore, removals
from tests.support.older_stores import take_back
from tests.support.programs import new_row
from tests.support.records import RecordWriter, create, driven, long

SECRET = "ann@example.com lives in Rome. "


def removal(run: str) -> Removal:
    return Removal(
        run=run, tenant="local", what="deleted", name="hand", created=1.0, status="completed", by="ann", at=2.0
    )


def stored(store: SqliteStore) -> bytes:
    """What is in the file and in its log."""
    return store.path.read_bytes() + Path(f"{store.path}-wal").read_bytes()


async def swept(store: SqliteStore) -> int:
    """Frees everything; returns in how many transactions."""
    count = 1
    while (await store.sweep(store.now())).more:
        count += 1
    return count


async def test_what_is_deleted_is_not_in_the_file_any_more(file_store: SqliteStore) -> None:
    writer = RecordWriter("run")
    short, texts = ArtifactMade(Text(SECRET)), [ArtifactMade(Text(SECRET * number)) for number in (100, 500)]
    row = new_row("hand", "run")
    row.playbook = digest_of(SECRET)
    await file_store.create(row, SECRET, writer.batch(*driven(), short, *texts))
    await file_store.put_piece("local", "f", 0, SECRET.encode() * 1000)
    await create(file_store, "other")
    files = [file_store.path, Path(f"{file_store.path}-wal")]
    assert any(SECRET.encode() in one.read_bytes() for one in files)
    file_store._connection.execute("INSERT INTO files VALUES ('local', 'f', 1, 0)")
    await file_store.remove([removal("run")], force=True)
    await swept(file_store)
    assert not any(SECRET.encode() in one.read_bytes() for one in files)


async def test_what_is_forgotten_has_left_no_copy_where_rows_were_moved(file_store: SqliteStore) -> None:
    chance, values = random.Random(2), {}
    for number in range(300):
        name = f"{chance.randrange(1 << 60):x}"
        await file_store.keep("local", "sensitive", name, {"at": 1})
        values[name] = f"the value of {name} " + "x" * chance.choice([10, 200, 1500])
        await file_store.keep("local", f"sensitive:{name}", "inputs", {"values": values[name]})
        if number % 2 and number > 20:
            await file_store.forget("local", f"sensitive:{list(values)[number - 20]}", "inputs", overwrite=True)
    for name in values:
        await file_store.forget("local", f"sensitive:{name}", "inputs", overwrite=True)
    found = stored(file_store)
    assert [name for name in values if f"the value of {name}".encode() in found] == []


async def test_a_log_that_is_in_use_is_emptied_by_the_next_sweep(file_store: SqliteStore) -> None:
    await file_store.keep("local", "sensitive:run", "inputs", {"values": SECRET})
    reader = sqlite3.connect(file_store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM kept").fetchall()
    await file_store.forget("local", "sensitive:run", "inputs", overwrite=True)
    await swept(file_store)
    assert SECRET.encode() in stored(file_store), "as long as someone reads it"
    reader.close()
    await swept(file_store)
    assert SECRET.encode() not in stored(file_store)


async def test_one_transaction_removes_only_so_much(file_store: SqliteStore) -> None:
    writer = RecordWriter("run")
    steps = [Checkpointed({"n": number}, {}) for number in range(2000)]
    await file_store.create(new_row("hand", "run"), "text", writer.batch(*steps, ArtifactMade(long())))
    await file_store.remove([removal("run")], force=True)
    file_store._removals._pace.budget = 0.0005
    first = await file_store.sweep(file_store.now())
    assert first.more
    assert first.rows < 2000
    await create(file_store, "next")
    assert [record.seq async for record in file_store.records("next")] == [1], "another run takes none of them"
    file_store._removals._pace.budget = 0.0005
    assert await swept(file_store) > 1
    assert file_store._all("SELECT count(*) FROM records", ()) == [(1,)]


def test_transactions_become_shorter_while_they_take_long() -> None:
    pace = removals.Pace()
    pace.took(0.005)
    assert pace.budget == removals.BUDGET, "never more than at first"
    pace.took(0.05)
    assert pace.budget == removals.BUDGET / 2
    for _ in range(20):
        pace.took(0.05)
    assert 0 < pace.budget < removals.BUDGET / 4, "something is always done"
    for _ in range(40):
        pace.took(0.001)
    assert pace.budget == removals.BUDGET


async def test_references_of_an_older_store_are_found_in_its_journals(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "old.db")
    shared = ArtifactMade(long("s"))
    for run in ("one", "two"):
        await store.create(new_row("hand", run), f"text of {run}", RecordWriter(run).batch(*driven(), shared))
    await store.close()
    take_back(tmp_path / "old.db", version=8)
    store = SqliteStore(tmp_path / "old.db")
    await store.remove([removal("one")], force=True)
    await swept(store)
    assert store.text(digest_of(str(long("s")))) == str(long("s"))
    await store.remove([removal("two")], force=True)
    await swept(store)
    with pytest.raises(Exception, match="purged"):
        store.text(digest_of(str(long("s"))))
    await store.close()


async def test_a_playbook_of_an_older_store_goes_with_its_last_run(tmp_path: Path) -> None:
    async def add(store: SqliteStore, *runs: str) -> None:
        for run in runs:
            row = new_row("hand", run)
            row.playbook = digest_of("the text")
            await store.create(row, "the text", RecordWriter(run).batch(*driven()))

    store = SqliteStore(tmp_path / "old.db")
    await add(store, "one", "two")
    await store.close()
    take_back(tmp_path / "old.db", version=10)
    store = SqliteStore(tmp_path / "old.db")
    await add(store, "three")
    for run in ("two", "one", "three"):
        assert await store.playbook(digest_of("the text")) == "the text"
        await store.remove([removal(run)], force=True)
    assert store._all("SELECT count(*) FROM playbooks", ()) == [(0,)]
    await add(store, "four")
    assert await store.playbook(digest_of("the text")) == "the text"
    await store.close()

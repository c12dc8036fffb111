"""The file of a SQLite store: its mode, its permissions and its versions."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuebook.kernel.errors import Busy, StoreDamaged, StoreError, StoreTooNew
from cuebook.kernel.events import ArtifactMade
from cuebook.kernel.run import Signal
from cuebook.stores.sqlite import SqliteStore
from cuebook.stores.sqlite import database as sqlite
from cuebook.stores.sqlite.schema import MIGRATIONS
from tests.support.records import claim, create, driven, killed, long, numbers


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def version_of(path: Path) -> int:
    connection = raw(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(version)


@pytest.mark.parametrize(("setting", "number"), [(None, 2), ("FULL", 2), ("NORMAL", 1)])
async def test_a_store_is_in_wal_mode_and_flushes_as_configured(
    setting: str | None, number: int, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, synchronous=setting) if setting else SqliteStore(path)  # type: ignore[arg-type]
    for connection in (store._connection, store._reader):
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (number,)
    await store.close()


async def test_only_the_owner_can_read_a_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "deep" / "down" / "store.db")
    await create(store)
    files = sorted((tmp_path / "deep" / "down").iterdir())
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    await store.close()


async def test_a_long_text_takes_one_row(file_store: SqliteStore) -> None:
    await create(file_store)
    writer = await claim(file_store)
    for _ in range(3):
        await file_store.append(writer.batch(ArtifactMade(long())))
    connection = raw(file_store.path)
    assert connection.execute("SELECT count(*) FROM texts").fetchone() == (1,)
    connection.close()


# --- versions ---------------------------------------------------------------------------------------------


async def test_an_older_store_is_upgraded_and_keeps_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await create(store)
    await store.append((await claim(store)).batch(*driven(3)))
    await store.close()
    newer = (
        *MIGRATIONS,
        "CREATE TABLE extra (name TEXT); -- with a comment; and a semicolon in it\nCREATE TABLE more (x);",
    )
    monkeypatch.setattr(sqlite, "MIGRATIONS", newer)
    store = SqliteStore(path)
    assert await numbers(store) == [1, 2, 3, 4]
    assert (await store.run("run")).name == "hand"
    await store.close()
    assert version_of(path) == len(MIGRATIONS) + 1
    connection = raw(path)
    assert connection.execute("SELECT * FROM extra").fetchall() == []
    connection.close()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
async def test_a_newer_store_is_refused_and_not_touched(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await SqliteStore(path).close()
    connection = raw(path)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"store\.db.*version.*Upgrade"):
        SqliteStore(path)
    assert path.read_bytes() == before


async def test_a_migration_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await create(store)
    await store.close()
    broken = (*MIGRATIONS, "CREATE TABLE extra (name TEXT); INSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", broken)
        with pytest.raises(StoreError, match=r"store\.db"):
            SqliteStore(path)
    assert version_of(path) == len(MIGRATIONS)
    store = SqliteStore(path)
    assert (await store.run("run")).status == "pending"
    await store.close()
    connection = raw(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.execute("SELECT * FROM extra")
    connection.close()


async def test_a_foreign_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    connection = raw(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match=r"photos\.db.*not a Cuebook store"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_many_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = """
import sys, time
from cuebook.stores.sqlite import SqliteStore

print(flush=True)
start = float(sys.stdin.readline())
for number, path in enumerate(sys.argv[1:]):
    time.sleep(max(0.0, start + number * 0.03 - time.time()))
    SqliteStore(path)
"""
    paths = [tmp_path / f"store{number}.db" for number in range(20)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "\n"
    start = f"{time.time() + 0.05}\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(start)
        child.stdin.flush()
    assert [child.communicate(timeout=60)[1] for child in children] == [""] * 6
    assert [version_of(path) for path in paths] == [len(MIGRATIONS)] * 20


async def test_two_stores_in_one_process_see_each_others_claims(file_store: SqliteStore) -> None:
    from cuebook.kernel.errors import Fenced

    other = SqliteStore(file_store.path)
    await create(file_store)
    mine = await claim(file_store, driver="d1", now=0.0)
    await file_store.append(mine.batch(*driven()))
    await killed(file_store, "d1")
    theirs = await claim(other, driver="d2", now=20.0)
    with pytest.raises(Fenced):
        await file_store.append(mine.batch(*driven()))
    await other.append(theirs.batch(*driven()))
    assert await numbers(file_store) == [1, 2, 3]
    await other.close()


async def test_a_signal_from_another_process_reaches_a_run_that_was_never_claimed(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    await create(one)
    await other.signal(Signal("run", "message", {"value": 1}, "you"))
    await one.heartbeat("d1", 0.0)
    assert len((await one.claim("run", "d1", 0.0)).signals) == 1
    await one.close()
    await other.close()


async def test_a_run_that_another_process_claimed_first_is_not_claimed_again(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    await create(one)
    await claim(other, driver="d1")
    with pytest.raises(Busy):
        await claim(one, driver="d2")
    await one.close()
    await other.close()

"""The log grows ahead of its contents: commits overwrite space that it already has, and none of it is taken for records."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuebook.stores.sqlite import SqliteStore
from tests.support.records import create


async def numbered(store: SqliteStore, first: int, last: int) -> None:
    for number in range(first, last):
        await create(store, f"run{number}")


def size_of_log(store: SqliteStore) -> int:
    return os.path.getsize(f"{store.path}-wal")


async def test_commits_use_space_that_the_log_already_has(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await numbered(store, 0, 2)
    before = size_of_log(store)
    await numbered(store, 2, 20)
    assert size_of_log(store) == before
    await store.close()


async def test_a_full_log_grows_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await numbered(store, 0, 2)
    before = size_of_log(store)
    for number in range(300):
        await store.keep("t", "secret", str(number), {"value": "x" * 4000})
    assert size_of_log(store) > before + 2**20
    await store.close()


async def test_a_copy_with_unused_space_in_its_log_is_complete(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await numbered(store, 0, 20)
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"copy-{name}")
    await store.close()
    copy = SqliteStore(tmp_path / "copy-store.db")
    assert len(await copy.runs(limit=None)) == 20
    await numbered(copy, 20, 22)
    await copy.close()


async def test_two_processes_share_the_space(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    await numbered(one, 0, 2)
    before = size_of_log(one)
    for number in range(2, 20, 2):
        await numbered(other, number, number + 1)
        await numbered(one, number + 1, number + 2)
    assert size_of_log(one) == before
    assert len(await other.runs(limit=None)) == 20
    await one.close()
    await other.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_the_log_takes_no_space_from_a_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fstatvfs", lambda file: SimpleNamespace(f_bavail=100, f_frsize=4096))
    store = SqliteStore(tmp_path / "store.db")
    await numbered(store, 0, 2)
    before = size_of_log(store)
    await numbered(store, 2, 4)
    assert before < size_of_log(store) < 2**20
    await store.close()

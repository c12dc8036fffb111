"""Backups: taken while several processes write, private, complete, and refused if a byte was changed."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED
from cuebook.service.copies.backup import back_up, restore, unpack
from cuebook.stores.sqlite import SqliteStore
from cuebook.stores.sqlite.snapshot import check_file
from tests.support.command_line import CommandLine
from tests.support.programs import begin, engine_on
from tests.support.shared_stores import SharedStore

ROOT = Path(__file__).parents[2]


@contextmanager
def writing(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts and drives runs."""
    module = "tests.service.backup_load_process"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(folder), name], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_a_backup_under_load_restores_to_a_store_that_verifies_and_continues(
    shared_store: SharedStore, tmp_path: Path
) -> None:
    with writing(tmp_path, "a") as first, writing(tmp_path, "b") as second:
        done = []
        for process in (first, second, first, second):
            assert process.stdout is not None
            done.append(process.stdout.readline().strip())
        source = shared_store.path if isinstance(shared_store, SqliteStore) else shared_store
        manifest, checked = await back_up(source, tmp_path / "backup", b"k" * 32, None)
        assert first.poll() is second.poll() is None, "the processes go on"
    assert checked.broken == ()
    assert checked.checked == checked.runs >= len(done)
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600

    place = tmp_path / "restored" / "store.db"
    again, rechecked = await restore(tmp_path / "backup", place, tmp_path / "restored" / "store.db.key", None)
    assert (again, rechecked) == (manifest, checked)
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.parent.iterdir()} == {0o600}
    assert (tmp_path / "restored" / "store.db.key").read_bytes() == b"k" * 32
    restored = SqliteStore(place)
    rows = {row.id: row for row in await restored.runs(limit=None)}
    assert {rows[run].status for run in done} == {"completed"}
    interrupted = set(await restored.ready(restored.now(), "d"))
    assert interrupted == {run for run, row in rows.items() if row.status not in ENDED}
    engine = engine_on(restored, tmp_path)
    for run in interrupted:
        assert (await engine.drive(run)).status == "completed"
    await engine.close()
    await restored.close()


async def test_a_changed_byte_is_refused_and_nothing_is_overwritten(file_store: SqliteStore, tmp_path: Path) -> None:
    engine = engine_on(file_store, tmp_path)
    await engine.drive(await begin(engine, "counting"))
    await engine.close()
    backup = tmp_path / "backup"
    await back_up(file_store.path, backup, None, None)
    with pytest.raises(BadInput, match="exists"):
        await back_up(file_store.path, backup, None, None)
    with pytest.raises(BadInput, match="nothing was written"):
        await restore(backup, file_store.path, tmp_path / "key", None)
    data = backup.read_bytes()
    for at in range(0, len(data), len(data) // 40):
        changed = tmp_path / "changed"
        changed.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            unpack(changed, tmp_path / "out")
        except BadInput:
            (tmp_path / "out").unlink(missing_ok=True)
            continue
        assert (tmp_path / "out").read_bytes() in data, "only what is between the parts of the archive may differ"
        (tmp_path / "out").unlink()
    assert [one for one in os.listdir(tmp_path) if one.startswith(".cuebook")] == []


def killed(folder: Path) -> dict[str, Path]:
    """The files of a store whose writer was killed, by what follows its name."""
    with writing(folder, "killed") as process:
        for _ in range(3):
            assert process.stdout is not None
            assert process.stdout.readline()
    found = {one.name.removeprefix("store.db"): one for one in folder.iterdir() if one.name.startswith("store.db")}
    assert {"", "-wal", "-shm"} <= set(found)
    return found


async def finished_runs(path: Path) -> dict[str, str]:
    """The runs of a store that is sound, with their states."""
    assert check_file(path) == ""
    store = SqliteStore(path)
    try:
        return {row.id: row.status for row in await store.runs(limit=None)}
    finally:
        await store.close()


async def test_no_store_is_restored_beside_the_logs_of_a_killed_one(tmp_path: Path) -> None:
    place, backup, key = tmp_path / "store.db", tmp_path / "backup", tmp_path / "store.db.key"
    store = SqliteStore(place)
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "counting", run="kept"))
    await engine.close()
    await store.close()
    await back_up(place, backup, b"k" * 32, None)
    files, old = killed(tmp_path), tmp_path / "old"
    old.mkdir()
    for moved in ("", "-shm", "-wal"):
        with pytest.raises(BadInput, match="nothing was written") as refused:
            await restore(backup, place, key, None)
        assert all(str(one) in str(refused.value) for one in files.values() if one.exists())
        assert "move all its files together" in str(refused.value.fix)
        assert not key.exists()
        files[moved].rename(old / files[moved].name)
    await restore(backup, place, key, None)
    assert await finished_runs(place) == {"kept": "completed"}
    found = await finished_runs(old / "store.db")
    assert {"kept", "killed0", "killed1", "killed2"} <= set(found), "together, the moved files are the whole old store"


async def test_no_new_store_is_made_beside_the_logs_of_one_that_is_gone(tmp_path: Path, cli: CommandLine) -> None:
    files = killed(tmp_path)
    files[""].rename(tmp_path / "moved.db")
    log = files["-wal"].read_bytes()
    for words in (["users", "add", "ada", "--role", "admin"], ["run", "tea.md"]):
        ran = cli.call(*words, "--store", str(files[""]))
        assert (ran.code, str(files["-wal"]) in ran.err, "is gone" in ran.err) == (2, True, True), ran.err
    copied = cli.call("store", "copy", str(tmp_path / "moved.db"), str(files[""]))
    assert (copied.code, "is gone" in copied.err) == (2, True), copied.err
    assert not files[""].exists()
    assert files["-wal"].read_bytes() == log
    (tmp_path / "moved.db").rename(files[""])
    assert "killed2" in await finished_runs(files[""])


async def test_a_disk_without_hard_links_takes_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    await SqliteStore(tmp_path / "store.db").close()
    monkeypatch.setattr("os.link", refused)
    await back_up(tmp_path / "store.db", tmp_path / "backup", b"k" * 32, None)
    await restore(tmp_path / "backup", tmp_path / "again.db", tmp_path / "again.key", None)
    assert (tmp_path / "again.db").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadInput, match="exists"):
        await back_up(tmp_path / "store.db", tmp_path / "backup", None, None)


async def test_what_a_killed_backup_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    await SqliteStore(tmp_path / "store.db").close()
    old, new = tmp_path / ".cuebook-unfinished-old", tmp_path / ".cuebook-unfinished-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "store.db").touch()
    os.utime(old, (1.0, 1.0))
    await back_up(tmp_path / "store.db", tmp_path / "backup", None, None)
    assert (old.exists(), new.exists()) == (False, True), "the new one may belong to a process that is at work"


def test_a_place_that_cannot_be_used_is_named(cli: CommandLine) -> None:
    cli.write("file", "x")
    cli.call("run", "tea.md")
    ran = cli.call("backup", "file/nodir/x.cuebook")
    assert (ran.code, ran.err.startswith(f"cuebook: The folder {cli.work}/file/nodir cannot be created: ")) == (2, True)
    store = cli.work / f"{'a' * 300}.db"
    for words in (["runs"], ["inbox"], ["backup", "x.cuebook"]):
        ran = cli.call(*words, "--store", store)
        assert ran.code == 1
        assert ran.err.startswith(f"cuebook: The store {store} cannot be read: ")
        assert "Check --store" in ran.err
    assert "bug" not in cli.call("doctor", "--store", store).err


def test_the_commands_bring_a_store_back(cli: CommandLine) -> None:
    cli.write("note.playbook.md", '# Note\n\n## STEP 1: Ask\n\n@elicit(input, "Which?")\n')
    run = cli.call("run", "note.playbook.md", "--no-ask", "--json")
    assert run.code == 3, run.err
    store = ["--store", "copy.db"]
    assert "1 of 1 run verified" in cli.call("backup", "b.cuebook", "--with-key").out
    again = cli.call("backup", "b.cuebook")
    assert (again.code, "exists" in again.err) == (2, True)
    assert cli.call("restore", "b.cuebook", *store).code == 0
    (one,) = cli.call("runs", "--json", *store).object
    assert cli.call("answer", one["run"], "tea", *store).code == 0
    assert cli.call("delete", one["run"]).code == 2, "it waits"
    kept = cli.call("prune", "--status", "awaiting input")
    assert kept.out == "0 runs deleted, 1 run kept.\n"
    assert f"Run {one['run']} is awaiting input. `cuebook cancel" in kept.err
    gone = cli.call("delete", one["run"], "--force", "--reason", "a test")
    assert gone.out == "1 run deleted.\n", gone.err
    assert "deleted by local" in cli.call("show", one["run"]).err
    assert "a test; Run" in cli.call("store", "removals").out
    assert cli.call("prune", "--older-than", "0s", *store, "--dry-run").out.startswith("1 run would be deleted")
    assert "note" in cli.call("store", "usage", *store).out.lower()
    assert cli.call("erase", "--owner", "local", *store).out == "1 run deleted.\n"

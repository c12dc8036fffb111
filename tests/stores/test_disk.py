"""Whatever the disk does, the error names the file and the fix, and afterwards the run continues to its end."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import CuebookError, StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly
from cuebook.kernel.events import WAITING
from cuebook.kernel.run import Settings
from cuebook.service.worker import Worker
from cuebook.stores.sqlite import SqliteStore, group_commit
from cuebook.stores.sqlite.database import Database
from tests.stores.disk_process import NOBODY
from tests.stores.processes import ROOT, child, hear, tell
from tests.support.programs import begin, engine_on, eventually, lines, service_on
from tests.support.records import create, numbers
from tests.support.sampling import THOROUGH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, mounts and users as on Linux")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount, and become another user")


async def finish(path: Path, run: str = "run", folder: Path | None = None) -> None:
    """Reopens the store and drives the run to its end, as a careful person would."""
    store = SqliteStore(path)
    engine = engine_on(store, folder or path.parent)
    while (row := await engine.drive(run)).status in WAITING:
        for wait in await store.waits(run=run):
            reply = {"decision": "repeat"} if wait.kind == "in_doubt" else {"value": "yes"}
            await store.complete_wait(wait.id, reply, "me", engine.clock())
    assert row.status == "completed"
    assert (await engine.verify(run)).broken_at is None
    assert (await engine.replay(run)).complete
    await engine.close()
    await store.close()


def says(error: Exception, path: Path) -> None:
    """Checks that the error names the file and says what to do."""
    assert str(path) in str(error)
    assert isinstance(error, StoreError)
    assert error.fix


# --- a full disk ------------------------------------------------------------------------------------------


async def fill(store: SqliteStore, engine: Engine) -> StoreError:
    """Starts runs until there is no more space; returns the error."""
    try:
        for number in range(10_000):
            await engine.drive(await begin(engine, "counting", f"filler{number}", n=20, ballast="x" * 5000))
    except StoreError as error:
        return error
    raise AssertionError("there is always room")


async def test_a_store_that_cannot_grow_says_so_and_continues_when_it_can(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    engine = engine_on(store, tmp_path)
    await begin(engine, "everything")
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    error = await fill(store, engine)
    assert isinstance(error, StoreFull)
    says(error, store.path)
    store._connection.execute("PRAGMA max_page_count = 1")  # not even the pages that were too few for the last filler
    with pytest.raises(StoreFull):
        await engine.drive("run")
    assert (await engine.verify("run")).broken_at is None
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert (await engine.drive("run")).status == "awaiting_input", "in the same process, as soon as there is room"
    await engine.close()
    await store.close()
    await finish(tmp_path / "store.db")
    assert lines(tmp_path) == ["one", "two", "three"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill_up(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


@as_root
async def test_a_full_disk_loses_nothing_that_was_acknowledged(tiny_disk: Path, tmp_path: Path) -> None:
    path = tiny_disk / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    told = await numbers(store)
    filler = tiny_disk / "filler"
    fill_up(filler)
    error = await fill(store, engine)
    says(error, path)
    assert isinstance(error, StoreFull)
    assert await numbers(store) == told, "what is there can be read"
    await store.close()
    filler.unlink()
    await finish(path, folder=tmp_path)
    assert lines(tmp_path) == ["one", "two", "three"]


@as_root
async def test_a_new_store_on_a_full_disk_is_refused_with_a_message(tiny_disk: Path) -> None:
    fill_up(tiny_disk / "filler")
    with pytest.raises(StoreError) as caught:
        SqliteStore(tiny_disk / "store.db")
    says(caught.value, tiny_disk / "store.db")
    (tiny_disk / "filler").unlink()
    store = SqliteStore(tiny_disk / "store.db")
    await create(store)
    await store.close()


# --- a locked file ------------------------------------------------------------------------------------------


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the store wait only briefly for the lock, not ten seconds."""
    monkeypatch.setattr(group_commit, "BUSY_TIMEOUT", 0.05)


async def test_a_lock_held_by_another_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    store = SqliteStore(tmp_path / "store.db")
    engine = engine_on(store, tmp_path)
    await begin(engine, "everything")
    with child("disk_process", "hold", store.path) as holder:
        assert hear(holder) == "held"
        with pytest.raises(StoreLocked) as caught:
            await engine.drive("run")
        says(caught.value, store.path)
        assert (await store.run("run")).status == "pending", "reading needs no lock"
        opened = SqliteStore(store.path)
        assert await numbers(opened) == [1]
        await opened.close()
        tell(holder)
        holder.wait()
    await engine.drive("run")
    await engine.close()
    await store.close()
    await finish(tmp_path / "store.db")
    assert lines(tmp_path) == ["one", "two", "three"]


async def test_a_lock_that_is_released_in_time_is_waited_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    with child("disk_process", "hold", store.path) as holder:
        hear(holder)
        creating = asyncio.create_task(create(store))
        await asyncio.sleep(0.05)
        assert not creating.done()
        assert await store.runs() == [], "the event loop does not stand still meanwhile"
        tell(holder)
        await creating
    assert (await store.run("run")).status == "pending"
    await store.close()


async def test_serving_continues_when_the_lock_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store, tmp_path)
    await service.drive(await begin(service._engine, "everything", settings=Settings(pause_expiry=0.01)))
    worker = Worker(service, "", every=0.01)
    await worker.open()
    await worker.take("run")
    with child("disk_process", "hold", store.path) as holder:
        hear(holder)
        await asyncio.sleep(0.2)
        tell(holder)
        holder.wait()
        try:
            await eventually(lambda: has_status(store, "expired"))
        finally:
            await worker.close()
    await service.close()


async def has_status(store: SqliteStore, status: str) -> bool:
    return (await store.run("run")).status == status


# --- torn pages -----------------------------------------------------------------------------------------------

FRAME = 24 + 4096
"""A page in the write-ahead log and the header before it; the log's own header takes 32 bytes."""


def leave_wal(folder: Path, run: str = "run") -> tuple[Path, int]:
    """A store whose writer was killed, with its write-ahead log, and the number of acknowledged records."""
    path = folder / "store.db"
    with child("disk_process", "die", path, run) as process:
        told = int(hear(process))
        process.kill()
        process.wait()
    wal = path.with_name("store.db-wal")
    assert wal.stat().st_size > 32 + FRAME
    return path, told


@pytest.mark.parametrize("tear", ["half a frame more", "garbage more", "last frame cut", "last frame garbled"])
async def test_a_torn_tail_costs_the_tail_and_nothing_before_it(tear: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await begin(engine_on(store, tmp_path), "everything")
    await store.close()
    path, told = leave_wal(tmp_path)
    wal = path.with_name("store.db-wal")
    data = bytearray(wal.read_bytes())
    end = 32 + (len(data) - 32) // FRAME * FRAME
    while not any(data[end - FRAME : end]):  # space for the next commits
        end -= FRAME
    match tear:
        case "half a frame more":
            data = data[:end] + data[end - FRAME : end - FRAME // 2]
        case "garbage more":
            data = data[:end] + os.urandom(FRAME)
        case "last frame cut":
            data = data[: end - FRAME // 2]
        case "last frame garbled":
            data[end - 100 : end] = os.urandom(100)
    wal.write_bytes(data)
    store = SqliteStore(path)
    kept = await numbers(store)
    assert kept == list(range(1, len(kept) + 1))
    if tear.endswith("more"):
        assert len(kept) == told, "everything that was acknowledged is there"
    else:
        assert len(kept) < told, "the last commit was torn, and only it is gone"
    assert (await engine_on(store, tmp_path).verify("run")).broken_at is None
    await store.close()
    await finish(path)
    assert lines(tmp_path)[:1] == ["one"]


async def test_a_page_changed_on_disk_is_noticed_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    await engine.close()
    await store.close()
    data = path.read_bytes()
    assert data.count(b"echo draft")
    path.write_bytes(data.replace(b"echo draft", b"echo graft"))
    store = SqliteStore(path)
    verdict = await engine_on(store, tmp_path).verify("run")
    assert "it was changed" in verdict.problem
    assert verdict.broken_at is not None
    await store.close()


# --- files that are not stores, or cannot be written ----------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"This is a shopping list, not a database. " * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
async def test_a_file_that_is_not_a_database_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "list.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged) as caught:
        SqliteStore(path)
    says(caught.value, path)
    assert path.read_bytes() == content


async def read_all(path: Path) -> None:
    store = SqliteStore(path)
    try:
        for row in await store.runs():
            await numbers(store, row.id)
    finally:
        await store.close()


async def test_a_store_with_ruined_pages_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    for number in range(30):
        await engine.drive(await begin(engine, "counting", f"run{number}", n=20))
    await engine.close()
    await store.close()
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    with pytest.raises(StoreDamaged) as caught:
        await read_all(path)
    says(caught.value, path)
    shutil.copy(backup, path)
    await finish(path, "run1")


async def test_a_folder_instead_of_a_file_is_refused_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly) as caught:
        SqliteStore(tmp_path)
    says(caught.value, tmp_path)


def tried(path: Path) -> str:
    with child("disk_process", "try", path) as process:
        said, wrong = process.communicate(timeout=20)
        assert process.returncode == 0, wrong
        return said.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can access, with their own store. Pytest's folders are not accessible to them."""
    with tempfile.TemporaryDirectory(prefix="cuebook-theirs-", dir="/tmp") as above:
        Path(above).chmod(0o711)
        folder = Path(above) / "theirs"
        folder.mkdir()
        yield folder
        folder.chmod(0o700)


def protect(path: Path, what: str) -> None:
    os.chown(path.parent, NOBODY, NOBODY)
    os.chown(path, NOBODY, NOBODY)
    path.parent.chmod(0o500 if what != "file" else 0o700)
    path.chmod(0o400 if what != "folder" else 0o600)


def open_again(path: Path) -> None:
    path.parent.chmod(0o700)
    for file in path.parent.iterdir():  # a store that was opened for reading leaves files that can only be read
        file.chmod(0o600)


@as_root
@pytest.mark.parametrize("what", ["folder", "file", "both"])
async def test_an_unwritable_store_is_refused_with_a_message(what: str, open_folder: Path) -> None:
    path = open_folder / "store.db"
    store = SqliteStore(path)
    await begin(engine_on(store, open_folder), "counting")
    await store.close()
    protect(path, what)
    said = tried(path)
    assert said.startswith("store_read_only:"), said
    assert str(path) in said
    assert "Check the permissions" in said
    open_again(path)
    assert tried(path) == "fine"
    await finish(path)


@as_root
def test_a_store_that_cannot_be_created_is_refused_with_a_message(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said = tried(open_folder / "new" / "store.db")
    assert said.startswith("store_read_only:")
    assert str(open_folder / "new" / "store.db") in said
    assert "--store" in said


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


@as_root
async def test_a_disk_that_turned_read_only_is_reported_and_the_run_continues_later(
    tiny_disk: Path, tmp_path: Path
) -> None:
    path = tiny_disk / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    await begin(engine, "everything")
    await engine.close()
    await store.close()
    remount(tiny_disk, "ro")
    try:
        again = SqliteStore(path)
        with pytest.raises(StoreReadOnly) as caught:
            await create(again, "other")
        await again.close()
    finally:
        remount(tiny_disk, "rw")
    says(caught.value, path)
    await finish(path, folder=tmp_path)


def look_by_commands(path: Path, folder: Path) -> None:
    environ = {**os.environ, "CUEBOOK_STORE": str(path), "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)}
    for command in (["runs"], ["show", "run"], ["inbox"], ["verify", "run"], ["audit", "run"], ["events", "run"]):
        ran = subprocess.run(
            [sys.executable, "-m", "cuebook", *command], env=environ, cwd=folder, capture_output=True, text=True
        )
        assert (ran.returncode, ran.stderr) == (0, ""), command
        assert ran.stdout


@as_root
async def test_a_store_on_a_read_only_disk_can_be_read_and_verified(tiny_disk: Path, tmp_path: Path) -> None:
    path = tiny_disk / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    await engine.close()
    await store.close()
    remount(tiny_disk, "ro")
    try:
        archived = SqliteStore(path)
        looking = engine_on(archived, tmp_path)
        assert [row.status for row in await archived.runs()] == ["awaiting_input"]
        assert len(await archived.waits()) == 1
        assert await archived.steps("run")
        assert (await looking.verify("run")).broken_at is None
        assert not (await looking.replay("run")).complete
        with pytest.raises(StoreReadOnly) as caught:
            await looking.drive("run")
        says(caught.value, path)
        await archived.close()
        look_by_commands(path, tmp_path)
    finally:
        remount(tiny_disk, "rw")
    await finish(path, folder=tmp_path)


@as_root
async def test_a_read_only_store_whose_log_cannot_be_read_is_refused(tiny_disk: Path, tmp_path: Path) -> None:
    """The log contains the newest commits; without them, outdated data would be shown."""
    path = tiny_disk / "store.db"
    store = SqliteStore(path)
    await begin(engine_on(store, tmp_path), "everything")
    log = path.with_name("store.db-wal")
    kept = log.read_bytes()
    await store.close()
    log.write_bytes(kept)
    remount(tiny_disk, "ro")
    try:
        with pytest.raises(StoreReadOnly):
            SqliteStore(path)
    finally:
        remount(tiny_disk, "rw")


@pytest.mark.timeout(600)
async def test_a_flipped_bit_is_detected_wherever_it_is(tmp_path: Path) -> None:
    """In the schema, in a row or in a journal: it either changes nothing visible or is reported."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    engine = engine_on(store, tmp_path)
    await finish_some(engine)
    wanted = await everything_shown(store)
    await engine.close()
    await store.close()
    whole = path.read_bytes()
    chance = random.Random(4)
    spots = [*(chance.randrange(len(whole)) for _ in range(2000 if THOROUGH else 60)), *_schema_spots(whole, chance)]
    noticed = 0
    for spot in spots:
        try:
            store = SqliteStore(flipped(tmp_path, whole, spot, 1 << chance.randrange(8)))
        except CuebookError:
            noticed += 1
            continue
        try:
            shown = await everything_shown(store)
            verdicts = [await engine_on(store, tmp_path).verify(run) for run in shown]
            broken = any(verdict.broken_at is not None for verdict in verdicts)
            noticed += broken
            assert broken or all(shown[run] == wanted[run] for run in shown), f"byte {spot}"
        except CuebookError:
            noticed += 1
        finally:
            await store.close()
    assert noticed


def flipped(folder: Path, whole: bytes, spot: int, bit: int) -> Path:
    """A store that differs in one bit."""
    path = folder / "flipped.db"
    for name in ("flipped.db-wal", "flipped.db-shm"):
        (folder / name).unlink(missing_ok=True)
    changed = bytearray(whole)
    changed[spot] ^= bit
    path.write_bytes(changed)
    return path


def _schema_spots(whole: bytes, chance: random.Random) -> list[int]:
    """Positions in the texts that define the tables."""
    first = whole.index(b"CREATE TABLE")
    return [first + chance.randrange(1500) for _ in range(400 if THOROUGH else 40)]


async def finish_some(engine: Engine) -> None:
    await engine.drive(await begin(engine, "everything", "waits"))
    await engine.drive(await begin(engine, "failing", "failed"))
    await engine.drive(await begin(engine, "nested", "nested"))


async def everything_shown(store: SqliteStore) -> dict[str, Any]:
    """Everything visible about each run, except its driver."""
    shown: dict[str, Any] = {}
    for row in await store.runs():
        row.epoch, row.driver = 0, ""
        waits = await store.waits(run=row.id)
        kinds = [record.kind async for record in store.records(row.id)]
        shown[row.id] = (row, await store.steps(row.id), waits, kinds, await store.playbook(row.playbook))
    return shown


def test_an_unexpected_error_still_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    says(Database(path, "FULL").translate(sqlite3.OperationalError("the moon is full")), path)


# --- what lies beside a store ----------------------------------------------------------------------------


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def look_into(path: Path) -> None:
    """Opens and closes it in another process, as any database tool would."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM runs'); c.close()"
    subprocess.run([sys.executable, "-c", code, path], check=True)


async def test_a_foreign_rollback_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await SqliteStore(path).close()
    before = path.read_bytes()
    beside(path, "-journal").write_bytes(b"forged")
    with pytest.raises(StoreDamaged):
        SqliteStore(path)
    assert path.read_bytes() == before
    beside(path, "-journal").unlink()
    await SqliteStore(path).close()


async def test_a_store_in_use_with_a_foreign_journal_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    await create(store)
    beside(path, "-journal").write_bytes(b"forged")
    with pytest.raises(StoreDamaged) as refused:
        SqliteStore(path)
    says(refused.value, path)
    assert (await store.run("run")).id == "run"
    await store.close()


async def test_opening_a_store_keeps_the_locks_of_other_users(tmp_path: Path) -> None:
    """Closing the file anywhere in a process releases its locks; then the next process to close it would remove the log."""
    path = tmp_path / "runs.db"
    store, second = SqliteStore(path), SqliteStore(path)
    await create(store)
    look_into(path)
    assert beside(path, "-wal").exists()
    await second.close()
    await store.close()


async def test_a_store_that_another_process_is_creating_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await SqliteStore(path).close()
    journal = beside(path, "-journal")
    journal.write_bytes(b"")
    opening = asyncio.create_task(asyncio.to_thread(SqliteStore, path))
    await asyncio.sleep(0.1)
    journal.unlink()
    await (await opening).close()


async def test_a_store_whose_creation_was_interrupted_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    # The journal of its first change: there was nothing before.
    beside(path, "-journal").write_bytes(
        struct.pack(">QIIIII", 0xD9D505F920A163D7, 0, 7, 0, 512, 4096).ljust(512, b"\0")
    )
    store = SqliteStore(path)
    await create(store)
    await store.close()
    assert not beside(path, "-journal").exists()

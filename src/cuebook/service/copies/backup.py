"""Backups: a store as one file, with its key if that is asked for, and a digest of each part.

The file is a tar archive with a manifest, the store as a SQLite file, and perhaps its key. A store in a database is copied run
by run; each run is consistent in itself.
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

import msgspec

from cuebook import __version__
from cuebook.kernel.errors import BadInput, StoreDamaged
from cuebook.kernel.ports import Store
from cuebook.service.copies.transfer import copy_decisions, copy_runs, full_check
from cuebook.stores.sqlite import SqliteStore
from cuebook.stores.sqlite.database import logs_beside
from cuebook.stores.sqlite.schema import MIGRATIONS
from cuebook.stores.sqlite.snapshot import check_file, snapshot

FORMAT = "cuebook-backup-1"
_MANIFEST, _STORE, _KEY = "manifest.json", "store.db", "store.key"
_BLOCK = 1 << 20
_WORKROOM = ".cuebook-unfinished-"
_STALE = 86400.0
"""Seconds after which no process needs such a folder any more."""


class Manifest(msgspec.Struct, frozen=True):
    format: str
    made: float
    version: str
    """The version of Cuebook."""
    schema: int
    runs: int
    store: str
    """SHA-256 of the store's file."""
    key: str = ""
    """SHA-256 of the key; empty if it is not in the backup."""


class Checked(msgspec.Struct, frozen=True):
    """The result of checking a store's file."""

    runs: int
    checked: int
    """Runs whose journals, rows and texts were verified."""
    broken: tuple[str, ...] = ()
    """The runs that are broken, each with the reason."""


async def back_up(
    source: Path | Store, target: Path, key: bytes | None, sample: int | None
) -> tuple[Manifest, Checked]:
    """Writes a backup of a store that may be in use. `sample` is how many runs to verify; None means all."""
    _check_free(target, "Choose another name, for example with the date in it.")
    with _workroom(target) as folder:
        copy = folder / _STORE
        if isinstance(source, Path):
            schema = snapshot(source, copy)
        else:
            schema = await _copied(source, copy)
        checked = await check_store(copy, sample, schema)
        manifest = Manifest(
            FORMAT, time.time(), __version__, schema, checked.runs, _digest(copy), "" if key is None else _of(key)
        )
        bundle = folder / "backup.tar"
        with _created(bundle) as file, tarfile.open(fileobj=file, mode="w") as archive:
            _add(archive, _MANIFEST, msgspec.json.encode(manifest))
            archive.add(copy, _STORE, filter=_private)
            if key is not None:
                _add(archive, _KEY, key)
        _put(bundle, target)
    return manifest, checked


async def restore(backup: Path, place: Path, key_file: Path, sample: int | None) -> tuple[Manifest, Checked]:
    """Makes a store from a backup, at a place where there is none. A changed backup is refused before anything is written."""
    _check_store_free(place)
    with _workroom(place) as folder:
        manifest, key = unpack(backup, folder / _STORE)
        checked = await check_store(folder / _STORE, sample, manifest.schema)
        if key is not None and not _has(key_file, key):
            _check_free(key_file, "Move it away: the backup has another key.")
            with _created(folder / _KEY) as file:
                file.write(key)
            _put(folder / _KEY, key_file)
        _check_store_free(place)  # once more: verifying takes its time
        _put(folder / _STORE, place)
    return manifest, checked


def unpack(backup: Path, target: Path) -> tuple[Manifest, bytes | None]:
    """Writes the store of a backup to a new file, and returns the manifest and the key. Raises `BadInput` if a byte changed."""
    broken = BadInput(f"{backup} is damaged or not a backup.", fix="Use another backup.")
    try:
        with tarfile.open(backup, mode="r:") as archive:
            manifest = msgspec.json.decode(_read(archive, _MANIFEST), type=Manifest)
            if manifest.format != FORMAT or manifest.schema > len(MIGRATIONS):
                raise BadInput(
                    f"{backup} was made by a newer Cuebook ({manifest.version}).", fix="Upgrade Cuebook first."
                )
            stored = archive.extractfile(_STORE)
            if stored is None:
                raise broken
            with _created(target) as file:
                while block := stored.read(_BLOCK):
                    file.write(block)
            key = _read(archive, _KEY) if manifest.key else None
    except (tarfile.TarError, KeyError, msgspec.DecodeError, msgspec.ValidationError, EOFError):
        raise broken from None
    except OSError as error:
        raise BadInput(f"Cannot read {backup}: {error.strerror or error}.", fix="Check the path.") from None
    if _digest(target) != manifest.store or (key is not None and _of(key) != manifest.key):
        raise BadInput(f"{backup} was changed: its contents do not match its digest.", fix="Use another backup.")
    return manifest, key


async def check_store(path: Path, sample: int | None, schema: int) -> Checked:
    """Checks the pages of a store's file and verifies runs. Tables of an older version are not verified, only their pages."""
    problem = check_file(path)
    if problem:
        raise StoreDamaged(f"The copy of the store is damaged: {problem}.", fix="Check the disk and the original.")
    if schema < len(MIGRATIONS):
        return Checked(0, 0)
    store = SqliteStore(path, synchronous="NORMAL")
    try:
        runs = [row.id for row in await store.runs(limit=None)]
        chosen = runs if sample is None or sample >= len(runs) else random.sample(runs, sample)
        check = full_check(store)
        broken = []
        for run in chosen:
            verdict = await check(run)
            if verdict.broken_at is not None:
                broken.append(f"{run}: at record {verdict.broken_at}: {verdict.problem}")
        return Checked(len(runs), len(chosen), tuple(broken))
    finally:
        await store.close()


async def _copied(source: Store, path: Path) -> int:
    """Copies a store of any kind to a SQLite file, run by run."""
    target = SqliteStore(path, synchronous="NORMAL")
    try:
        await copy_decisions(source, target)
        results = await copy_runs(source, target, lambda one: None, driven=True)
        failed = [f"{one.run}: {one.detail}" for one in results if one.detail]
        if failed:
            raise StoreDamaged(f"A run cannot be copied: {failed[0]}.", fix="`cuebook audit RUN --verify` checks it.")
    finally:
        await target.close()
    return len(MIGRATIONS)


# --- files ---


def _check_free(path: Path, fix: str) -> None:
    """Raises `BadInput` if there is something at this place, and makes its folder."""
    if os.path.lexists(path):
        raise BadInput(f"{path} exists; nothing was written.", fix=fix)
    folder = path.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"The folder {folder} cannot be created: {error.strerror or error}.",
            fix="Choose a folder you can write to.",
        ) from None


def _check_store_free(place: Path) -> None:
    """Raises `BadInput` if there is a store, or what is left of one: SQLite would apply its log to the restored file."""
    logs = logs_beside(place)
    there = [str(one) for one in (place, *logs) if os.path.lexists(one)]
    if logs:
        raise BadInput(
            f"There is an old store, or what is left of one: {', '.join(there)}; nothing was written. SQLite would mix it into"
            " the restored store.",
            fix="Stop the processes that use the old store, move all its files together to another folder, and restore"
            " again; or choose another store with --store.",
        )
    _check_free(place, "Move it away, or choose another store with --store.")


def _has(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


@contextmanager
def _workroom(beside: Path) -> Iterator[Path]:
    """A folder for unfinished files, on the disk of the finished one. Those of processes that were killed are removed: they have
    copies of everything that was in the store.
    """
    parent = beside.absolute().parent
    for left in parent.glob(f"{_WORKROOM}*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix=_WORKROOM, dir=parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise BadInput(
            f"Cannot write {beside}: {error.strerror or error}.", fix="Check the folder and the disk."
        ) from None


def _created(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _put(path: Path, target: Path) -> None:
    """Moves a finished file to its place, where there must be none, and waits until it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    try:
        _link(path, target)
    except FileExistsError:
        raise BadInput(f"{target} exists; it was not replaced.", fix="Choose another name.") from None
    folder = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _link(path: Path, target: Path) -> None:
    """Gives a file its name. Raises `FileExistsError`, also on a file system without hard links, such as that of a USB stick."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # only one process makes it
        path.replace(target)


def _private(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mode, info.uid, info.gid, info.uname, info.gname = 0o600, 0, 0, "", ""
    return info


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    archive.addfile(info, io.BytesIO(data))


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found.read()


def _digest(path: Path) -> str:
    found = sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _of(data: bytes) -> str:
    return sha256(data).hexdigest()

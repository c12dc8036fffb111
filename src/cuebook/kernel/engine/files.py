"""Gives performers the files of a run, and checks them against the digests in its journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from hashlib import sha256

from cuebook.kernel.errors import NotFound
from cuebook.kernel.files import FileRef, Scan, files_of
from cuebook.kernel.journal import Entry
from cuebook.kernel.ports import Redactor, Store


class StoredFiles:
    """The files of one tenant in a store."""

    def __init__(self, store: Store, tenant: str, redactor: Redactor) -> None:
        self._store = store
        self._tenant = tenant
        self._redactor = redactor

    def scan(self) -> Scan:
        return self._redactor.stream()

    async def has(self, digest: str) -> bool:
        return await self._store.has_file(self._tenant, digest)

    async def put(self, digest: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        number = 0
        if not await self.has(digest):
            async for piece in pieces:
                await self._store.put_piece(self._tenant, digest, number, piece)
                number += 1
        await self._store.put_file(self._tenant, digest, size)

    def read(self, digest: str) -> AsyncIterator[bytes]:
        return read(self._store, self._tenant, digest)


async def read(store: Store, tenant: str, digest: str) -> AsyncIterator[bytes]:
    """The pieces of a file. Raises `NotFound` if it is not in the store."""
    if not await store.has_file(tenant, digest):
        raise NotFound(f"The file {digest[:12]} is not in the store: it was purged.")
    number = 0
    while (piece := await store.piece(tenant, digest, number)) is not None:
        yield piece
        number += 1


class KeptFile(FileRef, frozen=True):
    """A file of a run, and the step that produced it."""

    step: str = ""
    seq: int = 0
    """The record that names it."""


def kept_in(entries: Iterable[Entry]) -> list[KeptFile]:
    """The files that a journal names. Of two with the same step and name, the later one counts."""
    found: dict[tuple[str, str], KeptFile] = {}
    for entry in entries:
        for one in files_of(getattr(entry.event, "outcome", None)):
            step = entry.place.step
            found.pop((step, one.name), None)
            found[step, one.name] = KeptFile(one.name, one.digest, one.size, one.filename, step, entry.seq)
    return list(found.values())


async def changed(store: Store, tenant: str, entries: Iterable[Entry]) -> tuple[KeptFile | None, list[str]]:
    """The first file whose content does not match its digest, or None; and the digests of files that are missing."""
    missing: dict[str, None] = {}
    checked: set[str] = set()
    for one in kept_in(entries):
        if one.digest in checked:
            continue
        checked.add(one.digest)
        found, size = sha256(), 0
        try:
            async for piece in read(store, tenant, one.digest):
                found.update(piece)
                size += len(piece)
        except NotFound:
            missing[one.digest] = None
            continue
        if found.hexdigest() != one.digest or size != one.size:
            return one, list(missing)
    return None, list(missing)

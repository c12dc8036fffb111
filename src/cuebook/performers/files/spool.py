"""A file on its way into the store: written to disk first, and measured, hashed and searched for secrets as it arrives.

Nothing reaches the store before all of it was searched. Memory stays small, whatever the size.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import IO

from cuebook.kernel.errors import BadInput
from cuebook.kernel.files import PIECE, FileRef, RunFiles

LARGEST = 4 << 30
"""The maximum size of a file in bytes."""


class SecretInFile(BadInput):
    """The file contains a secret of the run."""

    code = "secret_in_file"


class FileTooLarge(BadInput):
    """The file is larger than a store keeps."""

    code = "file_too_large"


class NotAFile(BadInput):
    """There is no file where a step should have produced one."""

    code = "no_file"


class Spool:
    """Takes the bytes of one file. Raises `SecretInFile` or `FileTooLarge` as soon as that is known."""

    def __init__(self, files: RunFiles, name: str, most: int = LARGEST, *, filename: str = "") -> None:
        self._files = files
        self._filename = filename
        self._name = name
        self._most = most
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="cuebook-file-")  # noqa: SIM115
        self._hash = sha256()
        self._size = 0
        self._scan = files.scan()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._pending = ""
        """Text that the search has not returned yet."""

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            raise FileTooLarge(f"The file {self._name} has more than {self._most:,} bytes.", fix="Make it smaller.")
        self._search(self._decoder.decode(data))
        self._hash.update(data)
        self._file.write(data)

    def _search(self, text: str, *, last: bool = False) -> None:
        self._pending += text
        shown = self._scan.feed(text)
        if last:
            shown += self._scan.finish()
        if not self._pending.startswith(shown) or (last and shown != self._pending):
            raise SecretInFile(
                f"The file {self._name} contains a secret of this run, so it was not kept.",
                fix="Leave the secret out of the file.",
            )
        self._pending = self._pending[len(shown) :]

    async def stored(self) -> FileRef:
        """Puts the file into the store."""
        self._search(self._decoder.decode(b"", True), last=True)
        digest = self._hash.hexdigest()
        await self._files.put(digest, self._size, self._pieces())
        return FileRef(self._name, digest, self._size, self._filename)

    async def _pieces(self) -> AsyncIterator[bytes]:
        self._file.flush()
        self._file.seek(0)
        while data := await asyncio.to_thread(self._file.read, PIECE):
            yield data

    def close(self) -> None:
        self._file.close()


async def kept(files: RunFiles, name: str, descriptor: int, path: str) -> FileRef:
    """Stores the file behind a descriptor, which is closed. Raises `NotAFile` unless it is a regular file."""
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise NotAFile(f"{path!a} is not a regular file.", fix="Let the step write a file there.")
        spool = Spool(files, name, filename=os.path.basename(path))
        try:
            while data := await asyncio.to_thread(source.read, PIECE):
                await asyncio.to_thread(spool.write, data)
            return await spool.stored()
        finally:
            spool.close()


async def written(files: RunFiles, file: FileRef, descriptor: int) -> None:
    """Writes a stored file to a descriptor, which is closed."""
    with os.fdopen(descriptor, "wb", buffering=0) as target:
        async for piece in files.read(file.digest):
            await asyncio.to_thread(_write_all, target, piece)


def _write_all(target: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[target.write(left) :]

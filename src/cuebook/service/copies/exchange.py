"""Runs as one file that another installation can import, verify and replay: with their parents, children, texts and files.

Each line of the file is a JSON object: the first says what follows, then come runs and the pieces of files, and the last has the
SHA-256 of everything before it; a signature by the key that the first line has may follow. Secrets are not in it, because they are
never in a journal.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec

from cuebook import __version__
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, Refused
from cuebook.kernel.fold.verify import texts_behind
from cuebook.kernel.journal import Verdict
from cuebook.kernel.ports import RunCopy, Store
from cuebook.kernel.run import RunRow
from cuebook.service.audit.keys import read_public_keys
from cuebook.service.audit.signature import SignedFile, Signer, check, is_signature, unsigned
from cuebook.service.copies.transfer import Copied, copy_runs, copy_sensitive, full_check
from cuebook.service.secrets.sensitive import INDEX, payload
from cuebook.stores.sqlite import SqliteStore

FORMAT = "cuebook-runs-1"


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    runs: tuple[str, ...]
    """The runs that were asked for; the others are those that they need."""
    made: float
    version: str
    """The version of Cuebook."""
    key: str = ""
    """The public key that the file is signed with, as PEM; empty if it is not signed."""


class Line(msgspec.Struct, omit_defaults=True):
    """Any other line, with one of these."""

    run: RunCopy | None = None
    piece: tuple[str, str, int, bytes] | None = None
    """Tenant, digest of the file, number and content."""
    file: tuple[str, str, int] | None = None
    """Tenant, digest and size of a file whose pieces precede it."""
    sensitive: tuple[str, str, dict[str, Any]] | None = None
    """Tenant, run, and the values of its sensitive inputs."""
    sha256: str = ""
    """Of all lines before the last one, which has it."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


async def export_runs(
    store: Store,
    runs: Sequence[str],
    path: Path,
    who: Principal,
    signer: Signer | None = None,
    *,
    sensitive: bool = False,
) -> list[str]:
    """Writes runs to a new file, with the runs that they need, and signs it; returns all of them, in order. Each is verified
    before. With `sensitive`, the file has the values of sensitive inputs, so that runs that wait can continue elsewhere.
    """
    who.require("viewer", "view runs")
    if sensitive:
        who.require("admin", "export sensitive inputs")
    rows = await _with_needed(store, runs)
    check = full_check(store)
    for row in rows:
        if await store.alive(row.id):
            raise Refused(f"Run {row.id} is being driven.", fix="Wait until it waits or ends.")
        verdict = await check(row.id)
        if verdict.broken_at is not None:
            raise Refused(f"Run {row.id} is broken at record {verdict.broken_at}: {verdict.problem}.")
    with _new_file(path) as opened:
        file = SignedFile(opened, signer)
        out = _Writer(file)
        key = "" if signer is None else signer.public.pem().decode()
        out.put(Head(FORMAT, tuple(runs), time.time(), __version__, key))
        files: dict[tuple[str, str], None] = {}
        for row in rows:
            copy = await store.take_out(row.id)
            copy.texts = {
                one.digest: one.text for one in texts_behind(copy.records, store.text) if one.text is not None
            }
            files.update({(row.tenant, digest): None for digest in copy.files})
            out.put(Line(run=copy))
        for row in rows if sensitive else ():
            values = (await store.kept(row.tenant, payload(row.id))).get("inputs")
            if values is not None:
                out.put(Line(sensitive=(row.tenant, row.id, values)))
        for tenant, digest in files:
            async for line in _file_lines(store, tenant, digest):
                out.put(line)
        out.put(Line(sha256=out.digest))
        file.sign(who, time.time())
    return [row.id for row in rows]


async def import_runs(path: Path, target: Store, who: Principal, see: Callable[[Copied], None]) -> list[Copied]:
    """Adds the runs of a file that the store does not have. A changed file is refused before anything is read from it, and a
    run that does not verify is not added.
    """
    who.require("admin", "import runs")
    _check(path)
    async with _staged(path) as staged:
        results = await copy_runs(staged, target, see, full_check(staged))
        await copy_sensitive(staged, target, {one.run for one in results if one.result == "copied"})
        return results


class Found(msgspec.Struct, frozen=True):
    """A run in a file, and whether it verifies."""

    run: str
    name: str
    owner: str
    status: str
    verdict: Verdict


async def read_runs(path: Path) -> list[Found]:
    """Verifies the runs of a file. Raises `BadInput` if it was changed."""
    _check(path)
    async with _staged(path) as staged:
        check = full_check(staged)
        rows = sorted(await staged.runs(limit=None), key=lambda row: row.created)
        return [Found(row.id, row.name, row.owner, row.status, await check(row.id)) for row in rows]


def is_exchange(line: bytes) -> bool:
    """Whether a file with this first line has runs for another installation."""
    return line.startswith(b'{"format":"%b"' % FORMAT.encode())


async def _with_needed(store: Store, runs: Sequence[str]) -> list[RunRow]:
    """The runs with those they were forked from or started by, and those they started; each after those it needs."""
    found: dict[str, RunRow] = {}
    waiting = list(runs)
    while waiting:
        run = waiting.pop()
        if run in found:
            continue
        row = found[run] = await store.run(run)
        waiting += [one for one in (row.parent, row.caller) if one]
        waiting += [child.id for child in await store.runs(tenant=row.tenant, caller=row.id, limit=None)]
    return sorted(found.values(), key=lambda row: (_depth(row, found), row.created))


def _depth(row: RunRow, rows: dict[str, RunRow]) -> int:
    """How many runs this one was forked from, directly or not."""
    return 1 + _depth(rows[row.parent], rows) if row.parent else 0


async def _file_lines(store: Store, tenant: str, digest: str) -> AsyncIterator[Line]:
    if not await store.has_file(tenant, digest):
        return  # it was purged
    number = size = 0
    while (piece := await store.piece(tenant, digest, number)) is not None:
        yield Line(piece=(tenant, digest, number, piece))
        number, size = number + 1, size + len(piece)
    yield Line(file=(tenant, digest, size))


class _Writer:
    def __init__(self, file: SignedFile) -> None:
        self._file = file
        self._hash = sha256()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, line: Any) -> None:
        data = _encode(line) + b"\n"
        self._hash.update(data)
        self._file.write(data)


# --- reading a file ---


def _check(path: Path) -> None:
    """Raises `BadInput` unless the file is complete and unchanged, and signed by the key in its first line if that has one. So
    damage is found everywhere; who signed it is known only to those who have the key from elsewhere.
    """
    changed = BadInput(f"{path} was changed or cut off; nothing was imported.", fix="Get the file again.")
    found, last, key = sha256(), b"", b""
    for number, line in enumerate(_lines(path)):
        if number == 0:
            key = _head(path, line).key.encode()
        found.update(last)
        last = line
    try:
        if _decode(last).sha256 != found.hexdigest() or not last.endswith(b"\n"):
            raise changed
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise changed from None
    problem = _signature_problem(path, key)
    if problem:
        raise BadInput(f"{path} is refused: {problem}; nothing was imported.", fix="Get the file again.")


def _signature_problem(path: Path, key: bytes) -> str:
    """Why the end of a file whose other lines are unchanged is not what its first line says; empty if it is."""
    with path.open("rb") as file:
        if key:
            return check(file, read_public_keys([(str(path), key)])).problem
        signed = any(map(is_signature, file))
    return "it has a signature, but its first line has no key" if signed else ""


def _head(path: Path, line: bytes) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput(f"{path} is not an exported run.", fix="Pass a file that `cuebook export` wrote.") from None
    if head.format != FORMAT:
        raise BadInput(
            f"{path} has the format '{head.format}', but this version reads {FORMAT}.",
            fix=f"Import it with Cuebook {head.version}.",
        )
    return head


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from unsigned(file)
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.", fix="Check the path.") from None


@asynccontextmanager
async def _staged(path: Path) -> AsyncIterator[Store]:
    """A store of its own with the contents of the file, so that they are verified before they are added to another."""
    with tempfile.TemporaryDirectory(prefix="cuebook-") as folder:
        store = SqliteStore(Path(folder) / "staged.db", synchronous="NORMAL")
        try:
            for number, line in enumerate(_lines(path)):
                if number:
                    await _take(path, store, line)
            yield store
        finally:
            await store.close()


async def _take(path: Path, store: Store, data: bytes) -> None:
    try:
        line = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.", fix="Export the runs again.") from None
    if line.run is not None:
        await store.bring_in(line.run)
    elif line.piece is not None:
        await store.put_piece(*line.piece)
    elif line.file is not None:
        await store.put_file(*line.file)
    elif line.sensitive is not None:
        tenant, run, values = line.sensitive
        await store.keep(tenant, INDEX, run, {"at": time.time()})
        await store.keep(tenant, payload(run), "inputs", values)


def _new_file(path: Path) -> IO[bytes]:
    try:
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except FileExistsError:
        raise BadInput(f"{path} exists; nothing was written.", fix="Choose another name.") from None
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.", fix="Check the folder.") from None

"""Verifies an exported file of any kind with nothing but the file and public keys: its signature, then what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.journal import Verdict
from cuebook.service.audit.collection import is_collection, read_collection
from cuebook.service.audit.export import Audited, Export, audited, read_export
from cuebook.service.audit.keys import PublicKey
from cuebook.service.audit.signature import Statement, check, described, is_signature
from cuebook.service.copies.exchange import is_exchange, read_runs


class ProvenRun(msgspec.Struct, frozen=True):
    run: str
    name: str
    owner: str
    status: str
    records: int
    head: str
    problem: str = ""
    """Why its journal does not verify; empty if it does."""


class Proof(msgspec.Struct):
    """The result of verifying a file."""

    kind: str = ""
    """The format of what was signed."""
    key: str = ""
    """The id of the key that signed it; empty if none of those that were given did."""
    statement: Statement | None = None
    problem: str = ""
    """Why the file is refused, with the line; empty if it is exactly what the key signed."""
    line: int = 0
    runs: list[ProvenRun] = []
    acts: int = 0
    acts_head: str = ""
    broken: list[str] = []
    """What did not verify when it was signed already."""

    @property
    def holds(self) -> bool:
        return not self.problem and not self.broken


async def verify_file(path: Path, keys: Sequence[PublicKey]) -> Proof:
    """Verifies a file. What is in it is looked at only if it is what one of the keys signed."""
    try:
        with path.open("rb") as file:
            checked = check(file, keys)
        proof = Proof(key=checked.key, statement=checked.statement, problem=checked.problem, line=checked.line)
        if checked.problem:
            proof.problem += _where(path, checked.line) if checked.statement is not None else ""
        else:
            await _read(path, proof)
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.", fix="Check the path.") from None
    return proof


async def _read(path: Path, proof: Proof) -> None:
    def see(found: Audited) -> None:
        proof.runs.append(_proven(found))

    with path.open("rb") as file:
        first = file.readline()
        file.seek(0)
        if is_exchange(first):
            proof.kind = "runs"
            proof.runs = [_run(one.run, one.name, one.owner, one.status, one.verdict) for one in await read_runs(path)]
        elif is_collection(file):
            proof.kind = "audit"
            read = read_collection(file, str(path), see)
            proof.acts, proof.acts_head, proof.broken = read.acts, read.head, read.broken
            return
        else:
            proof.kind = "run"
            see(audited(read_export(file.read(), str(path))))
    proof.broken = [f"run {one.run}: {one.problem}" for one in proof.runs if one.problem]


def _proven(found: Audited) -> ProvenRun:
    return _run(found.run, found.name, found.owner, found.evidence.status, found.verdict)


def _run(run: str, name: str, owner: str, status: str, verdict: Verdict) -> ProvenRun:
    problem = "" if verdict.broken_at is None else f"broken at record {verdict.broken_at}: {verdict.problem}"
    return ProvenRun(run, name, owner, status, verdict.records, verdict.head, problem)


# --- where a file was changed ---


class _Holder(msgspec.Struct):
    run: Export | None = None


def _where(path: Path, number: int) -> str:
    """What the line has, as far as it can still be read, and where the journal in it breaks."""
    line = next((one for at, one in enumerate(_lines(path), start=1) if at == number), b"")
    if not line or is_signature(line):
        return ""
    words = [described(line), _inside(line)]
    return "".join(f" ({one})" for one in (", ".join(one for one in words if one),) if one)


def _inside(line: bytes) -> str:
    try:
        run = msgspec.json.decode(line, type=_Holder).run
        verdict = audited(run).verdict if run is not None else None
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, BadInput):
        return ""
    if verdict is None or verdict.broken_at is None:
        return ""
    return f"broken at record {verdict.broken_at}: {verdict.problem}"


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file

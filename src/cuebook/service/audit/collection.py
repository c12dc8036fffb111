"""The audits of many runs and of administrative acts as one file, which can be verified without the store.

It is written and read line by line, so it may be larger than the memory. Each line is a JSON object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import IO, Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports.admin_acts import ActRecord, ChainCheck
from cuebook.service.audit.export import Audited, Export, audited
from cuebook.service.audit.signature import SignedFile, is_signature, key_of, unsigned
from cuebook.service.service import Service

FORMAT = "cuebook-audit-1"
HOW = (
    "Each line is a JSON object. The run of a line `run` is in the format cuebook-run-1, which says how to verify it. For"
    " each line `act`, in order, chain = SHA-256(previous chain + newline + body), in hexadecimal; the first one continues"
    " `acts_after`. The line `end` has the SHA-256 of all lines before it. Compare the last chain with a copy that was kept"
    " elsewhere. A line after `end` is a signature of all bytes before it."
)


class Written(msgspec.Struct):
    """What was written to a file, or read from one."""

    runs: int = 0
    acts: int = 0
    head: str = ""
    """The chain value of the last act; empty if there is none."""
    broken: list[str] = []
    """What does not verify, in words."""
    key: str = ""
    """The id of the key that signed it; of a file that was read, the one that it names."""


class _Lines:
    def __init__(self, file: SignedFile) -> None:
        self._file = file
        self._digest = sha256()

    def add(self, value: Any) -> None:
        line = msgspec.json.encode(value) + b"\n"
        self._digest.update(line)
        self._file.write(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


async def write_collection(
    service: Service, file: SignedFile, who: Principal, *, since: float = 0.0, runs: bool = True
) -> Written:
    """Writes the runs that were created since a moment, and the administrative acts since then, and signs them."""
    written, lines = Written(), _Lines(file)
    first = await service.admin_audit.acts(who, since=since, limit=1)
    previous = await service.admin_audit.before(first[0].seq, who) if first else ""
    begins = first[0].seq if first else 0
    head = {"format": FORMAT, "tenant": who.tenant, "since": since, "made": service.clock(), "how": HOW}
    lines.add({**head, "acts_from": begins, "acts_after": previous})
    for run in await _chosen(service, who, since) if runs else ():
        try:
            lines.add({"run": await service.export(run, who)})
            written.runs += 1
        except CuebookError as error:
            written.broken.append(error.message)
            lines.add({"broken": run, "problem": error.message})
    async for page in service.admin_audit.pages(who, since):
        for one in page:
            lines.add({"act": one})
            written.acts, written.head = written.acts + 1, one.chain
    # Also what the acts in the file cannot show: that one is missing before the first or after the last of them.
    broken = (await service.admin_audit.verify(who)).broken
    if broken is not None:
        problem = f"administrative act {broken.seq}: {broken.problem}"
        written.broken.append(problem)
        lines.add({"problem": problem})
    lines.add({"end": {"runs": written.runs, "acts": written.acts, "sha256": lines.digest}})
    written.key = file.sign(who, service.clock())
    return written


async def _chosen(service: Service, who: Principal, since: float) -> list[str]:
    """The runs that were created since a moment, oldest first, child runs included."""
    rows = await service.all_runs(who)
    return [row.id for row in sorted(rows, key=lambda row: row.created) if row.created >= since]


class _Line(msgspec.Struct):
    run: Export | None = None
    act: ActRecord | None = None
    broken: str = ""
    problem: str = ""
    end: dict[str, Any] | None = None


def is_collection(file: IO[bytes]) -> bool:
    """Whether a file begins like one that `write_collection` wrote. The position does not change."""
    beginning = file.read(200)
    file.seek(0)
    return beginning.startswith(f'{{"format":"{FORMAT}"'.encode())


def read_collection(file: IO[bytes], name: str, see: Callable[[Audited], None]) -> Written:
    """Verifies everything in a file. `see` is called with each run."""
    read, digest, end = Written(), sha256(), None
    lines: Iterator[bytes] = unsigned(_noting(file, read))
    first = next(lines, b"")
    head = _decoded(first, dict[str, Any], name, 1)
    digest.update(first)
    check = ChainCheck(int(head["acts_from"]), str(head["acts_after"])) if head.get("acts_from") else ChainCheck()
    for number, text in enumerate(lines, start=2):
        line = _decoded(text, _Line, name, number)
        if end is not None:
            read.broken.append("there are lines after the end")
            break
        if line.end is not None:
            end = line.end
            continue
        digest.update(text)
        if line.run is not None:
            found = audited(line.run)
            read.runs += 1
            if found.verdict.broken_at is not None:
                read.broken.append(f"run {found.run} is broken at record {found.verdict.broken_at}")
            see(found)
        elif line.act is not None:
            check.see([line.act])
            read.acts, read.head = read.acts + 1, line.act.chain
        elif line.problem:
            what = f"run {line.broken}" if line.broken else "the audit of administrative acts"
            read.broken.append(f"{what} was already broken when the file was written: {line.problem}")
    if check.broken is not None:
        read.broken.append(f"administrative act {check.broken.seq}: {check.broken.problem}")
    if end is None:
        read.broken.append("the end is missing")
    elif end != {"runs": read.runs, "acts": read.acts, "sha256": digest.hexdigest()}:
        read.broken.append("the lines do not match the last one: some were changed, added or removed")
    return read


def _noting(lines: Iterable[bytes], read: Written) -> Iterator[bytes]:
    for line in lines:
        read.key = key_of(line) if is_signature(line) else ""
        yield line


def _decoded(text: bytes, kind: type[Any], name: str, number: int) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{name}:{number}: this line cannot be read: {error}.", fix="Export the audit again.") from None

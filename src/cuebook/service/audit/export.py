"""A run as one file with its records, playbook and texts, which can be verified without the store. Pure.

The file explains how to check its chain with SHA-256 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.fold.verify import belongs, texts_behind, unchanged, worse
from cuebook.kernel.journal import PURGED, Codec, Place, Record, Verdict, verify
from cuebook.service.audit.evidence import Evidence, evidence_of
from cuebook.service.audit.signature import SignedFile, unsigned

FORMAT = "cuebook-run-1"

HOW = (
    "The records are in order. For each record, chain = SHA-256(chain of the previous record + head + SHA-256(body)), over"
    " bytes; the first record uses 32 zero bytes as the previous chain. head and body are the UTF-8 text in this file. For a"
    " purged body, its SHA-256 is given instead. The key of each text and of the playbook is its SHA-256. The first body, and"
    " the body of the last Forked record, identify the run and who started it. The last chain is the head: compare it with"
    " a copy that was kept elsewhere."
)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record in the file."""

    run: str
    head: str
    chain: str
    body: str | None = None
    purged: str | None = None


class Export(msgspec.Struct, frozen=True):
    format: str
    run: str
    name: str
    owner: str
    """The playbook's name and who started the run, from the store; the first record must agree."""
    head: str
    how: str
    playbooks: dict[str, str]
    texts: dict[str, str]
    records: list[Line]


class Audited(msgspec.Struct, frozen=True):
    """The result of an audit of the store or of a file."""

    run: str
    name: str
    owner: str
    evidence: Evidence
    verdict: Verdict
    purged: int
    """The number of records in the chain whose contents were purged."""


def export_of(name: str, owner: str, records: Iterable[Record], load: Callable[[str], str], playbook: str) -> Export:
    """Exports a run. `load` returns a long text by its digest, and raises `NotFound` if it was purged."""
    kept = list(records)
    texts = {found.digest: found.text for found in texts_behind(kept, load) if found.text is not None}
    head = kept[-1].chain.hex() if kept else ""
    run = kept[-1].run if kept else ""
    lines = [_line(record) for record in kept]
    return Export(FORMAT, run, name, owner, head, HOW, {digest_of(playbook): playbook}, texts, lines)


def write_export(file: SignedFile, export: Export) -> None:
    """Writes a run as one JSON object, with each text and each record on a line of its own."""
    encode = msgspec.json.encode

    def put(text: bytes) -> None:
        file.write(text + b"\n")

    put(b"{")
    for name in ("format", "run", "name", "owner", "head", "how"):
        put(b' "%b": %b,' % (name.encode(), encode(getattr(export, name))))
    for name, texts in (("playbooks", export.playbooks), ("texts", export.texts)):
        put(b' "%b": {' % name.encode())
        for one in _listed([b"  %b: %b" % (encode(digest), encode(text)) for digest, text in texts.items()]):
            put(one)
        put(b" },")
    put(b' "records": [')
    for one in _listed([b"  " + encode(line) for line in export.records]):
        put(one)
    put(b" ]")
    put(b"}")


def _listed(items: list[bytes]) -> list[bytes]:
    return [*(one + b"," for one in items[:-1]), *items[-1:]]


def _line(record: Record) -> Line:
    head, chain = record.head.decode(), record.chain.hex()
    if record.body.startswith(PURGED):
        return Line(record.run, head, chain, purged=record.body.removeprefix(PURGED).hex())
    return Line(record.run, head, chain, body=record.body.decode())


# --- reading a file -------------------------------------------------------------------------------------


def read_export(text: bytes, name: str) -> Export:
    """Reads a file. A signature at its end is left out, not checked."""
    try:
        text = b"".join(unsigned(text.splitlines(keepends=True)))
        export = msgspec.json.decode(text, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{name} is not an exported run: {error}.", fix="Pass a file that `cuebook audit RUN --export FILE` wrote."
        ) from None
    if export.format != FORMAT:
        raise BadInput(
            f"{name} has the format '{export.format}', but this version reads {FORMAT}.",
            fix="Read it with the version of Cuebook that wrote it.",
        )
    return export


def audited(export: Export) -> Audited:
    """Verifies everything in the file and folds its evidence again; nothing in the file is trusted."""
    records = [_record(line, number) for number, line in enumerate(export.records, start=1)]
    verdict = _verified(export, records)
    codec = Codec(_loader(export))
    return audited_from(export.run, export.name, export.owner, records, verdict, codec)


def audited_from(run: str, name: str, owner: str, records: Iterable[Record], verdict: Verdict, codec: Codec) -> Audited:
    """The evidence of the records. After a break in the chain, the records prove nothing."""
    whole = [one for one in records if verdict.broken_at is None or one.seq < verdict.broken_at]
    entries = [codec.entry(record) for record in whole if not record.body.startswith(PURGED)]
    return Audited(run, name, owner, evidence_of(entries), verdict, len(whole) - len(entries))


def _loader(export: Export) -> Callable[[str], str]:
    def load(digest: str) -> str:
        if digest not in export.texts:
            raise NotFound(f"The text {digest} is not in the file: it was purged or removed.")
        return export.texts[digest]

    return load


def _record(line: Line, number: int) -> Record:
    try:
        seq, _, _, place, kind = msgspec.json.decode(line.head, type=tuple[int, float, int, Place, str])
        body = PURGED + bytes.fromhex(line.purged) if line.purged is not None else (line.body or "").encode()
        return Record(line.run, seq, place.path, kind, line.head.encode(), body, bytes.fromhex(line.chain))
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"Line {number} of the records cannot be read: {error}.", fix="Export the run again.") from None


def _verified(export: Export, records: list[Record]) -> Verdict:
    said = {"run": export.run, "owner": export.owner, "name": export.name}
    verdict = belongs(records, verify(records), said)
    if verdict.broken_at is not None:
        return verdict
    if verdict.head != export.head:
        problem = "the head stated in the file does not match: records are missing at the end"
        return worse(verdict, verdict.records, problem)
    return _stray(export, unchanged(records, _of_its_playbook(export, records, verdict), _loader(export)))


def _of_its_playbook(export: Export, records: list[Record], verdict: Verdict) -> Verdict:
    begun = records[0]
    if begun.body.startswith(PURGED):
        return verdict
    digest = msgspec.json.decode(begun.body).get("playbook", "")
    text = export.playbooks.get(digest)
    if text is None:
        return worse(verdict, begun.seq, "the playbook it started from is missing")
    if digest_of(text) != digest:
        return worse(verdict, begun.seq, "the playbook it started from was changed")
    return verdict


def _stray(export: Export, verdict: Verdict) -> Verdict:
    """Reports a text that no record refers to and that does not match its digest."""
    if verdict.broken_at is not None:
        return verdict
    for kind, kept in (("text", export.texts), ("playbook", export.playbooks)):
        for digest, text in kept.items():
            if digest_of(text) != digest:
                problem = f"a {kind} that no record refers to does not match its digest"
                return worse(verdict, verdict.records + 1, problem)
    return verdict

"""A run as one file: its records, the playbook and the texts it refers to, so that others can verify it without the store.

The file says itself how to check its chain with nothing but SHA-256. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from cuebook.evidence import Evidence, evidence_of
from cuebook.kernel.belonging import belongs, worse
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import ModelAsked, RunStarted
from cuebook.kernel.journal import PURGED, Codec, Place, Record, Verdict, texts_of, verify

FORMAT = "cuebook-run-1"

HOW = (
    "The records are in order. Of each, chain = SHA-256(chain of the record before + head + SHA-256(body)), over bytes, the"
    " first after 32 zero bytes; head and body are UTF-8 text as it stands here. Where a body was purged, its SHA-256 stands in"
    " its place. Every text and the playbook stand under their own SHA-256. The first body, and that of the last Forked, say"
    " which run it is and who started it. The last chain is the head: compare it"
    " with one that was kept elsewhere."
)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as the file has it."""

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
    """The playbook's name and who started the run, as the store has them; the first record must say the same."""
    head: str
    how: str
    playbooks: dict[str, str]
    texts: dict[str, str]
    records: list[Line]


class Audited(msgspec.Struct, frozen=True):
    """What an audit found, from the store or from a file."""

    run: str
    name: str
    owner: str
    evidence: Evidence
    verdict: Verdict
    purged: int
    """Records that are in the chain, but whose content was purged."""


def export_of(name: str, owner: str, records: Iterable[Record], load: Callable[[str], str], playbook: str) -> Export:
    """`load` gives a long text by its digest, `NotFound` where it was purged."""
    kept = list(records)
    texts: dict[str, str] = {}
    for digest in _referred(kept, load):
        with suppress(NotFound):
            texts[digest] = load(digest)
    head = kept[-1].chain.hex() if kept else ""
    run = kept[-1].run if kept else ""
    lines = [_line(record) for record in kept]
    return Export(FORMAT, run, name, owner, head, HOW, {digest_of(playbook): playbook}, texts, lines)


def _line(record: Record) -> Line:
    head, chain = record.head.decode(), record.chain.hex()
    if record.body.startswith(PURGED):
        return Line(record.run, head, chain, purged=record.body.removeprefix(PURGED).hex())
    return Line(record.run, head, chain, body=record.body.decode())


def _referred(records: Iterable[Record], load: Callable[[str], str]) -> Iterator[str]:
    """The digests of all texts that records refer to, and of those that a model's context is made of."""
    seen: set[str] = set()
    for record in records:
        waiting = texts_of(record)
        while waiting:
            digest = waiting.pop()
            if digest in seen:
                continue
            seen.add(digest)
            yield digest
            if record.kind == ModelAsked.__name__:
                with suppress(NotFound):
                    waiting += _context_parts(load(digest))


def _context_parts(text: str) -> list[str]:
    """A block of a context says what it follows, and which text it holds."""
    try:
        parent, _, held = msgspec.json.decode(text, type=tuple[str, str, str, str, Any])[:3]
    except (msgspec.DecodeError, ValueError):
        return []
    return [digest for digest in (parent, held) if digest]


# --- reading it again -------------------------------------------------------------------------------------


def read_export(text: bytes, name: str) -> Export:
    try:
        export = msgspec.json.decode(text, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{name} is no exported run: {error}.", fix="Give a file that `cuebook audit RUN --export FILE` wrote."
        ) from None
    if export.format != FORMAT:
        raise BadInput(
            f"{name} is of the format '{export.format}', and this version reads {FORMAT}.",
            fix="Read it with the version of Cuebook that wrote it.",
        )
    return export


def audited(export: Export) -> Audited:
    """Verifies everything in the file, and folds the evidence anew: nothing in it is taken on trust."""
    records = [_record(line, number) for number, line in enumerate(export.records, start=1)]
    verdict = _verified(export, records)
    codec = Codec(lambda digest: _found(export, digest))
    return audited_from(export.run, export.name, export.owner, records, verdict, codec)


def audited_from(run: str, name: str, owner: str, records: Iterable[Record], verdict: Verdict, codec: Codec) -> Audited:
    """The evidence that the records give; where the chain is broken, what comes from there on proves nothing."""
    whole = [one for one in records if verdict.broken_at is None or one.seq < verdict.broken_at]
    entries = [codec.entry(record) for record in whole if not record.body.startswith(PURGED)]
    return Audited(run, name, owner, evidence_of(entries), verdict, len(whole) - len(entries))


def _found(export: Export, digest: str) -> str:
    if digest not in export.texts:
        raise NotFound(f"The text {digest} is not in the file: it was purged.")
    return export.texts[digest]


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
        problem = "the head that the file states is another: records are missing at its end"
        return worse(verdict, verdict.records, problem)
    for record in records:
        problem = _changed(export, record)
        if problem:
            return worse(verdict, record.seq, problem)
    return verdict


def _changed(export: Export, record: Record) -> str:
    if any(digest_of(export.texts[one]) != one for one in texts_of(record) if one in export.texts):
        return "a text that it refers to was changed"
    if record.kind == RunStarted.__name__ and not record.body.startswith(PURGED):
        digest = msgspec.json.decode(record.body).get("playbook", "")
        text = export.playbooks.get(digest)
        if text is None or digest_of(text) != digest:
            return "the playbook it started from was changed"
    return ""

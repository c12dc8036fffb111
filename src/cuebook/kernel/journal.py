"""The journal: an append-only sequence of records, each at a place, chained by digest.

A place identifies where in the program a record belongs, by its path and never by the order of calls in the whole run.
Nothing here depends on where records are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from cuebook.kernel.context import INLINE_LIMIT, Block, Context, Text, digest_of
from cuebook.kernel.errors import CuebookError, StoreDamaged
from cuebook.kernel.events import AnyEvent, CancelRequested, ModelAsked, Rewound, RunFinished
from cuebook.kernel.outcomes import AnyOutcome

ROOT = ""
GENESIS = b"\0" * 32
PURGED = b"purged:"

Key = tuple[str, str, int, int]
"""A place without its attempt: the key of an outcome."""


class Place(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Branch path below `All`, step label, visit to that step, index within the visit, attempt."""

    path: str = ROOT
    step: str = ""
    visit: int = 0
    index: int = -1
    """Counts the effects of the visit; -1 for records that are not effects."""
    attempt: int = 1

    @property
    def key(self) -> Key:
        return (self.path, self.step, self.visit, self.index)

    def __str__(self) -> str:
        where = f"step {self.step}" if self.step else "the beginning"
        if self.visit > 1:
            where += f" (visit {self.visit})"
        return f"{where}, branch {self.path}" if self.path else where


def branch_path(parent: str, step: str, visit: int, index: int, number: int) -> str:
    """The path of branch `number` below the `All` at this place."""
    return f"{parent}{quote(step, safe='')}#{visit}.{index}[{number}]/"


def parent_key(path: str) -> Key:
    """The place of the `All` that began a branch."""
    parent, last = path[:-1].rpartition("/")[::2]
    step, _, rest = last.partition("#")
    visit, _, index = rest.partition("[")[0].partition(".")
    return f"{parent}/" if parent else ROOT, unquote(step), int(visit), int(index)


def step_at(place: Place) -> str:
    """The label of the step at a place. For a branch without steps, the step that began the branch."""
    return visit_at(place)[0]


def visit_at(place: Place) -> tuple[str, int]:
    """The label of the step at a place, and which of its visits it is."""
    path, step, visit = place.path, place.step, place.visit
    while not step and path != ROOT:
        path, step, visit, _ = parent_key(path)
    return step, visit


def same_line(path: str, other: str) -> bool:
    """Whether one branch is the other or an ancestor of it; siblings are not on the same line."""
    return path.startswith(other) or other.startswith(path)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry of a run's journal, as it is stored."""

    run: str
    seq: int
    path: str
    kind: str
    head: bytes
    """Number, time, epoch, place and kind, encoded. The chain covers both the head and the body's digest."""
    body: bytes
    """The event, encoded; if it was purged, `PURGED` and its digest."""
    chain: bytes
    """The digest of the previous chain value, the head and the body's digest."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record with its body decoded, as observers see it."""

    run: str
    seq: int
    at: float
    place: Place
    event: AnyEvent


class Codec:
    """Encodes and decodes bodies; `spill` stores long texts and `load` reads them."""

    def __init__(self, load: Callable[[str], str]) -> None:
        self._load = load
        self._spill: dict[str, str] = {}
        self._held: dict[str, str] = {}
        """Long texts that are read back before they are stored."""
        self._stored: list[str] = []
        self._encode = msgspec.json.Encoder(enc_hook=self._hide).encode
        self._decode: Callable[[bytes], AnyEvent] = msgspec.json.Decoder(AnyEvent, dec_hook=self._show).decode

    def encode(self, event: AnyEvent, spill: dict[str, str]) -> bytes:
        self._spill = spill
        return self._encode(event)

    def take_stored(self) -> list[str]:
        """The texts that bodies encoded since the last call refer to without spilling them, because they are stored."""
        found, self._stored = self._stored, []
        return found

    def decode(self, body: bytes) -> AnyEvent:
        return self._decode(body)

    def read_back(self, event: AnyEvent) -> AnyEvent:
        """The event as the journal will return it. Its long texts stay in memory because they are not stored yet."""
        self._held = {}
        try:
            return self._decode(self.encode(event, self._held))
        finally:
            self._held = {}
            self._stored = []

    def entry(self, record: Record) -> Entry:
        if record.body.startswith(PURGED):
            raise CuebookError(f"Record {record.seq} of run {record.run} was purged and cannot be replayed.")
        try:
            seq, at, _, place, _ = _decode_head(record.head)
            return Entry(record.run, seq, at, place, self._decode(record.body))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreDamaged(
                f"Record {record.seq} of run {record.run} cannot be read: {error}.",
                fix="Restore the store from a backup.",
            ) from None

    def _hide(self, value: Any) -> Any:
        if not isinstance(value, Text):
            raise TypeError(f"{type(value).__name__} is not a plain value")
        if len(value) <= INLINE_LIMIT:
            return str(value)
        if value.loaded:
            str(value).encode()  # a store cannot encode half a surrogate pair
            self._spill[value.digest] = str(value)
        else:
            self._stored.append(value.digest)
        return {"digest": value.digest, "length": len(value)}

    def _show(self, wanted: type, value: Any) -> Any:
        if isinstance(value, str):
            return Text(value)
        held = self._held.get(value["digest"])
        return Text(held) if held is not None else Text.stored(value["digest"], value["length"], self._load)


def outcome_from(value: Any) -> AnyOutcome:
    """An outcome from its plain form; raises `msgspec.ValidationError` for anything else."""
    made: AnyOutcome = msgspec.convert(value, AnyOutcome, dec_hook=_text)
    return made


def _text(wanted: type, value: Any) -> Text:
    if not isinstance(value, str):
        raise TypeError(f"Expected a string, got a {type(value).__name__}")
    return Text(value)


def plain(value: Any) -> Any:
    """The value as the journal would return it, so a program sees the same value before and after a crash."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise CuebookError(
            f"A {type(value).__name__} cannot be stored in the journal: {error}.", fix="Return plain values."
        ) from None


def spill_context(context: Context, known: set[str], spill: dict[str, str]) -> None:
    """Adds the blocks that are not stored yet to the journal's long texts, each under its digest."""
    node: Context | None = context
    while node is not None and node.block is not None and node.digest not in known:
        text = str(node.block.text)
        text.encode()  # raises UnicodeError for half a surrogate pair before anything is written
        known.add(node.digest)
        spill[node.digest] = node.head
        spill[node.block.text.digest] = text
        for file in node.block.attachments:
            spill[file.data.digest] = str(file.data)
        node = node.parent


def added_to_known(context: Context, known: set[str]) -> list[Context] | None:
    """The contexts between a known one and this one, oldest first, if their blocks are short enough for a record."""
    added: list[Context] = []
    node: Context = context
    left = INLINE_LIMIT
    while node.digest not in known:
        block = node.block
        if node.parent is None or block is None or block.calls or block.attachments:
            return None
        left -= len(block.text)
        if left < 0:
            return None
        str(block.text).encode()  # as in `spill_context`
        added.append(node)
        node = node.parent
    return added[::-1]


def blocks_in(asked: ModelAsked) -> dict[str, tuple[str, Block]]:
    """The blocks that a record contains, by digest, each with the digest of its predecessor."""
    found: dict[str, tuple[str, Block]] = {}
    parent = asked.since
    for block in asked.added:
        digest = digest_of(block.head(parent))
        found[digest] = (parent, block)
        parent = digest
    return found


_decode_head: Callable[[bytes], tuple[int, float, int, Place, str]]
_decode_head = msgspec.json.Decoder(tuple[int, float, int, Place, str]).decode
_encode_head = msgspec.json.Encoder().encode


def seal(run: str, seq: int, at: float, epoch: int, place: Place, kind: str, body: bytes, previous: bytes) -> Record:
    """A record, chained to the previous record."""
    head = _encode_head((seq, at, epoch, place, kind))
    chain = sha256(previous + head + sha256(body).digest()).digest()  # as `_link` does for a body that was not purged
    return Record(run, seq, place.path, kind, head, body, chain)


def _link(previous: bytes, head: bytes, body: bytes) -> bytes:
    digest = body[len(PURGED) :] if body.startswith(PURGED) else sha256(body).digest()
    return sha256(previous + head + digest).digest()


def time_of(record: Record) -> float:
    return _decode_head(record.head)[1]


def purged(record: Record) -> Record:
    """The record without its body. The digest stays, so the chain remains valid."""
    return msgspec.structs.replace(record, body=PURGED + sha256(record.body).digest())


class Purge(msgspec.Struct, frozen=True):
    """A purge of the contents of records, as the journal says."""

    first: int
    last: int
    by: str
    at: float
    reason: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """The result of `verify`."""

    records: int
    head: str
    """The last chain value. Store it elsewhere: without such an anchor, the chain reveals edits but not a complete rewrite."""
    broken_at: int | None = None
    problem: str = ""
    missing: tuple[str, ...] = ()
    """Digests of texts that records refer to but that were purged or removed. The chain is valid without them."""
    purges: tuple[Purge, ...] = ()
    """What was purged, when and by whom."""


def verify(records: Iterable[Record]) -> Verdict:
    """Checks the chain from its first record. A purged body is fine; a changed body is not."""
    chain, count = GENESIS, 0
    for record in records:
        problem = _problem(record, count + 1, chain)
        if problem:
            return Verdict(count, chain.hex(), record.seq, problem)
        chain, count = record.chain, count + 1
    return Verdict(count, chain.hex())


def _problem(record: Record, expected: int, chain: bytes) -> str:
    if record.seq != expected:
        return f"record {expected} is missing"
    if not all(isinstance(part, bytes) for part in (record.head, record.body, record.chain)):
        return "it was changed"
    if _link(chain, record.head, record.body) != record.chain:
        return "the chain does not match: it was changed"
    seq, _, _, place, kind = _decode_head(record.head)
    if (seq, place.path, kind) != (record.seq, record.path, record.kind):
        return "it was moved"
    return ""


def root_step(place: Place) -> str:
    """The step of the outermost program that a place belongs to."""
    path, step = place.path, place.step
    while path != ROOT:
        path, step, _, _ = parent_key(path)
    return step


def without_void(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are still valid: a `Rewound` voids its branch from a given record on; siblings stay."""
    kept: list[Entry] = []
    for entry in entries:
        event = entry.event
        if type(event) is Rewound:
            kept = [e for e in kept if _survives(e, event)]
        else:
            kept.append(entry)
    return kept


def _survives(entry: Entry, rewound: Rewound) -> bool:
    if isinstance(entry.event, CancelRequested | RunFinished):
        return False
    return entry.seq < rewound.seq or not same_line(entry.place.path, rewound.path)

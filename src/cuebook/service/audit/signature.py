"""Signatures of exported files: the last line of a file signs all bytes before it.

The line is a DSSE envelope, so other programs can verify it. Its payload has the SHA-256 of the bytes before it, and a short
mark of each line, which says where a file was changed; the SHA-256 alone decides whether it was.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import IO, Any

import msgspec

from cuebook import __version__
from cuebook.gate.roles import Principal
from cuebook.service.audit.keys import PublicKey, SigningKey

FORMAT = "cuebook-evidence-1"
PAYLOAD_TYPE = "application/vnd.cuebook.evidence+json"
_BEGINNING = b'{"payloadType":"' + PAYLOAD_TYPE.encode() + b'"'
_MARK = 8
"""Bytes of the SHA-256 of a line that are in its mark."""


class Statement(msgspec.Struct, frozen=True):
    """What is signed."""

    format: str
    made: float
    """When it was signed, in seconds since 1970 by the clock of the machine that signed it."""
    by: str
    """Who exported it, as the installation knows them."""
    tenant: str
    version: str
    """The version of Cuebook."""
    sha256: str
    """Of all bytes before the line with the signature."""
    lines: int
    """How many lines there are before it."""
    marks: str
    """The first 8 bytes of the SHA-256 of each line, with its newline, one after the other, as base64."""


class Signature(msgspec.Struct, frozen=True):
    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True):
    """DSSE version 1."""

    payloadType: str
    payload: str
    signatures: tuple[Signature, ...]


def encoded(payload: bytes) -> bytes:
    """The bytes that a signature is made of: the pre-authentication encoding of DSSE."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


class Signer:
    """Signs files with one key, on behalf of the user who exports them."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    @property
    def key(self) -> str:
        return self._key.public.id

    @property
    def public(self) -> PublicKey:
        return self._key.public

    def line(self, read: Reading, who: Principal, now: float) -> bytes:
        statement = Statement(
            FORMAT, now, who.name, who.tenant, __version__, read.sha256, len(read.marks), _base64(b"".join(read.marks))
        )
        payload = msgspec.json.encode(statement)
        signature = Signature(self.key, _base64(self._key.sign(encoded(payload))))
        return msgspec.json.encode(Envelope(PAYLOAD_TYPE, _base64(payload), (signature,))) + b"\n"


class Reading:
    """The digest and the marks of a file's bytes, as they are read or written."""

    def __init__(self) -> None:
        self.marks: list[bytes] = []
        self._digest = sha256()
        self._line = sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def see(self, data: bytes) -> None:
        self._digest.update(data)
        for part in data.splitlines(keepends=True):
            self._line.update(part)
            if part.endswith(b"\n"):
                self.marks.append(self._line.digest()[:_MARK])
                self._line = sha256()


class SignedFile:
    """Writes to a file, and signs what was written."""

    def __init__(self, file: IO[bytes], signer: Signer | None = None) -> None:
        """Without a signer, the file is not signed."""
        self._file = file
        self._signer = signer
        self._reading = Reading()

    def write(self, data: bytes) -> None:
        if self._signer is not None:
            self._reading.see(data)
        self._file.write(data)

    def sign(self, who: Principal, now: float) -> str:
        """Writes the last line, after a newline; returns the id of the key, or an empty string."""
        if self._signer is None:
            return ""
        self._file.write(self._signer.line(self._reading, who, now))
        return self._signer.key


# --- reading ---


def is_signature(line: bytes) -> bool:
    return line.startswith(_BEGINNING)


def unsigned(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines without a signature at the end. A signature anywhere else is a line like the others."""
    held = b""
    for line in lines:
        if held:
            yield held
            held = b""
        if is_signature(line):
            held = line
        else:
            yield line


def key_of(line: bytes) -> str:
    """The id of the key that a signature names. Nothing is checked."""
    envelope = _envelope(line)
    return envelope.signatures[0].keyid if envelope is not None and envelope.signatures else ""


class Checked(msgspec.Struct, frozen=True):
    """The result of checking a signature."""

    key: str = ""
    """The id of the key that signed it; empty if no key that was given did."""
    statement: Statement | None = None
    """What the key signed. None if that is not known."""
    problem: str = ""
    """Why the file is refused; empty if it is what the key signed."""
    line: int = 0
    """The line where it differs first, or 0."""


def check(lines: Iterable[bytes], keys: Sequence[PublicKey]) -> Checked:
    """Checks that a file, given as its lines, is what one of the keys signed."""
    reading, last = Reading(), b""
    for line in lines:
        reading.see(last)
        last = line
    number = len(reading.marks) + 1
    if not is_signature(last):
        return Checked(problem=_no_signature(last, number), line=number)
    envelope, payload = _envelope(last), None
    if envelope is not None and last.endswith(b"\n"):
        payload = _bytes(envelope.payload)
    if envelope is None or payload is None or msgspec.json.encode(envelope) + b"\n" != last:
        return Checked(problem=f"line {number}, the signature, was changed or cut off", line=number)
    key, problem = _signed_by(envelope, payload, keys)
    if problem:
        return Checked(problem=f"line {number}: {problem}", line=number)
    try:
        statement = msgspec.json.decode(payload, type=Statement)
        marks = _marks(statement)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        statement, marks = None, []
    if statement is None or statement.format != FORMAT:
        return Checked(key, problem=f"line {number}: the signature is of another format", line=number)
    if statement.sha256 == reading.sha256:
        return Checked(key, statement)
    at, words = _difference(marks, reading.marks)
    return Checked(key, statement, words, at)


def _signed_by(envelope: Envelope, payload: bytes, keys: Sequence[PublicKey]) -> tuple[str, str]:
    """The id of the key that signed the payload, or why none of the keys did."""
    named = {one.keyid for one in envelope.signatures}
    for key in keys:
        for one in envelope.signatures:
            signature = _bytes(one.sig)
            if one.keyid == key.id and signature is not None and key.verifies(signature, encoded(payload)):
                return key.id, ""
    known = sorted(named & {key.id for key in keys})
    if known:
        return "", f"the signature is not one of the key {known[0]}: it, or what it signs, was changed"
    signed = ", ".join(sorted(named)) or "no key"
    return "", f"it is signed by {signed}, not by {' or '.join(dict.fromkeys(key.id for key in keys))}"


def _no_signature(last: bytes, number: int) -> str:
    if not last:
        return "it is empty"
    if not last.endswith(b"\n"):
        return f"it is cut off in line {number}, and has no signature"
    return f"it has no signature after line {number}: it was never signed, or its end is missing"


def _difference(signed: list[bytes], found: list[bytes]) -> tuple[int, str]:
    """The first line that differs, and how the lines differ, in words."""
    same = 0
    while same < min(len(signed), len(found)) and signed[same] == found[same]:
        same += 1
    end = 0
    while end < min(len(signed), len(found)) - same and signed[-1 - end] == found[-1 - end]:
        end += 1
    was, now = signed[same : len(signed) - end], found[same : len(found) - end]
    first = same + 1
    if not was and not now:
        return 0, "it differs from what was signed"
    if not now:
        return first, f"{_lines(len(was))} missing after line {same}"
    if not was:
        return first, f"{_span(first, len(now))} {'was' if len(now) == 1 else 'were'} added"
    if sorted(was) == sorted(now):
        return first, f"{_span(first, len(now))} are in another order"
    if len(was) == len(now):
        changed = [first + at for at in range(len(was)) if was[at] != now[at]]
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return first, f"line {changed[0]} was changed{more}"
    return first, f"{_span(first, len(now))} {'was' if len(now) == 1 else 'were'} changed: {len(was)} were signed"


def _lines(count: int) -> str:
    return "a line is" if count == 1 else f"{count:,} lines are"


def _span(first: int, count: int) -> str:
    return f"line {first}" if count == 1 else f"lines {first} to {first + count - 1}"


def _marks(statement: Statement) -> list[bytes]:
    data = _bytes(statement.marks)
    if data is None or len(data) != statement.lines * _MARK:
        raise ValueError
    return [data[at : at + _MARK] for at in range(0, len(data), _MARK)]


def _envelope(line: bytes) -> Envelope | None:
    try:
        return msgspec.json.decode(line, type=Envelope)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    """The bytes of a text in base64. None if it is none, or has another form than the one that encoding makes."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if _base64(found) == text else None


def described(line: bytes) -> str:
    """What a line of an exported file has, such as `record 12`; empty if that is not clear."""
    try:
        found: Any = msgspec.json.decode(line.strip().rstrip(b","))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    match found:
        case {"head": str(head), "chain": str()}:
            seq = head.removeprefix("[").partition(",")[0]
            return f"record {seq}" if seq.isdigit() else ""
        case {"act": {"seq": seq}}:
            return f"administrative act {seq}"
        case {"run": {"row": {"id": run}}} | {"run": {"run": run}}:
            return f"run {run}"
        case {"piece": [_, digest, number, _]}:
            return f"piece {number} of the file {digest}"
        case {"end": _} | {"sha256": _}:
            return "the end"
        case {"format": _}:
            return "the beginning"
    return ""

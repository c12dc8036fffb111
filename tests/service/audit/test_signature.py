"""Signed exports: every change of a file is refused, and the line is named."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from uuid import uuid4

import pytest

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.service.audit.collection import write_collection
from cuebook.service.audit.export import write_export
from cuebook.service.audit.keys import PublicKey, SigningKey, read_public_keys
from cuebook.service.audit.signature import SignedFile, Signer, check, encoded
from cuebook.service.audit.signed_file import verify_file
from cuebook.stores.memory import MemoryStore
from tests.support.programs import begin, service_on

OURS, THEIRS = SigningKey.new(), SigningKey.new()
ANN = Principal("ann")


async def export_of(kind: str, folder: Path, key: SigningKey = OURS) -> bytes:
    """A signed file of this kind, with two runs and an act where it has several."""
    service = service_on(MemoryStore(), folder)
    for run in ("one", "two"):
        await service._engine.drive(await begin(service._engine, "counting", run=run))
    await service.record_act("user.add", "ann", ANN)
    signer, written = Signer(key), io.BytesIO()
    if kind == "runs":
        path = folder / f"{uuid4()}.runs"
        await service.export_runs(["one", "two"], path, ANN, signer)
        written.write(path.read_bytes())
    elif kind == "audit":
        await write_collection(service, SignedFile(written, signer), ANN)
    else:
        signed = SignedFile(written, signer)
        write_export(signed, await service.export("one", ANN))
        signed.sign(ANN, service.clock())
    await service.close()
    return written.getvalue()


@pytest.fixture(params=["run", "audit", "runs"])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def signed(kind: str, tmp_path: Path) -> bytes:
    return await export_of(kind, tmp_path)


def problem(data: bytes, *keys: PublicKey) -> tuple[int, str]:
    found = check(data.splitlines(keepends=True), keys or [OURS.public])
    return found.line, found.problem


async def test_the_public_key_alone_proves_what_is_in_the_file(kind: str, signed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(signed)
    proof = await verify_file(path, [OURS.public])
    assert (proof.kind, proof.key, proof.holds) == (kind, OURS.public.id, True)
    assert [run.run for run in proof.runs] == (["one"] if kind == "run" else ["one", "two"])
    assert all(len(run.head) == 64 and run.status == "completed" for run in proof.runs)
    assert proof.acts == (1 if kind == "audit" else 0)
    assert proof.statement is not None
    assert (proof.statement.by, proof.statement.tenant) == ("ann", "local")


def test_every_line_that_is_changed_is_named(signed: bytes) -> None:
    lines = signed.splitlines(keepends=True)
    assert len(lines) > 3
    for number in range(1, len(lines)):
        line = lines[number - 1]
        at = len(line) // 2
        changed = line[:at] + bytes([line[at] ^ 1 or 1]) + line[at + 1 :]
        found = problem(b"".join([*lines[: number - 1], changed, *lines[number:]]))
        assert found[0] == number or b"\n" in changed[:-1], found
        assert found[1]


def test_every_line_that_is_missing_added_or_moved_is_named(signed: bytes) -> None:
    lines = signed.splitlines(keepends=True)
    last = len(lines) - 1
    for at in range(last):
        number = at + 1
        if at and lines[at] != lines[at - 1]:
            assert problem(b"".join([*lines[:at], *lines[number:]])) == (number, f"a line is missing after line {at}")
        added = problem(b"".join([*lines[:at], b"{}\n", *lines[at:]]))
        assert added == (number, f"line {number} was added")
    for at in range(last - 1):
        swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
        if lines[at] != lines[at + 1]:
            assert problem(b"".join(swapped)) == (at + 1, f"lines {at + 1} to {at + 2} are in another order")
    assert problem(b"".join([*lines[:1], *lines[3:]])) == (2, "2 lines are missing after line 1")


def test_a_file_is_refused_wherever_it_is_cut_off(signed: bytes) -> None:
    lines = signed.splitlines(keepends=True)
    for count in range(len(lines)):
        number, words = problem(b"".join(lines[:count]))
        assert (number, bool(words)) == (count or 1, True)
    for size in range(1, len(signed), max(1, len(signed) // 300)):
        assert problem(signed[:-size])[1]


def test_every_byte_of_the_signature_counts(signed: bytes) -> None:
    *before, line = signed.splitlines(keepends=True)
    beginning = b"".join(before)
    assert problem(beginning + line)[1] == ""
    for at in range(len(line)):
        for byte in (line[at] ^ 1, 32):
            if byte != line[at]:
                assert problem(beginning + line[:at] + bytes([byte]) + line[at + 1 :])[1], (at, byte)


def test_a_signature_written_in_another_way_is_refused(signed: bytes) -> None:
    *lines, last = signed.splitlines(keepends=True)
    for other in (
        last.replace(b'","payload"', b'", "payload"'),
        last.replace(b"}\n", b',"by":"eve"}\n'),
        last.replace(b'"signatures":[', b'"signatures":[],"signatures":['),
        last.replace(b"\n", b"\r\n"),
        last.replace(b"\n", b" \n"),
    ):
        assert other != last
        assert "the signature, was changed" in problem(b"".join([*lines, other]))[1], other


async def test_another_key_proves_nothing(kind: str, signed: bytes, tmp_path: Path) -> None:
    *_, number = range(1, len(signed.splitlines()) + 1)
    words = f"line {number}: it is signed by {OURS.public.id}, not by {THEIRS.public.id}"
    assert problem(signed, THEIRS.public) == (number, words)
    # Somebody else signs a file of their own in our name.
    forged = (await export_of(kind, tmp_path, THEIRS)).replace(THEIRS.public.id.encode(), OURS.public.id.encode())
    line, words = problem(forged)
    assert f"the signature is not one of the key {OURS.public.id}" in words
    assert line
    # The signature of one file at the end of another.
    other = await export_of(kind, tmp_path)
    mixed = b"".join([*signed.splitlines(keepends=True)[:-1], other.splitlines(keepends=True)[-1]])
    assert mixed != signed
    assert problem(mixed)[0] > 0


async def test_a_signature_of_something_else_by_the_same_key_is_refused(signed: bytes) -> None:
    *before, line = signed.splitlines(keepends=True)
    payload = b'{"format":"something-else"}'
    envelope = json.loads(line)
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["signatures"][0]["sig"] = base64.b64encode(OURS.sign(encoded(payload))).decode()
    changed = json.dumps(envelope, separators=(",", ":")).encode() + b"\n"
    assert "another format" in problem(b"".join(before) + changed)[1]


def test_after_a_rotation_one_of_several_keys_has_signed_it(signed: bytes, tmp_path: Path) -> None:
    several = read_public_keys([("old and new", THEIRS.public.pem() + b"# since May\n" + OURS.public.pem())])
    assert problem(signed, *several)[1] == ""
    for wrong in (b"", b"not a key", OURS.public.pem()[:-30], SigningKey.new().pem()):
        with pytest.raises(BadInput) as raised:
            read_public_keys([("wrong.pub", wrong)])
        assert "wrong.pub" in str(raised.value)


def test_a_private_key_is_read_as_pem_or_base64_and_never_repeated() -> None:
    pem = OURS.pem().decode()
    one_line = "".join(pem.splitlines()[1:-1])
    for text in (pem, one_line):
        assert SigningKey.read(text, "here").public.id == OURS.public.id
    for text in ("", "password", pem.replace("M", "N"), OURS.public.pem().decode(), one_line[:-8]):
        with pytest.raises(BadInput) as raised:
            SigningKey.read(text, "here")
        assert not text.strip() or text.strip() not in str(raised.value)
        assert raised.value.__cause__ is None


async def test_what_was_broken_when_it_was_signed_is_not_proven(tmp_path: Path) -> None:
    lines = (await export_of("audit", tmp_path)).splitlines(keepends=True)[:-1]
    lines[1] = lines[1].replace(b"RunStarted", b"RunStortod", 1)
    path = tmp_path / "file"
    with path.open("wb") as file:
        signed = SignedFile(file, Signer(OURS))
        for line in lines:
            signed.write(line)
        signed.sign(ANN, 0.0)
    proof = await verify_file(path, [OURS.public])
    assert (proof.problem, proof.holds) == ("", False)
    assert "run one is broken at record 1" in proof.broken

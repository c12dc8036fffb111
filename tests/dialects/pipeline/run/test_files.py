"""Files that steps produce, and later steps and requests take: of any content, in every store, searched for secrets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.check import beyond_format, check
from cuebook.dialects.pipeline.parse import parse
from cuebook.kernel.files import PIECE
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.service.copies.transfer import copy_runs
from cuebook.stores.memory import MemoryStore
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness
from tests.support.http_servers import Server, answer

POLICY = {**ANYTHING, "files": {"allow": ["read:**", "write:**"]}}
BINARY = bytes(range(256)) * 5000
TOKEN = "canary-secret-4711"

BUILD = """\
name: Build
args: {name: {default: app}}
steps:
  - id: build
    command: cli cp source dist.bin
    files: {archive: dist.bin}
"""


@pytest.fixture
async def harness(tmp_path: Path, store: Store) -> AsyncIterator[PipelineHarness]:
    made = PipelineHarness(tmp_path, POLICY, store=store, environ={"TOK": TOKEN})
    (made.workspace / "source").write_bytes(BINARY)
    yield made
    await made.close()


async def run(harness: PipelineHarness, text: str, **more: Any) -> RunRow:
    harness.pipeline = parse(text, "pipeline.yml")
    return await harness.do(**more)


async def content(harness: PipelineHarness, run: str, name: str) -> bytes:
    found = {one.name: one for one in await harness.service.files(run)}
    _, pieces = await harness.service.file(run, found[name].digest)
    return b"".join([piece async for piece in pieces])


# --- producing ---


async def test_a_file_is_kept_by_its_content_and_outlives_the_workspace(harness: PipelineHarness) -> None:
    row = await run(harness, BUILD)
    assert row.status == "completed", row.error
    (harness.workspace / "dist.bin").unlink()
    (file,) = await harness.service.files(row.id)
    assert (file.step, file.name, file.size) == ("build", "archive", len(BINARY))
    assert file.digest == hashlib.sha256(BINARY).hexdigest()
    assert await content(harness, row.id, "archive") == BINARY
    assert await harness.store.files(row.id) == [file.digest]
    assert len(BINARY) > PIECE  # it has more than one piece
    verdict = await harness.service.verify(row.id)
    assert (verdict.broken_at, verdict.missing) == (None, ())


@pytest.mark.parametrize(
    ("command", "path", "code"),
    [
        ("cli true", "dist.bin", "no_file"),
        ("cli mkdir dist.bin", "dist.bin", "no_file"),
        ("cli ln -s /etc/passwd dist.bin", "dist.bin", "outside_root"),
        ("cli mkfifo dist.bin", "dist.bin", "no_file"),
    ],
)
async def test_what_is_not_a_file_below_the_workspace_fails_the_step(
    harness: PipelineHarness, command: str, path: str, code: str
) -> None:
    row = await run(harness, f"name: B\nsteps:\n  - {{id: a, command: {command}, files: {{f: {path}}}}}\n")
    assert row.error is not None
    assert row.error.code == code
    assert not await harness.store.files(row.id)


async def test_a_secret_in_a_file_fails_the_step_and_nothing_of_it_is_kept(harness: PipelineHarness) -> None:
    padding = "x" * (PIECE - 5)  # so that the secret lies across two pieces
    script = f"printf %s {padding[:100]} > f; head -c {PIECE - 105} /dev/zero >> f; printf %s $T >> f"
    text = f"name: S\nsteps:\n  - id: a\n    command: cli sh -c '{script}'\n    env: {{T: secret:env:TOK}}\n    files: {{f: f}}\n"
    row = await run(harness, text)
    assert row.error is not None
    assert (row.error.code, TOKEN in row.error.message) == ("secret_in_file", False)
    assert TOKEN.encode() in (harness.workspace / "f").read_bytes()
    digest = hashlib.sha256((harness.workspace / "f").read_bytes()).hexdigest()
    assert await harness.store.piece("local", digest, 0) is None


# --- taking ---


async def test_later_steps_and_requests_take_a_file(harness: PipelineHarness) -> None:
    async with Server(answer("ok")) as server:
        row = await run(
            harness,
            f"""{BUILD}\
  - {{id: remove, command: cli rm dist.bin source}}
  - {{id: look, command: cli cksum below/copy.bin, takes: {{below/copy.bin: $build.files.archive}}}}
  - {{id: words, command: 'cli echo ${{build.files.archive.size}} ${{build.files.archive.digest}}'}}
  - {{id: put, command: 'http PUT {server.url("/put")}', with: {{body: {{file: $build.files.archive}}}}}}
  - id: post
    command: http POST {server.url("/post")}
    with:
      multipart:
        note: "for ${{name}}"
        upload: {{file: $build.files.archive, filename: 'a"b.bin', type: application/x-test}}
""",
            inputs={"name": "app"},
        )
        assert row.status == "completed", row.error
        put, post = server.requests
    assert (put.body, put.headers["content-length"]) == (BINARY, str(len(BINARY)))
    assert put.headers["content-type"] == "application/octet-stream"
    kind, _, boundary = post.headers["content-type"].partition("; boundary=")
    parts = post.body.split(f"--{boundary}".encode())
    assert (kind, len(parts), int(post.headers["content-length"])) == ("multipart/form-data", 4, len(post.body))
    assert parts[1] == b'\r\nContent-Disposition: form-data; name="note"\r\n\r\nfor app\r\n'
    head, _, body = parts[2].partition(b"\r\n\r\n")
    assert b'name="upload"; filename="a%22b.bin"\r\nContent-Type: application/x-test' in head
    assert body == BINARY + b"\r\n"
    assert (harness.workspace / "below" / "copy.bin").read_bytes() == BINARY
    assert (await harness.outputs(row.id))["words"] == f"{len(BINARY)} {hashlib.sha256(BINARY).hexdigest()}\n"


async def test_a_response_is_downloaded_to_a_file_byte_by_byte(harness: PipelineHarness) -> None:
    async with Server(answer(BINARY, headers=[("Content-Type", "text/plain")]), answer("no", status=500)) as server:
        text = f"""\
name: D
steps:
  - {{id: get, command: 'http {server.url()}', with: {{download: data}}}}
  - {{id: look, command: 'cli echo ${{get.status}} ${{get.files.data.size}}'}}
"""
        row = await run(harness, text)
        assert row.status == "completed", row.error
        assert await content(harness, row.id, "data") == BINARY
        assert (await harness.outputs(row.id))["look"] == f"200 {len(BINARY)}\n"
        failed = await run(harness, text)
        assert failed.error is not None
        assert (failed.error.code, "no" in failed.error.message) == ("http_status", True)


async def test_an_approval_is_bound_to_the_content_of_a_file(harness: PipelineHarness) -> None:
    async with Server(answer("ok")) as server:
        text = f"{BUILD}  - {{id: put, command: 'http PUT {server.url()}', approval: required, with: {{body: {{file: $build.files.archive}}}}}}\n"
        row = await run(harness, text)
        assert row.status == "awaiting_approval"
        shown = (await harness.wait(row.id)).details["preview"]["body"]
        assert shown == f"the file archive ({len(BINARY):,} bytes, SHA-256 {hashlib.sha256(BINARY).hexdigest()[:12]})"
        assert (await harness.decide(row.id, "approve")).status == "completed"
        assert server.requests[0].body == BINARY


async def test_a_file_of_a_skipped_step_fails_the_step_that_takes_it(harness: PipelineHarness) -> None:
    text = BUILD.replace("    files:", "    condition: false\n    files:")
    row = await run(harness, f"{text}  - {{id: b, command: cli true, takes: {{x: $build.files.archive}}}}\n")
    assert row.error is not None
    assert (row.error.code, "was skipped" in row.error.message) == ("missing_value", True)


# --- keeping ---


async def test_a_fork_keeps_files_and_a_copy_takes_them_along(harness: PipelineHarness) -> None:
    text = f"{BUILD}  - {{id: look, command: cli cksum c, takes: {{c: $build.files.archive}}}}\n"
    row = await run(harness, text)
    (harness.workspace / "dist.bin").unlink()
    forked = await harness.service.restart(row.id, "look")
    again = await harness.service.drive(forked.id)
    assert again.status == "completed", again.error
    assert await harness.store.files(forked.id) == await harness.store.files(row.id)
    assert await content(harness, forked.id, "archive") == BINARY
    other = MemoryStore()
    results = await copy_runs(harness.store, other, lambda one: None)
    assert {one.result for one in results} == {"copied"}
    (digest,) = await other.files(row.id)
    pieces = [await other.piece("local", digest, number) for number in range(2)]
    assert b"".join(piece or b"" for piece in pieces) == BINARY
    await other.close()


async def test_a_changed_piece_is_found_by_verify(tmp_path: Path) -> None:
    store = MemoryStore()
    harness = PipelineHarness(tmp_path, POLICY, store=store)
    (harness.workspace / "source").write_bytes(BINARY)
    row = await run(harness, BUILD)
    ((key, data), *_) = store._pieces.items()
    store._pieces[key] = b"X" + data[1:]
    verdict = await harness.service.verify(row.id)
    assert verdict.broken_at is not None
    assert "the file archive of step build was changed" in verdict.problem
    await harness.close()


# --- mistakes ---


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("files: {a.b: x}", "BAD_FILE"),
        ("files: {a: /etc/x}", "BAD_FILE"),
        ("files: {a: ../x}", "BAD_FILE"),
        ("takes: {x: $first.stdout}", "BAD_FILE"),
        ("takes: {x: $first.files.arch}", "UNKNOWN_REFERENCE"),
        ("takes: {x: $later.files.a}", "UNKNOWN_REFERENCE"),
        ("takes: {../x: $first.files.archive}", "BAD_FILE"),
        ("env: {X: $first.files.archive}", "BAD_FILE"),
        ("env: {X: $first.files.archive.sise}", "BAD_FILE"),
    ],
)
def test_a_mistake_is_reported_with_its_line(field: str, code: str) -> None:
    text = f"name: N\nsteps:\n  - {{id: first, command: cli true, files: {{archive: x}}}}\n  - id: a\n    command: cli true\n    {field}\n"
    found = [(one.code, one.line) for one in check(text, "p.yml") if one.severity == "error"]
    assert found == [(code, 6)]


def test_the_published_format_has_no_files() -> None:
    found = [problem.message for problem in beyond_format(parse(BUILD, "p.yml"))]
    assert any("'files'" in one for one in found)


def test_temporary_files_are_not_left_behind(tmp_path: Path) -> None:
    assert not [name for name in os.listdir("/tmp") if name.startswith("cuebook-file-")]

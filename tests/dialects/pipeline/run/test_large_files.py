"""Files that are larger than the memory of the process, and files whose process is killed."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.dialects.pipeline.run.file_process import harness_in
from tests.support.sampling import many

MEGABYTES = many(60, 300)
_BLOCK = bytes(range(256)) * 256


class Disk:
    """A server that keeps no body: it counts what is sent to it, and sends as much as is asked for."""

    def __init__(self) -> None:
        self.received = 0
        self.digest = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                left, found = int(self.headers["Content-Length"]), hashlib.sha256()
                outer.received = left
                while left:
                    data = self.rfile.read(min(left, 1 << 16))
                    found.update(data)
                    left -= len(data)
                outer.digest = found.hexdigest()
                self.send_response(200)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                size = int(self.path.strip("/"))
                self.send_header("Content-Length", str(size))
                self.end_headers()
                for _ in range(size // len(_BLOCK)):
                    self.wfile.write(_BLOCK)

            def log_message(self, *parts: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def disk() -> Iterator[Disk]:
    made = Disk()
    try:
        yield made
    finally:
        made.close()


def expected(size: int) -> str:
    found = hashlib.sha256()
    for _ in range(size // len(_BLOCK)):
        found.update(_BLOCK)
    return found.hexdigest()


async def started(folder: Path, text: str) -> str:
    (folder / "pipeline.yml").write_text(text)
    harness = harness_in(folder)
    run = await harness.start()
    await harness.close()
    return run


async def driven(folder: Path, run: str, megabytes: int = 0, pieces: int = 0) -> tuple[int | None, str]:
    command = [sys.executable, "-m", "tests.dialects.pipeline.run.file_process", folder, run, megabytes, pieces]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_a_file_passes_through_a_process_that_has_less_memory(tmp_path: Path) -> None:
    size = MEGABYTES << 20
    with disk() as server:
        run = await started(
            tmp_path,
            f"""\
name: Large
steps:
  - {{id: get, command: 'http {server.url}/{size}', timeout_ms: 250000, with: {{download: big}}}}
  - {{id: copy, command: cli cp there here, takes: {{there: $get.files.big}}, files: {{again: here}}, timeout_ms: 250000}}
  - {{id: put, command: 'http PUT {server.url}/x', timeout_ms: 250000, with: {{body: {{file: $copy.files.again}}}}}}
  - {{id: post, command: 'http PUT {server.url}/y', timeout_ms: 250000, with: {{multipart: {{big: {{file: $copy.files.again}}}}}}}}
""",
        )
        code, said = await driven(tmp_path, run, megabytes=150)
        status, grown, *_ = said.split()
        assert (code, status) == (0, "completed"), said
        assert server.received > size  # the form around the file
    assert int(grown) < 40 << 20, said
    harness = harness_in(tmp_path)
    found = await harness.service.files(run)
    assert [(one.step, one.size, one.digest) for one in found] == [
        ("get", size, expected(size)),
        ("copy", size, expected(size)),
    ]
    assert await harness.store.files(run) == [expected(size)]  # stored once
    await harness.close()


async def test_a_download_whose_process_is_killed_is_repeated_and_whole(tmp_path: Path) -> None:
    size = 4 << 20
    with disk() as server:
        run = await started(
            tmp_path,
            f"""\
name: Killed
steps:
  - {{id: get, command: 'http {server.url}/{size}', with: {{download: big}}}}
  - {{id: gate, command: cli true, approval: required}}
  - {{id: put, command: 'http PUT {server.url}/x', with: {{body: {{file: $get.files.big}}}}}}
""",
        )
        code, _ = await driven(tmp_path, run, pieces=2)
        assert code == -9
        harness = harness_in(tmp_path)
        assert not await harness.store.has_file("local", expected(size))
        row = await harness.service.drive(run)
        assert row.status == "awaiting_approval", row.error
        await harness.close()
        harness = harness_in(tmp_path)  # another process continues after the approval
        row = await harness.decide(run, "approve")
        assert row.status == "completed", row.error
        assert (server.received, server.digest) == (size, expected(size))
        verdict = await harness.service.verify(run)
        assert (verdict.broken_at, verdict.missing) == (None, ())
        await harness.close()


async def test_a_command_whose_file_was_not_stored_is_in_doubt(tmp_path: Path) -> None:
    run = await started(
        tmp_path,
        "name: Doubt\nsteps:\n  - {id: make, command: 'cli sh -c \"echo x >> made; cp made f\"', files: {f: f}}\n",
    )
    code, _ = await driven(tmp_path, run, pieces=1)
    assert code == -9
    harness = harness_in(tmp_path)
    row = await harness.service.drive(run)
    assert row.status == "awaiting_approval" or row.reason, row
    (wait,) = await harness.store.waits(run=run)
    assert wait.kind == "in_doubt"
    assert (harness.workspace / "made").read_text() == "x\n"
    await harness.close()

"""A run waits while there are no file descriptors left, and continues when there are."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors
from tests.gate.sandbox.sandboxes import WORKING

SCRIPT = """
import json, os, resource, sys, threading
import cuebook

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
held, told = [], []

def take():
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        threading.Timer(0.25, give_back).start()

def give_back():
    while held:
        os.close(held.pop())

def on_event(entry):
    event = getattr(entry, "event", None)
    told.append(type(event).__name__ + ":" + str(getattr(event, "code", "")))
    if type(event).__name__ == "StepFinished":
        take()

result = cuebook.run(sys.argv[1], on_event=on_event)
print(json.dumps({
    "status": result.status, "error": str(result.error or ""), "waited": told.count("Warned:no_descriptors"),
}))
"""
PIPELINE = """
id: scarce
name: Scarce
version: 1.0.0
steps:
  - {id: first, command: cli true, effect: read}
  - {id: reading, command: cli cat file, effect: read}
  - {id: changing, command: cli sh -c 'echo x >> done'}
  - {id: getting, command: http GET URL}
  - {id: sending, command: http POST URL}
"""


@pytest.fixture
def url() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("sandbox", [*WORKING, "none"])
def test_a_run_waits_for_descriptors(sandbox: str, tmp_path: Path, url: str) -> None:
    config = tmp_path / "config" / "cuebook"
    config.mkdir(parents=True)
    (config / "cuebook.toml").write_text(f'sandbox = "{sandbox}"\n')
    (config / "policy.toml").write_text(
        f'[commands]\nallow = ["*"]\n[egress]\nallow = ["GET {url}*", "POST {url}*"]\n', encoding="utf-8"
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("x")
    (work / "scarce.yml").write_text(PIPELINE.replace("URL", url))
    environ = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START") if name in os.environ},
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "scarce.yml"],
        cwd=work, env=environ, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["status"] == "completed", (told, done.stderr)
    assert told["waited"] >= 1
    assert (work / "done").read_text() == "x\n"


def test_a_lack_of_descriptors_is_detected_by_errno_message_and_cause() -> None:
    assert lacks_descriptors(OSError(24, "x"))
    assert lacks_descriptors(RuntimeError("cannot create log: Too many open files (os error 24)"))
    error = RuntimeError("the connection could not be made")
    error.__cause__ = OSError(23, "x")
    assert lacks_descriptors(error)
    assert not lacks_descriptors(OSError(2, "x"))
    assert not lacks_descriptors(None)
    assert NoDescriptors().code == "no_descriptors"

"""The cost of `cuebook run` for a Markdown playbook up to its first model request: modules and CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

MOST_MODULES, MOST_SECONDS = 212, 0.35

PLAYBOOK = "# Sky\n\n## STEP 1: Say\n\nSay why the sky is blue.\n"
_LISTING = """
import atexit, sys
def listed():
    print(*sorted(name for name in sys.modules if name.partition(".")[0] == "cuebook"), file=sys.stderr)
atexit.register(listed)
from cuebook.surfaces.cli import main
main()
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def first_request(rounds: int) -> dict[str, float]:
    """The number of Cuebook modules that a run imports, and its CPU seconds until it calls the model (median)."""
    with _playbook() as (folder, seconds):
        for _ in range(rounds + 1):
            _run(folder)
        return {"modules": float(len(_modules(folder))), "seconds": median(seconds[1:])}


def imported_modules() -> list[str]:
    """The Cuebook modules that a run imports."""
    with _playbook() as (folder, _):
        return _modules(folder)


@contextmanager
def _playbook() -> Iterator[tuple[str, list[float]]]:
    """A folder with a playbook and a provider, and the CPU seconds of each process when it calls the provider."""
    with tempfile.TemporaryDirectory() as folder, _provider() as (port, seconds):
        Path(folder, "sky.playbook.md").write_text(PLAYBOOK)
        config = f'model = "bench/any"\n[providers.bench]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        Path(folder, ".config", "cuebook").mkdir(parents=True)
        Path(folder, ".config", "cuebook", "cuebook.toml").write_text(config)
        yield folder, seconds


def _modules(folder: str) -> list[str]:
    return _run(folder, "-c", _LISTING).stderr.splitlines()[-1].split()


def _run(folder: str, *how: str) -> subprocess.CompletedProcess[str]:
    store = str(Path(folder, "store.db"))
    kept = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ["HOME"] = folder
    command = [sys.executable, *(how or ("-m", "cuebook")), "run", "sky.playbook.md", "--store", store]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=True)


@contextmanager
def _provider() -> Iterator[tuple[int, list[float]]]:
    """A provider that replies with one word, and records the CPU seconds of the calling process."""
    seconds: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seconds.append(_cpu_of_client(self.client_address[1]))
            self.rfile.read(int(self.headers["Content-Length"]))
            end: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "Light."}, "finish_reason": "stop"}]}
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield server.server_port, seconds
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _cpu_of_client(port: int) -> float:
    """CPU seconds used so far by the child process at the other end of this connection."""
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}")
    )
    for found in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(found) == f"socket:[{inode}]":
                fields = found.parents[1].joinpath("stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / _TICKS
        except OSError:
            continue
    raise RuntimeError("the calling process is gone")


if __name__ == "__main__":
    print(json.dumps(first_request(7)))

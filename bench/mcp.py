"""How much CPU the MCP server takes to start, and how long `tools/list` takes once it is running.

    python -m bench.mcp [--calls 300] [--playbooks 50]

The server is a separate process that speaks over stdio and has that many playbooks. Latency is measured with and without
`--tools`, which offers each playbook as a tool.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BOOK = (
    "# Book {0}\n\n## INPUTS\n\n- `topic` (string: tea): What about\n\n## STEP 1: Write\n\nWrite about {{{{topic}}}}.\n"
)
WANTED_MS, WANTED_CPU = 20.0, 1.5
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class Server:
    """`cuebook mcp` in a child process; requests and responses are exchanged one line at a time."""

    def __init__(self, folder: Path, *args: str) -> None:
        home = folder / "home"
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            "XDG_DATA_HOME": str(home),
        }
        command = [sys.executable, "-m", "cuebook", "mcp", *args]
        self._process = subprocess.Popen(
            command, cwd=folder / "books", env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._number = 0
        self.ask("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert answer["id"] == self._number, answer
        return answer["result"]

    def end(self) -> None:
        self._process.communicate(timeout=30)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def listing(folder: Path, calls: int, *args: str) -> dict[str, float]:
    server = Server(folder, *args)
    try:
        tools = len(server.ask("tools/list", {})["tools"])
        took = []
        for _ in range(calls):
            began = time.perf_counter()
            server.ask("tools/list", {})
            took.append((time.perf_counter() - began) * 1000)
    finally:
        server.end()
    took.sort()
    return {"tools": tools, "median_ms": median(took), "p99_ms": took[int(len(took) * 0.99)]}


def start_cpu(folder: Path) -> float:
    """CPU seconds of a server that starts, lists its tools and exits."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    server = Server(folder)
    server.ask("tools/list", {})
    server.end()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--playbooks", type=int, default=50)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "home").mkdir()
        (folder / "books").mkdir()
        for number in range(chosen.playbooks):
            (folder / "books" / f"book-{number}.md").write_text(BOOK.format(number))
        start_cpu(folder)  # compiles any modules that are not compiled yet
        started = min(start_cpu(folder) for _ in range(3))
        plain = listing(folder, chosen.calls)
        each = listing(folder, chosen.calls, "--tools")
    print(f"start: {started:.2f} s of CPU (target: under {WANTED_CPU})")
    for name, found in (("tools/list", plain), ("tools/list, each playbook a tool", each)):
        print(
            f"{name}: {found['tools']:.0f} tools, median {found['median_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms"
            f" (target: under {WANTED_MS:.0f})"
        )
    print(json.dumps({"start_cpu": started, "list": plain, "list_each": each}))


if __name__ == "__main__":
    main()

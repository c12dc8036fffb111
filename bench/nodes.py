"""What an idle paired node costs: the CPU time of a server with and without a connected node, and that of the node.

    python -m bench.nodes [--seconds 60] [--rounds 3] [--json]

Both are the real commands, in processes of their own. Nothing runs while they are measured, so what they use is what waiting costs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
MOST_MS = 1.0
"""Milliseconds of CPU in a second that count as none."""
_SETTLING = 3.0


def cpu(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used so far, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def used(pids: list[int], seconds: float) -> list[float]:
    """Milliseconds of CPU that each process uses in a second."""
    time.sleep(_SETTLING)
    before, start = [cpu(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - start
    return [1000 * (cpu(pid) - one) / lasted for pid, one in zip(pids, before, strict=True)]


@contextmanager
def started(folder: Path, said: str, *args: str) -> Iterator[tuple[int, str]]:
    """A `cuebook` process that has said something, with the line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cuebook", *args],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if re.search(said, line)), None)
        if line is None:
            raise SystemExit(f"cuebook {args[0]} ended with code {process.wait()}.")
        yield process.pid, line
    finally:
        process.terminate()
        process.wait()


def measure(seconds: float, rounds: int) -> dict[str, float]:
    """The medians of several rounds. In each, the server is measured without a node and then with one."""
    alone, beside, own = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        with started(folder, "http://", "serve", "--port", "0", "--folder", name) as (server, line):
            found = re.search(r"http://[^/\s]+", line)
            assert found is not None
            given = ("--connect", found[0], "--token", token(folder), "--allow", "true", "--no-desktop")
            for _ in range(rounds):
                alone += used([server], seconds)
                with started(folder, "is connected", "node", *given, "--folder", str(folder / "work")) as (node, _):
                    both = used([server, node], seconds)
                beside.append(both[0])
                own.append(both[1])
    return {
        "server_alone_ms": median(alone),
        "server_with_node_ms": median(beside),
        "node_ms": median(own),
        "server_alone_spread_ms": max(alone) - min(alone),
    }


def token(folder: Path) -> str:
    added = subprocess.run(
        [sys.executable, "-m", "cuebook", "nodes", "add", "bench", "--json"],
        env=environ(folder),
        check=True,
        capture_output=True,
        text=True,
    )
    return str(json.loads(added.stdout)["token"])


def environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "CUEBOOK_STORE": str(folder / "runs.db")}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument(
        "--seconds", type=float, default=60.0, help="how long each part is measured; long enough for several pings"
    )
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    found = measure(given.seconds, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    more = found["server_with_node_ms"] - found["server_alone_ms"]
    spread = found["server_alone_spread_ms"]
    print(
        f"an idle server, no node   {found['server_alone_ms']:6.3f} ms of CPU in a second, {spread:.3f} between rounds"
    )
    print(f"what a paired node adds   {more:6.3f} ms of CPU in a second   target < {MOST_MS:.0f} ms")
    print(f"the node itself           {found['node_ms']:6.3f} ms of CPU in a second   target < {MOST_MS:.0f} ms")


if __name__ == "__main__":
    main()

"""The command line and the report that all peer scripts share. Runs in each peer's environment: standard library only."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

# The return value of a step: small, like a short model reply.
VALUE = "v" * 100
# Concurrent runs if a peer is driven by threads: more threads only queue for SQLite's single writer, and were slower.
THREADS = 4


class Options(argparse.Namespace):
    steps: int
    runs: int
    db: str


def options(description: str | None) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=100, help="steps in each run")
    parser.add_argument("--runs", type=int, default=1, help="concurrent runs")
    parser.add_argument(
        "--db", required=True, help="where to put the database files, which must not exist, or a Postgres URL"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object (the only format)")
    return parser.parse_args(namespace=Options())


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


async def timed_async(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def report(package: str, chosen: Options, seconds: dict[str, float]) -> None:
    """Prints how long each way of using the peer took; `best` names the fastest."""
    total = chosen.steps * chosen.runs
    ways: dict[str, dict[str, Any]] = {
        way: {"seconds": took, "ms_per_step": took / total * 1000, "steps_per_second": total / took}
        for way, took in seconds.items()
    }
    best = min(seconds, key=lambda way: seconds[way])
    print(
        json.dumps(
            {
                "peer": package,
                "version": version(package),
                "steps": chosen.steps,
                "runs": chosen.runs,
                "best": best,
                **ways[best],
                "ways": ways,
            }
        )
    )

"""Cuebook's own durable steps: one run alone, many together, many waiting. Each figure is measured in a separate process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from cuebook.formats.database_url import is_database
from cuebook.kernel.effects import AskHuman, Now, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.stores.sqlite import SqliteStore


def _program(row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    def stepping(state: Any) -> Program[Any]:
        for _ in range(inputs["steps"]):
            yield Now()
            marks.append(time.perf_counter())

    def waiting(state: Any) -> Program[Any]:
        yield Now()
        yield AskHuman("Go on?")
        yield Now()

    return waiting if inputs.get("wait") else stepping


marks: list[float] = []


def _open(place: str) -> Store:
    if not is_database(place):
        return SqliteStore(place)
    from cuebook.stores.postgres import PostgresStore

    return PostgresStore(place)


async def _begin(engine: Engine, run: str, **inputs: Any) -> None:
    now = time.time()
    row = RunRow(
        id=run, tenant="bench", owner="bench", dialect="bench", interpreter=1, playbook="bench", name="bench",
        created=now, updated=now,
    )  # fmt: skip
    await engine.start(row, "bench", inputs, Settings())


async def one(place: str, steps: int) -> dict[str, Any]:
    """One run alone: seconds for all its steps, and the cost per step in its first and last tenth."""
    store = _open(place)
    engine = Engine(store, _program, clock=store.now)
    await _begin(engine, "warm", steps=20)
    await engine.drive("warm")
    marks.clear()
    await _begin(engine, "run", steps=steps)
    started = time.perf_counter()
    await engine.drive("run")
    seconds = time.perf_counter() - started
    costs = [b - a for a, b in itertools.pairwise(marks)]
    tenth = max(1, len(costs) // 10)
    await engine.close()
    await store.close()
    return {"seconds": seconds, "early": _median(costs[:tenth]), "late": _median(costs[-tenth:])}


async def together(place: str, runs: int, steps: int) -> dict[str, Any]:
    """Many runs at once: seconds from the first claim to the last end."""
    store = _open(place)
    engine = Engine(store, _program, clock=store.now)
    await asyncio.gather(*(_begin(engine, f"warm{n}", steps=steps) for n in range(50)))
    await asyncio.gather(*(engine.drive(f"warm{n}") for n in range(50)))
    await asyncio.gather(*(_begin(engine, f"run{n}", steps=steps) for n in range(runs)))
    started = time.perf_counter()
    await asyncio.gather(*(engine.drive(f"run{n}") for n in range(runs)))
    seconds = time.perf_counter() - started
    await engine.close()
    await store.close()
    return {"seconds": seconds}


async def waiting(place: str, runs: int) -> dict[str, Any]:
    """Many runs that wait for a person: memory above that of an idle process, and the time to answer and finish one."""
    store = _open(place)
    engine = Engine(store, _program, clock=store.now)
    await _begin(engine, "idle", wait=True)
    await engine.drive("idle")
    idle = _memory()
    for first in range(0, runs, 200):
        batch = [f"run{n}" for n in range(first, min(runs, first + 200))]
        await asyncio.gather(*(_begin(engine, run, wait=True) for run in batch))
        await asyncio.gather(*(engine.drive(run) for run in batch))
    held = _memory() - idle
    answers = []
    for number in range(0, runs, max(1, runs // 20)):
        run = f"run{number}"
        started = time.perf_counter()
        (wait,) = await store.waits(run=run)
        await store.complete_wait(wait.id, {"value": "yes"}, "bench", store.now())
        row = await engine.drive(run)
        answers.append(time.perf_counter() - started)
        assert row.status == "completed"
    await engine.close()
    await store.close()
    return {"megabytes": held / 1e6, "answer": _median(answers), "answer_worst": max(answers)}


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _memory() -> int:
    """The peak memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=["one", "together", "waiting"])
    options.add_argument("--db", required=True, help="the file, or the URL of an empty Postgres database")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--runs", type=int, default=1)
    chosen = options.parse_args()
    gc.freeze()  # as the command line does
    gc.set_threshold(10_000, 20, 20)
    if chosen.what == "one":
        result = asyncio.run(one(chosen.db, chosen.steps))
    elif chosen.what == "together":
        result = asyncio.run(together(chosen.db, chosen.runs, chosen.steps))
    else:
        result = asyncio.run(waiting(chosen.db, chosen.runs))
    print(json.dumps(result))


if __name__ == "__main__":
    main()

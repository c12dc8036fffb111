"""What 10,000 idle schedules cost a server: the CPU time of a process that fires schedules, with them and without any, side by
side. `python -m bench.schedules [--schedules N] [--seconds S] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cuebook.config import load
from cuebook.service.triggers import Target
from cuebook.service.triggers.cron import next_moment
from cuebook.service.triggers.schedules import Schedule
from cuebook.stores.sqlite import SqliteStore
from cuebook.wiring.wiring import Wiring

BOOK = "name: Idle\nsteps:\n  - id: say\n    command: cli echo x\n    effect: read\n"


async def fill(folder: Path, count: int) -> None:
    """A store with schedules that fire in the next year, and not in the next minutes."""
    book = folder / "idle.yml"
    book.write_text(BOOK)
    store = SqliteStore(folder / "store.db", synchronous="NORMAL")
    now = store.now()
    month = time.gmtime(now + 60 * 86400).tm_mon
    for number in range(count):
        cron = f"{number % 60} {number // 60 % 24} {number % 28 + 1} {month} *"
        schedule = Schedule(
            tenant="local", name=f"s{number}", owner="local", target=Target(str(book), "idle.yml"), created=now,
            cron=cron, zone="Europe/Berlin", next=next_moment(cron, "Europe/Berlin", now),
        )  # fmt: skip
        assert await store.put_job(schedule.job(now)) is not None
    await store.close()


async def idle(folder: Path, seconds: float) -> None:
    """Does what a server does besides driving runs, and prints the CPU time of the start and of the time after it."""
    wiring = Wiring(load({"store": str(folder / "store.db"), "workspace": str(folder)}, folder=folder))
    service = wiring.service()
    began = time.process_time()
    async with wiring.background(service):
        await asyncio.sleep(4)  # the first look at all schedules
        started = time.process_time()
        await asyncio.sleep(seconds)
        print(started - began, time.process_time() - started)
    await service.close()


def measured(folder: Path, seconds: float) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.schedules", "--idle", str(folder), "--seconds", str(seconds)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(said[0]), float(said[1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", type=int, default=10_000)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--idle", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.idle:
        asyncio.run(idle(Path(chosen.idle), chosen.seconds))
        return
    with tempfile.TemporaryDirectory() as place:
        empty, full = Path(place, "empty"), Path(place, "full")
        for folder, count in ((empty, 0), (full, chosen.schedules)):
            folder.mkdir()
            asyncio.run(fill(folder, count))
        pairs = [(measured(empty, chosen.seconds), measured(full, chosen.seconds)) for _ in range(chosen.rounds)]
    for what, part in (("start", 0), (f"{chosen.seconds:g} s idle", 1)):
        without = statistics.median(one[0][part] for one in pairs)
        having = statistics.median(one[1][part] for one in pairs)
        share = having / (chosen.seconds if part else 1)
        print(
            f"{what}: {without:.3f} s of CPU without schedules, {having:.3f} s with {chosen.schedules:,}"
            f" (ratio {having / without:.2f}{f', {share:.2%} of a core' if part else ''})"
        )


if __name__ == "__main__":
    main()

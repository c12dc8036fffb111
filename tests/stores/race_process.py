"""A second process on one store: `race_process.py FOLDER [HOST]`. It executes each line and prints the
result. With a HOST, it counts as a process of another machine.

- `answer WAIT VALUE NAME AT`, `expire AT`, `cancel RUN AT`: at that moment, so that two processes do it at once.
- `drive RUN`: with a tool `hold` that prints `holding` and blocks until the file `go` exists.
- `look RUN`: reads everything about a run.
- `take NAME MOST AT`, `free SLOT`: slots of a limit; `take` prints the slot, or `none`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cuebook.kernel.effects import CallTool
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import AnyOutcome, ToolResult
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Signal
from cuebook.stores import leases
from tests.support.programs import performers, program_of
from tests.support.shared_stores import SharedStore, open_shared

LEASE = 0.5


class Holding:
    """Blocks, and does not notice when its process is stopped and continued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        print("holding", flush=True)
        while not (self.folder / "go").exists():
            await asyncio.sleep(0.01)
        with (self.folder / "lines").open("a") as file:
            file.write("held\n")
        return ToolResult("from the first")


def until(moment: str) -> None:
    """Spins until the moment, because a sleep would be late by more than a commit takes."""
    while time.time() < float(moment):
        pass


async def obey(store: SharedStore, engine: Engine, said: list[str]) -> str:
    match said:
        case ["answer", wait, value, name, moment]:
            until(moment)
            await store.complete_wait(wait, {"value": value}, name, 1000.0)
            return f"won {name}"
        case ["expire", moment]:
            until(moment)
            return "expired " + ",".join(await store.expire(5000.0))
        case ["cancel", run, moment]:
            until(moment)
            await store.signal(Signal(run, "cancel", {}, "other"))
            return "cancelled"
        case ["take", name, most, moment]:
            await engine._beat()
            until(moment)
            return str(await store.take_slot(name, int(most), engine.driver) or "none")
        case ["free", slot]:
            await store.free_slot(int(slot))
            return "freed"
        case ["drive", run]:
            return (await engine.drive(run)).status
        case ["look", run]:
            steps, waits = await store.steps(run), await store.waits(run=run)
            records = [record.kind async for record in store.records(run)]
            verdict = await engine.verify(run)
            row = await store.run(run)
            text = await store.playbook(row.playbook)
            return f"{row.status} {len(steps)} {len(waits)} {len(records)} {verdict.broken_at} {text}"
        case _:
            return f"what is {said}?"


async def main(folder: Path, host: str = "") -> None:
    leases.LEASE = LEASE
    if host:
        patch.object(leases, "this_host", lambda: host).start()
    store = open_shared(folder)
    holding: dict[str, Any] = {"hold": Holding(folder)}
    engine = Engine(store, program_of, performers(folder, **holding), heartbeat_every=0.1, listen_every=0.02)
    engine.observe(lambda event: None)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            print(await obey(store, engine, line.split()), flush=True)
        except CuebookError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
    await engine.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))

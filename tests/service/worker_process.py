"""A worker: drives every run that is ready in a store, until it is killed. `worker_process.py STORE LEASE [HOST]`, in its
workspace. With a HOST, it counts as a process of another machine.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest.mock import patch

from cuebook.config import load
from cuebook.service.worker import Worker
from cuebook.stores import leases
from cuebook.wiring.wiring import Wiring


async def main(store: str, lease: float, host: str = "") -> None:
    leases.LEASE = lease
    if host:
        patch.object(leases, "this_host", lambda: host).start()
    wiring = Wiring(load({"store": store, "synchronous": "NORMAL"}, folder=Path.cwd()))
    service = wiring.service()
    service._engine._heartbeat_every = lease / 4
    worker = Worker(service, wiring.factory.workspace.path, every=0.05)
    await worker.open()
    print("serving", flush=True)
    known: set[str] = set()
    while True:
        for run in set(await service.ready()) - known:
            known.add(run)
            await worker.take(run)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))

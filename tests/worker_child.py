"""A worker: drives whatever is ready in a store, until it is killed. `worker_child.py STORE LEASE`, in its workspace."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cuebook.config import load
from cuebook.stores import transaction
from cuebook.surfaces.wiring import Wiring


async def main(store: str, lease: float) -> None:
    transaction.LEASE = lease
    service = Wiring(load({"store": store, "synchronous": "NORMAL"}, folder=Path.cwd())).service()
    service.engine._heartbeat_every = lease / 4
    print("serving", flush=True)
    await service.engine.serve(every=0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))

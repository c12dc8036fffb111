"""A worker: drives whatever is ready in a store, until it is killed. `worker_child.py STORE LEASE [HOST]`, in its workspace.
With a HOST, it counts as a process of another machine.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest.mock import patch

from cuebook.config import load
from cuebook.stores import leases
from cuebook.surfaces.wiring import Wiring


async def main(store: str, lease: float, host: str = "") -> None:
    leases.LEASE = lease
    if host:
        patch.object(leases, "this_host", lambda: host).start()
    service = Wiring(load({"store": store, "synchronous": "NORMAL"}, folder=Path.cwd())).service()
    service.engine._heartbeat_every = lease / 4
    print("serving", flush=True)
    await service.engine.serve(every=0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))

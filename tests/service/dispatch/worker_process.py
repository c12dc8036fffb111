"""A worker under Temporal, until it is killed or asked to stop. `worker_process.py OPTIONS`, in its workspace, with OPTIONS as
JSON: settings by name, `lease` and `beat` in seconds, and `host`, with which it counts as a process of another machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cuebook.config import load
from cuebook.stores import leases
from cuebook.wiring.wiring import Wiring
from tests.service.dispatch.pace import quicken


async def main(options: dict[str, Any]) -> None:
    lease = options.pop("lease")
    quicken(options.pop("beat"), lease)
    if host := options.pop("host"):
        patch.object(leases, "this_host", lambda: host).start()
    wiring = Wiring(load(options, folder=Path.cwd()))
    service = wiring.service()
    service._engine._heartbeat_every = lease / 4
    worker = wiring.temporal_worker(service)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        await worker.open()
        print("serving", flush=True)
        await stopped.wait()
    finally:
        await worker.drain()
        await service.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

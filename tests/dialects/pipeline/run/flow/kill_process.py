"""A process that drives a run of a pipeline until it is killed: `kill_process.py FOLDER RUN [LEASE]`. FOLDER contains the pipeline.
With a lease in seconds, it looks like a process on another machine, so that only its heartbeats say that it lives."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest.mock import patch

from cuebook.dialects.pipeline.parse import parse
from cuebook.stores import leases
from tests.dialects.pipeline.harness import PipelineHarness


def harness_on(folder: Path) -> PipelineHarness:
    harness = PipelineHarness(folder)
    harness.pipeline = parse((folder / "pipeline.yml").read_text(), "pipeline.yml")
    return harness


async def main(folder: Path, run: str, lease: str = "") -> None:
    if lease:
        leases.LEASE = float(lease)
        patch.object(leases, "this_host", lambda: "elsewhere").start()
    harness = harness_on(folder)
    if lease:
        harness.service._engine._heartbeat_every = leases.LEASE / 5
    while True:
        await harness.service.take_up(run)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))

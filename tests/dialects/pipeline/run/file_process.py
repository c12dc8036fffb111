"""A process that drives a pipeline with files: `file_process.py FOLDER RUN MEGABYTES PIECES`.

Its memory is limited to MEGABYTES, and it kills itself after storing PIECES pieces of files, unless that is 0. It prints
the run's status, and how many bytes its memory grew while it drove the run.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from cuebook.dialects.pipeline.parse import parse
from cuebook.gate.limits import Ceilings
from cuebook.kernel.ports import Limits
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness

POLICY = {**ANYTHING, "files": {"allow": ["read:**", "write:**"]}}
CEILINGS = Ceilings(Limits(seconds=250.0))


def harness_in(folder: Path) -> PipelineHarness:
    harness = PipelineHarness(folder, POLICY, ceilings=CEILINGS, environ={"TOK": "a-secret-that-is-searched-for"})
    harness.pipeline = parse((folder / "pipeline.yml").read_text(), "pipeline.yml")
    return harness


async def main(folder: Path, run: str, megabytes: int, pieces: int) -> None:
    harness = harness_in(folder)
    harness.vault.know("env:TOK")
    stored = 0
    put = harness.store.put_piece

    async def put_piece(*given: object) -> None:
        nonlocal stored
        await put(*given)  # type: ignore[arg-type]
        stored += 1
        if stored == pieces:
            os.kill(os.getpid(), signal.SIGKILL)

    harness.store.put_piece = put_piece  # type: ignore[method-assign,assignment]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if megabytes:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))
    row = await harness.service.drive(run)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(row.status, grown << 10, row.error, flush=True)
    await harness.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

"""A process that drives a run of a pipeline until it is killed: `kill_process.py FOLDER RUN`. FOLDER contains the pipeline."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cuebook.dialects.pipeline.parse import parse
from tests.dialects.pipeline.harness import PipelineHarness


def harness_on(folder: Path) -> PipelineHarness:
    harness = PipelineHarness(folder)
    harness.pipeline = parse((folder / "pipeline.yml").read_text(), "pipeline.yml")
    return harness


async def main(folder: Path, run: str) -> None:
    harness = harness_on(folder)
    while True:
        await harness.service.take_up(run)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

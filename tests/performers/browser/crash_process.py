"""A process that drives a run with web steps until it is killed: `crash_process.py FOLDER RUN PIPELINE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cuebook.dialects.pipeline.parse import parse
from tests.performers.browser.harness import BrowserHarness


async def main(folder: Path, run: str, text: str) -> None:
    harness = BrowserHarness(folder, environ={"PASSWORD": "open-sesame-4711"})
    harness.pipeline = parse(text, "web.yml")
    await harness.service.drive(run)
    await harness.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_text()))

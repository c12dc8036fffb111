"""Starts and drives runs in a store until it is killed. `backup_load_process.py FOLDER NAME`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.programs import begin, service_on
from tests.support.shared_stores import open_shared


async def main(folder: Path, name: str) -> None:
    service = service_on(open_shared(folder), folder)
    number = 0
    while True:
        run = f"{name}{number}"
        await service._engine.drive(await begin(service._engine, "counting", run=run, n=20))
        print(run, flush=True)
        number += 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

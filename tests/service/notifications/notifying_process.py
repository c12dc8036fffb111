"""Delivers what is due in a test's store, until it is killed: `notifying_process.py FOLDER URL NOW`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.service.notifications.notified import Notified, webhook
from tests.support.shared_stores import open_shared


async def main(folder: Path, url: str, now: float) -> None:
    notified = Notified(open_shared(folder), folder, webhook(url), now=now)
    await notified.look()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))

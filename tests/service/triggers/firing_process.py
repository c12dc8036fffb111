"""A process that fires schedules until it is killed. `firing_process.py FOLDER [before|after]`: with the second argument, it kills
itself just before or after it has started the first run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.run import RunRow, Settings
from cuebook.kernel.triggers import SCHEDULE
from cuebook.service.job_runner import JobRunner
from cuebook.service.triggers import Target, Triggers
from cuebook.service.triggers.schedules import Schedules
from cuebook.service.triggers.target import playbook_of
from tests.support.programs import service_on
from tests.support.shared_stores import open_shared

HELD = 0.4
"""Seconds after which another process takes the job of one that died."""


async def main(folder: Path, dies: str) -> None:
    store = open_shared(folder)
    service = service_on(store, folder)

    async def start(
        playbook: Playbook, target: Target, inputs: Mapping[str, Any], who: Principal, *, key: str, trigger: str
    ) -> RunRow:
        if dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        row = await service.start(playbook, dict(inputs), Settings(), who, key=key, trigger=trigger)
        if dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    schedules = Schedules(Triggers(store, service, start, playbook_of))
    print("ready", flush=True)
    await JobRunner(store, {SCHEDULE: schedules.handle}, held=HELD, look=0.02).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))

"""A process that drives the program of `crash_process` and is killed in the middle of an action: `kill_process.py FOLDER RUN WHERE`.

WHERE is `python:1` or `python:2` (while the process of a Python playbook runs, the first or the second time), `between` (one
of two concurrent calls has ended, the other has not), or `stream` (a model has started its reply and is still writing).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from cuebook.dialects.program.machine import machine
from cuebook.kernel.effects import RunPython
from cuebook.kernel.events import BranchFinished, TextChunk
from cuebook.kernel.ports import Sandbox
from cuebook.performers.python.performer import PythonPerformer
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import Says, ScriptedModel
from tests.dialects.program.crashes.crash_process import said, settle
from tests.dialects.program.harness import ProgramHarness


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


class Dying:
    """A sandbox that kills this process once its n-th process has started."""

    def __init__(self, sandbox: Sandbox, number: int) -> None:
        self._sandbox, self._left = sandbox, number
        self.name = sandbox.name
        self.problem = sandbox.problem

    async def spawn(self, confinement: Any) -> Any:
        process = await self._sandbox.spawn(confinement)
        self._left -= 1
        if not self._left:
            die()
        return process


class Logged:
    """The replies of `crash_process`, with a log of the playbook of each."""

    def __init__(self, path: Path, where: str = "") -> None:
        self._path, self._where = path, where
        self.ended = asyncio.Event()
        """A call that ran beside another has ended, and that is on disk."""

    async def __call__(self, request: Any) -> str | Says:
        shown = "\n".join(turn.text for turn in request.messages)
        names = [name for name in ("Shout", "Size", "Enough") if f"Executing {name}(" in shown]
        with self._path.open("a") as file:
            file.write(f"{(names or ['Main'])[0]}\n")
        if self._where == "between" and names == ["Shout"]:
            await self.ended.wait()
            die()
        text = said(request)
        if self._where == "stream" and "a word?" in text:
            return Says(text, chunk=4, wait_for=asyncio.Event(), pause_at=text.index("trig?"))
        return text


def service_on(store: SqliteStore, folder: Path, where: str = "") -> Service:
    replies = Logged(folder / "asked.txt", where)
    service = ProgramHarness(store=store).service(ScriptedModel(replies))
    if where.startswith("python"):
        performer = service._engine.performers[RunPython]
        assert isinstance(performer, PythonPerformer)
        performer._sandbox = Dying(performer._sandbox, int(where.partition(":")[2]))

    def see(event: Any) -> None:
        if isinstance(getattr(event, "event", None), BranchFinished):
            replies.ended.set()
        if where == "stream" and isinstance(event, TextChunk) and "a word?" in event.text:
            die()

    service.observe(see)
    return service


async def main(folder: Path, run: str, where: str) -> None:
    store = SqliteStore(folder / "store.db")
    await settle(service_on(store, folder, where), run)


if __name__ == "__main__":
    machine.CHECKPOINT_EVERY = 3
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))

"""No sandbox: a process in its own process group, with limits and a clean environment, but otherwise unrestricted.

Only an explicit setting selects it. It works wherever there is a shell. Processes that have left the group are found and
killed afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Collection

from cuebook.gate.sandbox import orphans, process_tree
from cuebook.gate.sandbox.child import Child
from cuebook.gate.sandbox.limits import WATCH, Overrun, Watched, hard_memory
from cuebook.kernel.ports import Confined, Confinement, Limits, SandboxName

_SWEEPS = 200
_BETWEEN_SWEEPS = 0.01

# The shell sets its own limits before it executes the program, so that no part of the program runs without them.
_LIMITED = """
ulimit -c 0 2>/dev/null || :
ulimit -t "$1" 2>/dev/null || :
ulimit -n "$2" 2>/dev/null || :
ulimit -d "$3" 2>/dev/null || :
shift 3
exec "$@"
"""


class Unconfined:
    """Starts processes with all of our own permissions."""

    @property
    def name(self) -> SandboxName:
        return "none"

    @property
    def problem(self) -> str:
        return ""

    async def spawn(self, confinement: Confinement) -> Confined:
        await confinement.hold()
        await orphans.clear_once()
        mark = orphans.mark()
        env = {**confinement.env, orphans.MARK: mark}
        child = Child(_limited(confinement), env=env, cwd=confinement.cwd)
        return _Free(child, f"{orphans.MARK}={mark}", confinement.limits)


def _limited(confinement: Confinement) -> list[str]:
    limits = confinement.limits
    values = (limits.cpu_seconds, limits.open_files, hard_memory(limits) >> 10)
    return ["/bin/sh", "-c", _LIMITED, "sh", *map(str, values), *confinement.argv]


class _Free:
    def __init__(self, child: Child, mark: str, limits: Limits) -> None:
        self._child = child
        self._mark = mark
        self.pid = child.pid
        self.stdin, self.stdout, self.stderr = child.streams
        self.overrun: Overrun | None = None
        """The limit whose violation ended it, if any."""
        self.refused: Collection[str] = ()
        self._code: int | None = None
        self._ending = threading.Lock()
        self._signalled: set[int] = set()
        self._watched = Watched(child.pid, limits, self._too_much)
        WATCH.add(self._watched)

    def terminate(self) -> None:
        with self._ending:
            if self._code is None:
                process_tree.send_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._sweep()

    async def wait(self) -> int:
        await asyncio.shield(self._child.ended)
        WATCH.remove(self._watched)
        for _ in range(_SWEEPS):
            if not self._sweep():
                break
            await asyncio.sleep(_BETWEEN_SWEEPS)
        with self._ending:
            if self._code is None:
                self._code = self._child.reap()
        return self._code

    def _sweep(self) -> bool:
        """Kills the group and all processes known to come from it; returns whether any were left."""
        with self._ending:
            # Once the process is reaped, its PID may belong to another process.
            if self._code is not None:
                return False
            process_tree.send_group(self.pid, signal.SIGKILL)
            orphans = {*self._watched.leftovers(), *process_tree.marked(self._mark)} - {self.pid, os.getpid()}
            for pid in orphans:
                process_tree.send(pid, signal.SIGKILL)
            for pid in self._signalled:
                process_tree.bury(pid)
            self._signalled |= orphans
            return bool(orphans)

    def _too_much(self, what: Overrun) -> None:
        self.overrun = self.overrun or what
        self.kill()

"""No sandbox: a process in a group of its own, with limits and a clean environment, and otherwise as free as we are.

Only an explicit setting leads here. It works wherever there is a shell; what leaves the group is looked for afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from cuebook.gate.sandbox import strays, tree
from cuebook.gate.sandbox.child import Child
from cuebook.gate.sandbox.rlimits import hard_memory
from cuebook.gate.sandbox.watch import WATCH, Overrun, Watched
from cuebook.kernel.confinement import Confined, Confinement, Limits, SandboxName

_SWEEPS = 200
_BETWEEN_SWEEPS = 0.01

# A shell sets its own limits before it becomes the program: nothing of the program has run without them by then.
_LIMITED = """
ulimit -c 0 2>/dev/null || :
ulimit -t "$1" 2>/dev/null || :
ulimit -n "$2" 2>/dev/null || :
ulimit -d "$3" 2>/dev/null || :
shift 3
exec "$@"
"""


class Unconfined:
    """Starts processes that may do whatever we may."""

    @property
    def name(self) -> SandboxName:
        return "none"

    @property
    def problem(self) -> str:
        return ""

    async def spawn(self, confinement: Confinement) -> Confined:
        await confinement.hold()
        await strays.clear_once()
        mark = strays.mark()
        env = {**confinement.env, strays.MARK: mark}
        child = Child(_limited(confinement), env=env, cwd=confinement.cwd)
        return _Free(child, f"{strays.MARK}={mark}", confinement.limits)


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
        """Which limit it went beyond, if that ended it."""
        self._code: int | None = None
        self._ending = threading.Lock()
        self._signalled: set[int] = set()
        self._watched = Watched(child.pid, limits, self._too_much)
        WATCH.add(self._watched)

    def terminate(self) -> None:
        with self._ending:
            if self._code is None:
                tree.send_group(self.pid, signal.SIGTERM)

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
        """Ends the group and whatever else can be told to come from it; whether anything was still there."""
        with self._ending:
            # Once it is reaped, its number may be another's.
            if self._code is not None:
                return False
            tree.send_group(self.pid, signal.SIGKILL)
            strays = {*self._watched.leftovers(), *tree.marked(self._mark)} - {self.pid, os.getpid()}
            for pid in strays:
                tree.send(pid, signal.SIGKILL)
            for pid in self._signalled:
                tree.bury(pid)
            self._signalled |= strays
            return bool(strays)

    def _too_much(self, what: Overrun) -> None:
        self.overrun = self.overrun or what
        self.kill()

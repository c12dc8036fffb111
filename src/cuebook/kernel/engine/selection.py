"""Runs the branches of an `All` that is limited: so many at once, or until one of them decides it.

Which branches never began depends on time, so it is recorded; everything else follows from the ends of the branches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from cuebook.kernel.effects import All
from cuebook.kernel.outcomes import SUPERSEDED, Failed

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

DECIDED = Failed(SUPERSEDED, "Stopped, because another branch decided the outcome.")
"""The failure of a branch that was interrupted."""
_UNBEGUN = Failed(SUPERSEDED, "Not begun, because another branch decided the outcome.")


def is_superseded(outcome: Any) -> bool:
    return isinstance(outcome, Failed) and outcome.code == SUPERSEDED


class Selection:
    """The branches of one `All`: those that ended, those under way, and those that still have to begin."""

    def __init__(self, driver: Driver, line: Line, asked: All, paths: list[str], closed: bool) -> None:
        """`closed` means that it was decided before, and that the branches without records never began."""
        self._driver, self._line, self._asked, self._paths = driver, line, asked, paths
        self._decided = closed
        self._outcomes: list[Any] = [None] * len(paths)
        self._waiting: deque[int] = deque()
        self._running: dict[asyncio.Task[Any], int] = {}

    async def outcomes(self) -> tuple[Any, ...]:
        known = self._driver.recorded.branches
        for number, path in enumerate(self._paths):
            if path in known:
                self._end(number, self._driver.ended_before(known[path]))
            else:
                self._waiting.append(number)
        if self._decided:
            self._keep_begun()
        try:
            await self._run()
        finally:
            for task in self._running:
                task.cancel()
        return tuple(self._outcomes)

    async def _run(self) -> None:
        most = self._asked.at_once or len(self._paths)
        active = 1  # the line around it is idle while a branch has its turn
        while True:
            if self._driver.stops(self._line):
                self._keep_begun()
            while self._waiting and len(self._running) < most:
                self._begin(self._waiting.popleft())
            for _ in range(active, len(self._running)):
                self._driver.move()
            for _ in range(max(1, len(self._running)), active):
                self._driver.rest()
            active = max(1, len(self._running))
            if not self._running:
                return
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = self._running.pop(task)
                self._end(number, task.result())  # an engine error ends the drive, even if other branches are waiting

    def _begin(self, number: int) -> None:
        cut = self._decided and self._asked.until == "success"
        task = self._driver.begin_branch(self._line, self._paths[number], self._asked.branches[number], cut=cut)
        self._running[task] = number

    def _end(self, number: int, outcome: Any) -> None:
        self._outcomes[number] = outcome
        failed = isinstance(outcome, Failed)
        if self._decided or not self._asked.until or failed != (self._asked.until == "failure"):
            return
        self._decided = True
        self._keep_begun()
        if self._asked.until == "success":
            for other in self._running.values():
                self._driver.cut(self._paths[other])

    def _keep_begun(self) -> None:
        """Gives up the branches that have not begun. Those that began before a crash continue, or are interrupted."""
        waiting, self._waiting = self._waiting, deque()
        for number in waiting:
            if self._driver.recorded.has_begun(self._paths[number]):
                self._waiting.append(number)
            else:
                self._outcomes[number] = _UNBEGUN

"""Drives the runs of a comparison, a few at a time, and starts no more of them than the money that is left allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow
from cuebook.service.comparisons import Cell, Comparison
from cuebook.service.service import Principal, Service
from cuebook.testing.comparison.plan import Plan

AT_ONCE = 4
"""The number of runs that are driven at the same time, unless it is chosen."""


class CostLimit:
    """The money of a comparison: what is spent, and what is set aside for the runs that are being driven."""

    def __init__(self, most: float | None, spent: float) -> None:
        self.most = most
        self.spent = spent
        self._aside: dict[Cell, float] = {}
        self._changed = asyncio.Condition()

    @property
    def left(self) -> float:
        return 0.0 if self.most is None else self.most - self.spent - sum(self._aside.values())

    async def take(self, cell: Cell, bound: float | None) -> float | None:
        """Sets aside the most that a run may cost, as soon as that is left; None if it never will be.

        A run whose cost is unknown gets all that is left, while no other run is being driven.
        """
        async with self._changed:
            while True:
                wanted = max(self.left, 0.0) if bound is None else bound
                alone = not self._aside
                if (bound is not None and bound <= self.left) or (bound is None and alone and self.left > 0):
                    self._aside[cell] = wanted
                    return wanted
                if alone:
                    return None
                await self._changed.wait()

    async def pay(self, cell: Cell, cost: float) -> None:
        async with self._changed:
            self._aside.pop(cell, None)
            self.spent += cost
            self._changed.notify_all()


See = Callable[[Cell, RunRow | None, str], None]
"""Called for each run that waits or has ended, with the reason if one was not started or could not be driven."""


async def drive_all(
    service: Service,
    made: Plan,
    comparison: Comparison,
    rows: Mapping[Cell, RunRow],
    left: Sequence[Cell],
    see: See,
    who: Principal = Principal(),
    *,
    at_once: int = AT_ONCE,
    most: float | None = None,
    bound: Callable[[Cell], float | None] = lambda cell: None,
) -> bool:
    """Drives the runs that are left until each waits or ends. Returns whether the money was enough for all of them.

    An error of one run, such as a model that is no longer known, is reported and does not stop the others.
    """
    limit = CostLimit(most, sum(row.totals.cost for row in rows.values()))
    waiting = iter(left)
    enough = True

    async def work() -> None:
        nonlocal enough
        for cell in waiting:
            before = rows.get(cell)
            already = 0.0 if before is None else before.totals.cost
            money: float | None = None
            if most is not None:
                known = bound(cell)
                money = await limit.take(cell, None if known is None else max(0.0, known - already))
                if money is None:
                    enough = False
                    see(cell, before, _too_dear(known, limit.left))
                    continue
            row: RunRow | None = before
            try:
                if row is None:
                    row = await made.start(service, comparison, cell, who, money)
                row = await service.drive(row.id)
                see(cell, row, "")
            except CuebookError as error:
                see(cell, row, str(error))
            finally:
                if most is not None:
                    paid = 0.0 if row is None else (await service.row(row.id)).totals.cost
                    await limit.pay(cell, paid - already)

    tasks = [asyncio.create_task(work()) for _ in range(min(at_once, len(left)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return enough


def _too_dear(bound: float | None, left: float) -> str:
    if bound is None or left <= 0:
        return "not started, because the money is spent"
    return f"not started: it may cost up to {money_words(bound)}, and {money_words(left)} is left"


def unfinished(comparison: Comparison, rows: Mapping[Cell, RunRow], tenant: str) -> list[Cell]:
    """The cells whose runs are not started, or have not ended."""
    cells = comparison.runs(tenant).values()
    return [cell for cell in cells if cell not in rows or rows[cell].status not in ENDED]

"""Counts what a Postgres store contains."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cuebook.kernel.ports import JobCount, Tally


class TallyTables:
    """The part of the store that counts."""

    _all: Callable[[str, tuple[Any, ...]], Awaitable[list[Any]]]

    async def tally(self, now: float) -> Tally:
        runs = await self._all(
            "SELECT status, count(*), count(*) FILTER (WHERE status IN ('pending', 'running') AND driver = '')"
            " FROM runs GROUP BY status",
            (),
        )
        waits = await self._all("SELECT kind, count(*) FROM waits WHERE state = 'open' GROUP BY kind", ())
        jobs = await self._all(
            "SELECT kind, count(*), count(*) FILTER (WHERE due <= %s), min(due) FROM jobs GROUP BY kind", (now,)
        )
        return Tally(
            runs={status: count for status, count, _ in runs},
            queued=sum(queued for _, _, queued in runs),
            waits=dict(waits),
            jobs={
                kind: JobCount(count, due, 0.0 if first is None else max(0.0, now - first))
                for kind, count, due, first in jobs
            },
        )

"""Whether somebody is at a run. Its journal cannot tell: what a driver did not write when it was stopped is not in there."""

from __future__ import annotations

from collections.abc import Iterable

from cuebook.kernel.events import UNDER_WAY
from cuebook.kernel.run import RunRow
from cuebook.surfaces.web.site import Site


async def is_interrupted(site: Site, row: RunRow) -> bool:
    """Whether a run is under way by its row, and goes on only when somebody resumes it."""
    return row.status in UNDER_WAY and not await site.drivers.attends(row.id)


async def interrupted(site: Site, rows: Iterable[RunRow]) -> frozenset[str]:
    """The ids of those among some runs."""
    return frozenset([row.id for row in rows if await is_interrupted(site, row)])

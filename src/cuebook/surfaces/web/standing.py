"""Whether a run is interrupted. Its journal cannot say: what a driver did not write when it was stopped is not in there."""

from __future__ import annotations

from collections.abc import Iterable

from cuebook.kernel.run import RunRow
from cuebook.service import Principal
from cuebook.surfaces.web.site import Site


async def is_interrupted(site: Site, row: RunRow) -> bool:
    """Whether a run would go on if a process drove it, and goes on only when somebody resumes it."""
    return await site.service.is_interrupted(row.id) and not await site.drivers.attends(row.id)


async def interrupted(site: Site, rows: Iterable[RunRow], who: Principal) -> frozenset[str]:
    """The ids of those among some runs."""
    left = {row.id for row in await site.drivers.left(who)}
    return frozenset(row.id for row in rows if row.id in left)

"""Whether a run is interrupted. Its journal does not say so: a driver that is stopped writes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from cuebook.kernel.run import RunRow
from cuebook.service.service import Principal
from cuebook.surfaces.web.site import Site


async def is_interrupted(site: Site, row: RunRow) -> bool:
    """Whether a run is unfinished and not driven, and continues only when someone resumes it."""
    return await site.service.is_interrupted(row.id) and not await site.worker.is_attended(row.id)


async def interrupted(site: Site, rows: Iterable[RunRow], who: Principal) -> frozenset[str]:
    """The ids of the interrupted runs among these."""
    left = {row.id for row in await site.worker.interrupted(who)}
    return frozenset(row.id for row in rows if row.id in left)

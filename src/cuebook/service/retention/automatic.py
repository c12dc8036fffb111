"""Removes old runs while a server or worker is running, as `[retention]` says: slowly, and once per store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cuebook.kernel.errors import CuebookError
from cuebook.service.retention.criteria import Criteria
from cuebook.service.service import Principal, Service

log = logging.getLogger("cuebook")

EVERY = 3600.0
"""Seconds between two prunes of a store, however many processes serve it."""
_FIRST = 30.0
"""Seconds after the start of the process before it prunes for the first time."""
_LOOK = 60.0
_PAUSE = 0.2
"""Seconds between two runs."""
SLOT = "retention"
_BY = "retention"


@asynccontextmanager
async def automatic(
    service: Service,
    criteria: Criteria,
    *,
    contents: bool = False,
    sensitive: float | None = None,
    every: float = EVERY,
    first: float = _FIRST,
) -> AsyncIterator[None]:
    """Prunes in the background until the end of the block, if the criteria say anything, and purges the sensitive inputs of
    runs that ended. Runs that may be retried keep theirs for so many seconds (`sensitive`).
    """
    task = asyncio.create_task(_prune_repeatedly(service, criteria, contents, sensitive, every, first))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _prune_repeatedly(
    service: Service, criteria: Criteria, contents: bool, sensitive: float | None, every: float, first: float
) -> None:
    pause = first
    while True:
        await asyncio.sleep(pause)
        pause = min(_LOOK, every)
        try:
            if await service.is_first(SLOT, every):
                if not await service.retention.clock_is_steady():
                    log.warning("retention: the clock has jumped ahead by days; nothing is removed until tomorrow.")
                    continue
                purged = await service.sensitive.sweep(sensitive)
                if purged:
                    log.info("retention: the sensitive inputs of %d runs were purged.", purged)
                if criteria.says_something:
                    await _prune(service, criteria, contents)
        except CuebookError as error:  # a lock or a full disk may be temporary
            log.warning("retention: %s", error)


async def _prune(service: Service, criteria: Criteria, contents: bool) -> None:
    for tenant in await service.retention.tenants():
        who = Principal(_BY, tenant)
        outcome = await service.retention.prune(criteria, who, contents=contents, reason="[retention]", pause=_PAUSE)
        removed = len(outcome.deleted) + len(outcome.purged)
        if removed:
            log.info("retention: %d runs of %s removed, %d kept.", removed, tenant, len(outcome.blocked))
    await service.retention.sweep()

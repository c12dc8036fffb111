"""What somebody is told who comes too late: who answered before them, when, and what."""

from __future__ import annotations

from cuebook.decisions import decided
from cuebook.kernel.errors import AlreadyAnswered
from cuebook.kernel.events import WaitClosed
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.web.site import Site
from cuebook.surfaces.wording import moment, short


async def answered_already(site: Site, wait: str) -> AlreadyAnswered:
    """For whoever may see the wait, which may be seen with its answer."""
    row = await site.service.store.wait(wait)
    done = "Decided" if row.kind in ("approval", "in_doubt") else "Answered"
    at = await _closed(site, row)
    when = "" if at is None else f" at {moment(at)}"
    said = decided(row) or short(row.answer.get("value", ""))
    reason = short(row.answer.get("reason", ""))
    words = f"{done} already by {row.by}{when}"
    words += f": {said}" if said else ""
    words += f" ({reason})" if reason else ""
    return AlreadyAnswered(f"{words}.", fix="What you gave was not taken. The run's page shows how it goes on.")


async def _closed(site: Site, wait: WaitRow) -> float | None:
    """When the run heard of it; none while it has not."""
    async for entry in site.service.engine.entries(wait.run):
        if isinstance(entry.event, WaitClosed) and entry.event.wait == wait.id:
            return entry.at
    return None

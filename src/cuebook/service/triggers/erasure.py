"""Removes what triggers keep about a person whose data is erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.gate.standing_permissions import STANDING
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.triggers import NAMED_TRIGGERS
from cuebook.service.triggers.events import EVENT_TRIGGERS
from cuebook.service.triggers.schedules import Schedule
from cuebook.service.triggers.trigger import Trigger

Fits = Callable[[Mapping[str, Any]], bool]
"""Whether these inputs are those of the person."""
_EVERY: tuple[type[Trigger], ...] = (Schedule, *EVENT_TRIGGERS)
_KINDS = {one.KIND: one for one in _EVERY}
_PAGE = 500


async def forget_triggers(
    store: Store, tenant: str, owner: str, fits: Fits | None = None, *, dry_run: bool = False
) -> list[str]:
    """Removes the triggers of a person (of everyone, without an owner) whose runs would have inputs that fit, with what
    they were allowed in advance, and the waiting events of others that fit. Returns the triggers that were removed.
    """
    removed: list[str] = []
    for kind in NAMED_TRIGGERS:
        after = ""
        while page := await store.jobs(kind, tenant, after, _PAGE):
            for job in page:
                if await _forget(store, job, owner, fits, dry_run):
                    removed.append(_KINDS[kind].of(job).trigger)
            after = page[-1].name
    return removed


async def _forget(store: Store, job: Job, owner: str, fits: Fits | None, dry_run: bool) -> bool:
    found: Job | None = job
    while found is not None:  # another process may be changing it at the same time
        trigger = _KINDS[found.kind].of(found)
        if owner not in ("", trigger.owner):
            return False
        if fits is not None and not fits(trigger.target.inputs):
            kept = _without(trigger, fits)
            if dry_run or kept is trigger or await store.put_job(kept.job(store.now(), found.version)) is not None:
                return False
        elif dry_run:
            return True
        elif await store.drop_job(found):
            await store.forget(found.tenant, STANDING, trigger.trigger)
            return True
        found = await store.job(found.tenant, found.kind, found.name)
    return False


def _without(trigger: Trigger, fits: Fits) -> Trigger:
    """The trigger without the waiting firings whose runs would have inputs that fit."""
    waiting = [one for one in (*trigger.requested, trigger.queued) if one is not None]
    gone = {one.key for one in waiting if fits({**trigger.target.inputs, **one.inputs})}
    if not gone:
        return trigger
    queued = trigger.queued if trigger.queued is not None and trigger.queued.key not in gone else None
    requested = tuple(one for one in trigger.requested if one.key not in gone)
    return msgspec.structs.replace(trigger, requested=requested, queued=queued)

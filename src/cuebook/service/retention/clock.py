"""Notices that the clock has jumped ahead, so that automatic retention removes nothing because of a wrong date.

A machine that was off for days looks the same; then retention begins a day later.
"""

from __future__ import annotations

from cuebook.kernel.ports import Job, Store

JUMP = 2 * 86400.0
"""Seconds between two looks that count as a jump."""
SETTLES = 86400.0
"""Seconds after a jump in which nothing is removed."""
KIND = "retention_clock"


async def is_steady(store: Store) -> bool:
    """Whether the store's clock has not jumped ahead since yesterday; call it more often than a jump is long."""
    job = await store.job("", KIND, KIND) or Job(tenant="", kind=KIND, name=KIND, due=None)
    now = store.now()
    jumped = float(job.body.get("jumped", 0.0))
    if now - float(job.body.get("looked", now)) > JUMP:
        jumped = now
    body = {"looked": now, "jumped": jumped}
    await store.put_job(Job(tenant="", kind=KIND, name=KIND, due=None, body=body, version=job.version))
    return not 0 <= now - jumped < SETTLES

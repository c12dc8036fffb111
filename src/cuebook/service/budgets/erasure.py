"""Removes what budgets keep about runs that are deleted, and about people whose data is erased."""

from __future__ import annotations

from collections.abc import Collection

from cuebook.kernel.ports import Store
from cuebook.service.budgets.budget import MARK, RELEASE
from cuebook.service.budgets.calendar import PERIODS

_LAST = tuple(f"{period} {what}" for period in PERIODS for what in ("soft", "hard"))


async def forget_runs(store: Store, tenant: str, runs: Collection[str]) -> None:
    """Drops their permissions to continue beyond a budget, which have the reasons that people gave."""
    for name, body in (await store.kept(tenant, RELEASE)).items():
        if body["run"] in runs:
            await store.forget(tenant, RELEASE, name)


async def forget_person(store: Store, tenant: str, person: str) -> None:
    """Makes what a person used anonymous, and drops the records of periods that were notified."""
    await store.forget_owner(tenant, person)
    for name in await store.kept(tenant, MARK):
        if name.endswith(tuple(f" {person} {last}" for last in _LAST)):
            await store.forget(tenant, MARK, name)

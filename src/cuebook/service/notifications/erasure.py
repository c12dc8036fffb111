"""Removes what notifications keep about runs that are deleted, and about people whose data is erased."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from cuebook.kernel.notices import NOTICE
from cuebook.kernel.ports import Job, Store
from cuebook.service.access.people import FORMER
from cuebook.service.notifications.message import MESSAGE
from cuebook.service.notifications.people import LINK, PREFERENCES

_PAGE = 500


async def forget_runs(store: Store, tenant: str, runs: Collection[str]) -> None:
    """Drops the notices and messages of these runs, delivered or not: they have texts of the run."""
    await _drop(store, tenant, lambda said: said.get("run") in runs)


async def forget_person(store: Store, tenant: str, person: str) -> None:
    """Drops the messages about a person's runs and those for them, their preferences, their Slack accounts, and the note that
    they were a user."""
    await _drop(store, tenant, lambda said: person in (said.get("owner"), said.get("to")))
    await store.forget(tenant, PREFERENCES, person)
    await store.forget(tenant, FORMER, person)
    for account, body in (await store.kept(tenant, LINK)).items():
        if body["person"] == person:
            await store.forget(tenant, LINK, account)


async def forget_messages(store: Store, tenant: str, person: str) -> None:
    """Drops the messages for a person that are not delivered yet."""
    await _drop(store, tenant, lambda said: said.get("to") == person)


async def _drop(store: Store, tenant: str, concerned: Callable[[dict[str, Any]], bool]) -> None:
    for kind in (NOTICE, MESSAGE):
        after = ""
        while page := await store.jobs(kind, tenant, after, _PAGE):
            for job in page:
                if concerned(job.body):
                    await _drop_job(store, job)
            after = page[-1].name


async def _drop_job(store: Store, job: Job) -> None:
    """Another process may be changing the job at the same time."""
    found: Job | None = job
    while found is not None and not await store.drop_job(found):
        found = await store.job(job.tenant, job.kind, job.name)

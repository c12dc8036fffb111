"""What the service asks of a store to remember something that has to be done later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, WaitRow


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do at a moment, such as the next firing of a schedule or a message to send."""

    tenant: str
    kind: str
    name: str
    due: float | None
    """When it has to be done; None if it waits for something other than the time."""
    body: dict[str, Any] = {}
    version: int = 0
    """Raised by each change, so that of two processes that change a job only the first succeeds; 0 for a new one."""


Outbox = Callable[[RunRow, Sequence[Entry], Sequence[WaitRow]], Sequence[Job]]
"""The jobs that follow from new records of a run and the waits that they open. They are put in the same transaction."""


class Jobs(Protocol):
    """The part of a store that keeps jobs."""

    async def put_job(self, job: Job) -> Job | None:
        """Adds a job of version 0, or replaces the job of this version. Returns it with its new version, or None if there is
        another one under this name, or another process changed it.
        """

    async def take_jobs(self, kinds: Sequence[str], now: float, until: float, limit: int = 100) -> list[Job]:
        """Jobs that are due, the earliest first. Each is postponed, so no other process gets it before `until`; it is due
        again then, unless it was replaced or dropped.
        """

    async def drop_job(self, job: Job) -> bool:
        """Removes the job of this version. Returns False if another process changed or removed it."""

    async def job(self, tenant: str, kind: str, name: str) -> Job | None: ...

    async def jobs(self, kind: str, tenant: str | None = None, after: str = "", limit: int | None = None) -> list[Job]:
        """Jobs of a kind by tenant and name; `after` is the last name of the page before."""

    async def jobs_named(self, kind: str, name: str) -> list[Job]:
        """The jobs of a kind with this name, of all tenants."""
        ...

    async def next_due(self, kinds: Sequence[str]) -> float | None:
        """When the next job of these kinds is due."""

"""The worker of a surface whose runs are driven by workers in other processes: it wakes them and follows them."""

from __future__ import annotations

import asyncio

from cuebook.gate.roles import Principal
from cuebook.kernel.run import RunRow
from cuebook.service.dispatch.follow import a_worker, its_turn, missing_worker, rested
from cuebook.service.worker import Worker


class RemoteWorker(Worker):
    """Has the interface of a worker, and drives nothing itself except runs of this process's own Python programs, and runs
    that wait for a node which is connected here.
    """

    async def open(self) -> None:
        await self._service.connect()
        await self._service.stream.listen(self._news.set)
        self._loop = asyncio.create_task(self._serve())

    async def _look(self) -> None:
        offer = self._service.offer
        if offer is not None and offer.connected:
            await super()._look()

    async def _should_take(self, run: str, now: float) -> bool:
        row, offer = await self._service.row(run), self._service.offer
        return offer is not None and offer.meets(row.needs) and not await self._is_foreign(run)

    async def take(self, run: str, *, adopt: bool = False) -> None:
        """The service has already woken the run."""

    async def can_drive(self, run: str) -> bool:
        return await self._has_workers(run)

    async def is_attended(self, run: str) -> bool:
        return await self._has_workers(run) or await self.is_driven(run)

    async def interrupted(self, who: Principal) -> list[RunRow]:
        rows = await self._service.interrupted(who)
        return [row for row in rows if not self.drives(row.id)]

    async def waits_for(self, run: str) -> str:
        if not await self._has_workers(run):
            return await super().waits_for(run)
        missing = await missing_worker(self._service, run)
        return a_worker(missing) if missing else await its_turn(self._service, run)

    async def other_workspace(self, run: str) -> str:
        return ""

    async def _can_continue(self, run: str) -> bool:
        if not await self._has_workers(run):
            return await super()._can_continue(run)
        await self._service.expire(run)
        return await rested(self._service, run) is None

    async def until_idle(self) -> None:
        """Its runs continue elsewhere."""

    async def _has_workers(self, run: str) -> bool:
        return self._service.is_dispatched(await self._service.row(run))

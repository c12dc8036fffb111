"""Schedules on a store whose clock the test moves, with a service that starts real runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.notices import NOTICE
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.kernel.triggers import SCHEDULE
from cuebook.service.job_runner import JobRunner
from cuebook.service.triggers import Target, Triggers
from cuebook.service.triggers.schedules import Schedule, Schedules
from cuebook.service.triggers.target import playbook_of
from tests.support.programs import service_on

TEA = "# Tea\n\n- CUP: what to drink from (default: mug)\n\n## STEP 1: Brew\n\nBrew a {{CUP}} of tea.\n"


def at(moment: str) -> float:
    """A moment in UTC, as in `2026-03-02 06:00`."""
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


class Clocked:
    """A store, a service and the job runner of one process, at a moment that the test chooses."""

    def __init__(self, store: Store, folder: Path, now: str) -> None:
        self.store, self.folder = store, folder
        self.set(now)
        self.service = service_on(store, folder)
        self.service.notifies = True
        self.triggers = Triggers(store, self.service, self._start, playbook_of)
        self.schedules = Schedules(self.triggers)
        self.runner = JobRunner(store, {SCHEDULE: self.schedules.handle})
        self.book = folder / "tea.md"
        self.book.write_text(TEA)

    async def _start(
        self, playbook: Playbook, target: Target, inputs: Mapping[str, Any], who: Principal, *, key: str, trigger: str
    ) -> RunRow:
        return await self.service.start(playbook, dict(inputs), Settings(), who, key=key, trigger=trigger)

    def set(self, now: str) -> None:
        moment = at(now)
        self.store.now = lambda: moment  # type: ignore[method-assign]

    async def add(self, cron: str = "0 * * * *", zone: str = "UTC", name: str = "tea", **given: Any) -> Schedule:
        from cuebook.service.triggers.cron import next_moment

        now = self.store.now()
        target = Target(str(self.book), "tea.md", inputs=given.pop("inputs", {}))
        owner = given.pop("owner", "local")
        return await self.schedules.add(
            Schedule(
                tenant="local", name=name, owner=owner, target=target, created=now,
                cron=cron, zone=zone, next=next_moment(cron, zone, now), **given,
            )
        )  # fmt: skip

    async def look(self, now: str = "") -> None:
        """Does everything that is due at this moment."""
        if now:
            self.set(now)
        await self.runner.once()
        await self.runner.settled()

    async def schedule(self, name: str = "tea") -> Schedule:
        return await self.triggers.get(Schedule, name)

    async def history(self, name: str = "tea") -> list[tuple[str, str]]:
        """What became of the firings, the oldest first."""
        return [(one.key, one.state) for one in reversed((await self.schedule(name)).history)]

    async def runs(self) -> list[RunRow]:
        return await self.store.runs(limit=None)

    async def notices(self) -> list[str]:
        return [str(job.body["text"]) for job in await self.store.jobs(NOTICE) if job.body["what"] == "schedule"]

    async def end(self, run: str) -> None:
        """Ends a run that is unfinished."""
        await self.service.cancel(run)
        await self.service.take_up(run)

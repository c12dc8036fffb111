"""Makes messages of notices: which channels and people get one, and when a wait that stays open is mentioned again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.config.notifications import Notifications, Rules
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import CuebookError, NotFound, StoreError
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.run import WaitRow
from cuebook.service.notifications.message import MESSAGE
from cuebook.service.notifications.people import People
from cuebook.service.waits.decisions import check_may_answer, check_may_decide

if TYPE_CHECKING:
    from cuebook.service.queries import Queries


class Planner:
    """Takes notices."""

    def __init__(self, store: Store, runs: Queries, settings: Notifications, people: People) -> None:
        self._store = store
        self._runs = runs
        self._settings = settings
        self._people = people

    async def handle(self, job: Job) -> Job | None:
        """Puts the messages of a notice that are due. Returns it with the moment of its next reminder, if there is one.

        A message that was put before a crash is found again and not put twice.
        """
        wait = await self._wait(job)
        if "wait" in job.body and (wait is None or wait.state != "open"):
            return None  # it was answered meanwhile
        rules = self._settings.rules(str(job.body.get("playbook", "")))
        steps, done = _steps(rules, wait), int(job.body.get("done", 0))
        first = done == 0
        if first:
            await self._put(job, rules, wait, 0)
            done = 1
        passed = [number for moment, number in steps[done:] if moment <= self._store.now()]
        reminders = [number for number in passed if number != _ESCALATION]
        if reminders and not first:  # of several that a sleeping machine missed, only the last one
            await self._put(job, rules, wait, reminders[-1])
        if _ESCALATION in passed:
            await self._put(job, rules, wait, _ESCALATION)
        done += len(passed)
        if done >= len(steps):
            return None
        return msgspec.structs.replace(job, due=steps[done][0], body={**job.body, "done": done})

    async def _wait(self, job: Job) -> WaitRow | None:
        if "wait" not in job.body:
            return None
        try:
            return await self._store.wait(str(job.body["wait"]))
        except NotFound:
            return None

    async def _put(self, job: Job, rules: Rules, wait: WaitRow | None, number: int) -> None:
        said = {"channel": "", "state": "pending", "attempts": 0, "error": "", "since": self._store.now()}
        again: dict[str, Any] = {}
        if number:
            again = {"escalated": True} if number == _ESCALATION else {"reminder": number}
        body = {**{name: value for name, value in job.body.items() if name != "done"}, **said, **again}
        async for channel, person in self._recipients(job, rules, wait, number):
            name = f"{job.name}.{number}.{channel}.{person}"
            to = {"to": person} if person else {}
            made = Job(
                tenant=job.tenant,
                kind=MESSAGE,
                name=name,
                due=self._store.now(),
                body={**body, "channel": channel, **to},
            )
            await self._store.put_job(made)

    async def _recipients(
        self, job: Job, rules: Rules, wait: WaitRow | None, number: int
    ) -> AsyncIterator[tuple[str, str]]:
        """The channels, and the people over their own channels."""
        what = str(job.body["what"])
        if job.tenant == self._settings.tenant:
            if number == _ESCALATION:
                for channel in rules.escalate_to or ():
                    yield channel, ""
            elif what in (rules.events or ()):
                for channel in rules.send_to or ():
                    yield channel, ""
        if number == _ESCALATION:
            return
        for person, wanted in (await self._people.all_preferences(job.tenant)).items():
            if wanted.wants(what, str(job.body.get("playbook", ""))) and await self._concerns(
                job, wait, person, wanted.runs
            ):
                for channel in wanted.channels:
                    yield channel, person

    async def _concerns(self, job: Job, wait: WaitRow | None, person: str, runs: str) -> bool:
        """Whether a notice is a person's own, or one of a run that they may see and, if it waits, continue."""
        owner, run = str(job.body.get("owner", "")), str(job.body.get("run", ""))
        named = wait is not None and person in _named(wait)
        if runs == "mine" and owner != person and not named:
            return False
        try:
            who = await self._people.principal(person, job.tenant)
            if run:
                await self._runs.get(run, who)
            elif owner != person and not who.may("admin"):
                return False
            return owner == person or wait is None or may_end(wait, who)
        except StoreError:
            raise
        except CuebookError:  # they are gone, or may not see it
            return False


_ESCALATION = -1


def _steps(rules: Rules, wait: WaitRow | None) -> list[tuple[float, int]]:
    """When a wait is mentioned: at first, in each reminder, and when it is escalated."""
    if wait is None:
        return [(0.0, 0)]
    steps = [(wait.opened, 0)]
    if rules.remind_after is not None:
        steps += [
            (wait.opened + rules.remind_after * number, number) for number in range(1, (rules.reminders or 0) + 1)
        ]
    if rules.escalate_after is not None and rules.escalate_to:
        steps.append((wait.opened + rules.escalate_after, _ESCALATION))
    return [steps[0], *sorted(steps[1:])]


def _named(wait: WaitRow) -> tuple[str, ...]:
    """The people whom a wait is for by name."""
    from cuebook.kernel.votes import rule_of

    return tuple(wait.details.get("by", ())) if wait.kind == "question" else rule_of(wait.details).by


def may_end(wait: WaitRow, who: Principal) -> bool:
    """Whether a person may end a wait."""
    try:
        if wait.kind in ("approval", "in_doubt"):
            who.require("approver", "decide this")
            check_may_decide(wait, who)
        else:
            who.require("runner", "continue runs")
            check_may_answer(wait, who)
    except CuebookError:
        return False
    return True

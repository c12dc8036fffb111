"""What people do with triggers: add, look at, pause, resume, fire, allow and remove them. Each change is recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec

from cuebook.dialects.dialect import Input
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.gate.standing_permissions import Allowed, Standing
from cuebook.kernel.errors import BadInput, Conflict, CuebookError
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.ports import Job
from cuebook.service.job_runner import HELD
from cuebook.service.preview.explanation import Explanation
from cuebook.service.service import Service
from cuebook.service.triggers.events import EVENT_TRIGGERS, AfterTrigger, Events, EventTrigger, Webhook, check_no_loop
from cuebook.service.triggers.firing import Read, Triggers
from cuebook.service.triggers.permissions import LASTS, Asking, Permissions, askings, check_unchanged, digest_of_view
from cuebook.service.triggers.schedules import Schedule, Schedules
from cuebook.service.triggers.target import check_fills_no_secret
from cuebook.service.triggers.trigger import Firing, Target, Trigger
from cuebook.system.logs import log_event

T = TypeVar("T", bound=Trigger)

Explain = Callable[[Playbook, Target, Principal], Awaitable[Explanation]]
"""Explains the runs of a target, for the person whom they belong to."""

Secret = Callable[[str, str, bool], Awaitable[str]]
"""The value of a named secret of a tenant, or only checks that there is such a name."""

log = logging.getLogger("cuebook.triggers")

_LOOK = 0.1
"""Seconds between two looks at a firing that another process does."""


class Timers(Protocol):
    """Counts the time of schedules outside the store."""

    def id_of(self, schedule: Schedule) -> str: ...

    async def create(self, schedule: Schedule) -> None:
        """Creates a timer, unless there is one."""

    async def pause(self, timer: str, *, paused: bool) -> None: ...

    async def remove(self, timer: str) -> None: ...


class TriggerView(msgspec.Struct, frozen=True):
    """A trigger with everything that people want to know about it."""

    trigger: Trigger
    asks: tuple[Asking, ...] = ()
    """What its runs would ask, today."""
    explained: Explanation | None = None
    problem: str = ""
    """Why its runs would not start, or why that is unknown."""
    standing: Standing | None = None
    standing_problem: str = ""
    """Why its permission no longer holds."""
    suspends: bool = False
    """Whether that suspends it when it fires."""
    digest: str = ""
    """Identifies what a permission would be given for: the trigger, its playbook, the policy, and everything in `asks`."""

    @property
    def covered(self) -> frozenset[Allowed]:
        """What it may do without asking."""
        if self.standing is None or self.standing_problem:
            return frozenset()
        return frozenset(self.standing.allowed)

    @property
    def waits_for(self) -> list[Asking]:
        """What its runs would wait for."""
        covered = self.covered
        return [one for one in self.asks if not one.allowed or not covered.issuperset(one.allowed)]


class TriggerAdministration:
    def __init__(
        self,
        service: Service,
        triggers: Triggers,
        read: Read,
        explain: Explain,
        secret: Secret,
        offers: frozenset[str] | None = None,
        timers: Timers | None = None,
    ) -> None:
        """`offers` are the workspaces that this process offers; None for all. `timers` count the time of new schedules, if
        the store does not.
        """
        self._timers = timers
        self._service = service
        self.triggers = triggers
        self.schedules = Schedules(triggers, offers)
        self.events = Events(triggers, offers)
        self.permissions = Permissions(service, triggers)
        self._read = read
        self._explain = explain
        self._secret = secret

    async def add(self, trigger: T, who: Principal = Principal()) -> T:
        """Adds a trigger, whose playbook must be one that can run today."""
        playbook = await asyncio.to_thread(self._read, trigger.target)
        await self._check_inputs(trigger, playbook)
        await self._explain(playbook, trigger.target, who)
        if isinstance(trigger, Schedule):
            await self._add_schedule(trigger, who)
        else:
            await self._add_event_trigger(trigger, who)
        await self.permissions.drop(trigger, who)  # of an earlier trigger with this name
        return await self.triggers.known(type(trigger), trigger.name, trigger.tenant)

    async def _add_schedule(self, schedule: Schedule, who: Principal) -> None:
        if self._timers is None:
            await self.schedules.add(schedule, who)
            return
        made = await self.schedules.add(msgspec.structs.replace(schedule, timer=self._timers.id_of(schedule)), who)
        try:
            await self._timers.create(made)
        except CuebookError:
            await self.triggers.remove(Schedule, made.name, who)
            raise

    async def restore_timers(self) -> None:
        """Creates the timers of schedules that have lost theirs."""
        for one in [] if self._timers is None else await self.triggers.every(Schedule):
            if one.timer and self._timers is not None:
                await self._timers.create(one)

    async def _adjust_timer(self, trigger: Trigger, *, removed: bool = False) -> None:
        """Updates the timer of a schedule. If that fails, what it fires is skipped."""
        if not isinstance(trigger, Schedule) or not trigger.timer or self._timers is None:
            return
        try:
            if removed:
                await self._timers.remove(trigger.timer)
            else:
                await self._timers.pause(trigger.timer, paused=not trigger.is_active)
        except CuebookError as error:
            log_event(log, "timer.failed", logging.WARNING, timer=trigger.timer, code=error.code)

    async def _check_inputs(self, trigger: Trigger, playbook: Playbook) -> None:
        """Raises `BadInput` for values that must not be stored with a trigger."""
        inputs = trigger.target.inputs
        mapped = trigger.mapping if isinstance(trigger, EventTrigger) else {}
        hidden = sorted(playbook.document.sensitive & {*inputs, *mapped})
        if hidden:
            raise BadInput(
                f"The input '{hidden[0]}' is sensitive, and a {trigger.COMMAND} would store its value.",
                fix="Leave it out, or start these runs by another program over the API.",
            )
        check_fills_no_secret(playbook, mapped)
        if not isinstance(trigger, EventTrigger):
            playbook.accept(inputs, trigger.target.options)
        if await self._service.without_secrets(inputs, trigger.tenant) != inputs:
            raise BadInput(
                "The value of a secret is in an input; nothing was stored.",
                fix="Use the secret's handle instead, for example env:NAME.",
            )

    async def _add_event_trigger(self, trigger: Trigger, who: Principal) -> None:
        if isinstance(trigger, Webhook):
            who.require("admin", "add webhooks, which start runs for anyone who can sign a request")
            await self._secret(trigger.secret, trigger.tenant, False)
        if isinstance(trigger, AfterTrigger):
            await check_no_loop(self.triggers, trigger)
        for kind in EVENT_TRIGGERS:
            if kind is not type(trigger) and await self.triggers.exists(kind, trigger.name, trigger.tenant):
                raise Conflict(f"There is already a trigger named '{trigger.name}'.", fix="Choose another name.")
        await self.triggers.add(trigger, who)

    async def webhooks(self, name: str) -> list[Webhook]:
        """The webhooks with this name, of all tenants."""
        return await self.triggers.named(Webhook, name)

    async def secret(self, webhook: Webhook) -> str:
        """The secret with which its requests are signed."""
        return await self._secret(webhook.secret, webhook.tenant, True)

    async def explained(self, target: Target, who: Principal) -> tuple[Playbook, Explanation]:
        playbook = await asyncio.to_thread(self._read, target)
        return playbook, await self._explain(playbook, target, who)

    async def _asks(self, trigger: Trigger, playbook: Playbook, explained: Explanation, who: Principal) -> list[Asking]:
        """What the runs of a trigger would ask, and which of it depends on the event."""
        mapped = trigger.mapping if isinstance(trigger, EventTrigger) else {}
        if not mapped:
            return askings(explained)
        other = {one.name: _other_value(one) for one in playbook.inputs if one.name in mapped}
        target = msgspec.structs.replace(trigger.target, inputs={**trigger.target.inputs, **other})
        return askings(explained, await self._explain(playbook, target, who))

    async def view(self, trigger: Trigger) -> TriggerView:
        """A trigger with what its runs would ask. Never fails: a playbook that is gone is a problem that it names."""
        standing = await self.permissions.of(trigger)
        try:
            who = await self.triggers.owner_of(trigger)
            playbook, explained = await self.explained(trigger.target, who)
            asks = await self._asks(trigger, playbook, explained, who)
        except (CuebookError, EffectFailed) as error:
            return TriggerView(trigger, problem=str(error), standing=standing)
        problem = explained.refused
        stale, suspends = "", False
        if standing is not None:
            stale, suspends = await self.permissions.problem(trigger, standing, playbook.digest, explained.policy)
        if standing is not None and not stale and explained.others_approve and standing.by == trigger.owner:
            stale = f"The policy wants another person than {trigger.owner} to approve."
        digest = digest_of_view(trigger, playbook.digest, explained.policy, asks)
        return TriggerView(trigger, tuple(asks), explained, problem, standing, stale, suspends, digest)

    async def allow(self, trigger: T, who: Principal, seconds: float = LASTS, *, seen: str) -> TriggerView:
        """Gives a trigger a standing permission for exactly what its runs would ask today. `seen` is the digest of the view
        that the approver saw; raises `Conflict` if anything has changed since.
        """
        owner = await self.triggers.owner_of(trigger)
        playbook, explained = await self.explained(trigger.target, owner)
        asks = await self._asks(trigger, playbook, explained, owner)
        self.permissions.check_giver(trigger, explained, who)
        check_unchanged(trigger, digest_of_view(trigger, playbook.digest, explained.policy, asks), seen)
        await self.permissions.give(trigger, playbook.digest, explained.policy, asks, who, seconds)
        return await self.view(trigger)

    async def pause(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        made = await self.triggers.pause(kind, name, who)
        await self._adjust_timer(made)
        await self.triggers.record("pause", made, who)
        return made

    async def resume(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        made = await self.triggers.resume(kind, name, who)
        await self._adjust_timer(made)
        await self.triggers.record("resume", made, who)
        return made

    async def remove(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        known = self.triggers.own(await self.triggers.known(kind, name, who.tenant), who)
        await self.permissions.drop(known, who)  # first, so that a later trigger of this name never has it
        removed = await self.triggers.remove(kind, name, who)
        await self._adjust_timer(removed, removed=True)
        return removed

    async def run(self, kind: type[T], name: str, who: Principal, key: str) -> T:
        """Asks for a firing now; a server or a worker does it."""
        trigger = self.triggers.own(await self.triggers.get(kind, name, who), who)
        made = await self.triggers.request(kind, trigger.name, who.tenant, key, by=who.name)
        await self.triggers.record("run", made, who)
        return made

    async def handle(self, job: Job) -> Job:
        """Does the work of a trigger of any kind in this process."""
        return await (self.schedules if job.kind == Schedule.KIND else self.events).handle(job)

    async def run_here(self, kind: type[T], name: str, who: Principal, key: str) -> Firing:
        """Fires now, in this process, or waits until another one has done so, unless other firings come first."""
        await self.run(kind, name, who, key)
        while True:
            firing = await self.triggers.try_firing(kind, name, who.tenant, key, self.handle, HELD)
            if firing is not None:
                return firing
            trigger = await self.triggers.known(kind, name, who.tenant)
            firing, older = trigger.firing(key), trigger.is_serial and await self.triggers.unfinished(trigger)
            waits = trigger.is_serial and trigger.look > self.triggers.now()  # for that, or for the rate limit
            if firing is not None and firing.state == "requested" and (older or waits):
                words = (
                    f"It starts when run {older} and those that wait have ended."
                    if older
                    else "It starts after the events that wait."
                )
                return msgspec.structs.replace(firing, state="queued", reason=words)
            await asyncio.sleep(_LOOK)


def _other_value(declared: Input) -> Any:
    """A value of an input that no playbook expects, to see what depends on it."""
    if declared.options:
        return next((one for one in declared.options if one != declared.default), declared.options[0])
    match declared.type:
        case "integer" | "number":
            return 918273645
        case "boolean":
            return str(declared.default).lower() != "true"
        case "array" | "list":
            return ["cuebook-event-value"]
        case "object":
            return {"cuebook": "event-value"}
        case _:
            return "cuebook-event-value"

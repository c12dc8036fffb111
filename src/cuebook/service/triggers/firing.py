"""`Triggers`, which stores triggers and fires them: each firing starts at most one run, in any number of processes.

Only the handler of a trigger's job fires it. Events and people request a firing, which is stored with the trigger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.errors import AtLimit, Conflict, CuebookError, NotFound, StoreError
from cuebook.kernel.events import ENDED
from cuebook.kernel.notices import notice
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.run import RunRow
from cuebook.service.job_runner import Handler
from cuebook.service.rate_limit import TooManyRuns
from cuebook.service.service import Service
from cuebook.service.start import id_for
from cuebook.service.triggers.target import check_fills_no_secret
from cuebook.service.triggers.trigger import LOOK_AGAIN, MOST_REQUESTED, Firing, State, Target, Trigger
from cuebook.service.worker import leave_to_workers
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.triggers")

T = TypeVar("T", bound=Trigger)


class Start(Protocol):
    """Starts the run of a target, with the inputs of the target and of the event."""

    async def __call__(
        self, playbook: Playbook, target: Target, inputs: Mapping[str, Any], who: Principal, *, key: str, trigger: str
    ) -> RunRow: ...


Read = Callable[[Target], Playbook]
"""Reads the playbook of a target, as its file says now. Raises if it is gone or cannot be run."""
Check = Callable[[Trigger, Playbook, Mapping[str, Any], Principal], Awaitable[str]]
"""Returns why a trigger must be suspended instead of firing; empty if it may fire."""


async def no_check(trigger: Trigger, playbook: Playbook, inputs: Mapping[str, Any], who: Principal) -> str:
    return ""


class Triggers:
    """The triggers of a store, of all kinds."""

    def __init__(self, store: Store, service: Service, start: Start, read: Read, check: Check = no_check) -> None:
        self.store = store
        self._service = service
        self._start = start
        self._read = read
        self._check = check

    def now(self) -> float:
        return self.store.now()

    # --- storage ---

    async def add(self, trigger: T, who: Principal = Principal()) -> T:
        """Stores a new trigger. Raises `Conflict` if its name is taken."""
        who.require("runner", f"add {trigger.COMMAND}s")
        if await self.store.put_job(trigger.job(self.now())) is None:
            raise Conflict(
                f"There is already a {trigger.COMMAND} named '{trigger.name}'; nothing was changed.",
                fix=f"Choose another name, or remove the old one: `cuebook {trigger.COMMAND} remove {trigger.name}`.",
            )
        await self.record("add", trigger, who, {"playbook": trigger.target.path})
        return trigger

    async def record(
        self, what: str, trigger: Trigger, who: Principal, details: Mapping[str, Any] = {}, **more: Any
    ) -> None:
        """Records what a person did to a trigger in the audit of administrative acts."""
        await self._service.record_act(f"{trigger.KIND}.{what}", trigger.name, who, details, **more)

    async def get(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        """A trigger that this user sees. One whose runs they would not see is not found either."""
        who.require("viewer", f"view {kind.COMMAND}s")
        found = kind.of(await self._job(kind, name, who.tenant))
        owners = await self._service.visibility.owners(who)
        if owners is not None and found.owner not in owners:
            raise _missing(kind, name)
        return found

    async def page(
        self, kind: type[T], who: Principal = Principal(), after: str = "", limit: int | None = None
    ) -> list[T]:
        """The triggers of a kind that this user sees, by name; `after` is the last name of the page before."""
        who.require("viewer", f"view {kind.COMMAND}s")
        owners = await self._service.visibility.owners(who)
        jobs = await self.store.jobs(kind.KIND, who.tenant, after, limit if owners is None else None)
        found = [kind.of(job) for job in jobs]
        return [one for one in found if owners is None or one.owner in owners][:limit]

    async def known(self, kind: type[T], name: str, tenant: str) -> T:
        """A trigger, for processes that fire it."""
        return kind.of(await self._job(kind, name, tenant))

    async def exists(self, kind: type[Trigger], name: str, tenant: str) -> bool:
        return await self.store.job(tenant, kind.KIND, name) is not None

    async def every(self, kind: type[T]) -> list[T]:
        """The triggers of a kind of all tenants."""
        return [kind.of(job) for job in await self.store.jobs(kind.KIND)]

    async def named(self, kind: type[T], name: str) -> list[T]:
        """The triggers of a kind with this name, of all tenants."""
        return [kind.of(job) for job in await self.store.jobs_named(kind.KIND, name)]

    async def change(self, kind: type[T], name: str, who: Principal, change: Callable[[T], T]) -> T:
        """Changes a trigger of this user, or of any user for an admin."""
        return await self._replace(kind, name, who.tenant, lambda trigger: change(self.own(trigger, who)))

    async def alter(self, kind: type[T], trigger: Trigger, change: Callable[[T], T]) -> T:
        """Changes a trigger for a process that fires it."""
        return await self._replace(kind, trigger.name, trigger.tenant, change)

    async def remove(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        """Removes a trigger. Its runs stay."""
        while True:
            job = await self._job(kind, name, who.tenant)
            trigger = self.own(kind.of(job), who)
            if await self.store.drop_job(job):
                await self.record("remove", trigger, who)
                return trigger

    async def pause(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        """Stops a trigger until it is resumed. What it queued is skipped."""

        def paused(trigger: T) -> T:
            for firing in (*trigger.requested, *([trigger.queued] if trigger.queued else ())):
                skipped = msgspec.structs.replace(firing, state="skipped", reason="It was paused.", inputs={})
                trigger = trigger.recorded(skipped)
            return msgspec.structs.replace(trigger, paused=True, queued=None, requested=())

        return await self.change(kind, name, who, paused)

    async def resume(self, kind: type[T], name: str, who: Principal = Principal()) -> T:
        """Ends a pause or a suspension. Firings in the meantime are not made up for."""
        return await self.change(kind, name, who, lambda one: one if one.is_active else one.resumed(self.now()))

    async def try_firing(
        self, kind: type[T], name: str, tenant: str, key: str, handle: Handler, held: float
    ) -> Firing | None:
        """Does the work of a trigger here, unless another process does it. Returns what became of a firing, once it is known."""
        job = await self._job(kind, name, tenant)
        firing = kind.of(job).firing(key)
        if firing is not None and firing.state != "requested":
            return firing
        if job.due is None or job.due > self.now():
            return None  # another process has taken it
        taken = await self.store.put_job(msgspec.structs.replace(job, due=self.now() + held))
        if taken is not None:
            after = await handle(taken)
            if after is not None:
                await self.store.put_job(msgspec.structs.replace(after, version=taken.version))
        return None

    async def _replace(self, kind: type[T], name: str, tenant: str, change: Callable[[T], T]) -> T:
        while True:  # again if another process changed it at the same time
            job = await self._job(kind, name, tenant)
            before = kind.of(job)
            changed = change(before)
            if changed is before or await self.store.put_job(changed.job(self.now(), job.version)) is not None:
                return changed

    async def _job(self, kind: type[Trigger], name: str, tenant: str) -> Job:
        job = await self.store.job(tenant, kind.KIND, name)
        if job is None:
            raise _missing(kind, name)
        return job

    def own(self, trigger: T, who: Principal) -> T:
        """The trigger, if this user may change it. Raises `NotAllowed` otherwise."""
        who.require("runner", f"change {trigger.COMMAND}s")
        if who.name != trigger.owner and not who.may("admin"):
            raise NotAllowed(
                f"{who.name} may not change the {trigger.COMMAND} '{trigger.name}': it belongs to {trigger.owner}.",
                fix=f"Ask {trigger.owner}, or an admin.",
            )
        return trigger

    # --- firing ---

    async def request(
        self,
        kind: type[T],
        name: str,
        tenant: str,
        key: str,
        inputs: Mapping[str, Any] = {},
        *,
        by: str = "",
        at: float | None = None,
    ) -> T:
        """Asks for a firing, because of an event or a person. A second request with the same key changes nothing.

        A trigger that does not fire now records that it was skipped.
        """
        inputs = await self._service.without_secrets(inputs, tenant) if inputs else {}

        def add(trigger: T) -> T:
            if trigger.knows(key):
                return trigger
            now = self.now()
            firing = Firing(key, now if at is None else at, "requested", by=by, inputs=inputs)
            if not by and trigger.is_active and trigger.is_full(now):
                return self._too_often(trigger, firing)
            trigger = trigger.noted(key, now)
            if not trigger.is_active:
                return self._done(trigger, firing, "skipped", reason=trigger.suspended or "It is paused.")
            if len(trigger.requested) >= MOST_REQUESTED:
                raise AtLimit(
                    f"The {trigger.COMMAND} '{name}' has {MOST_REQUESTED} firings that no process has fired yet.",
                    fix="Check that `cuebook serve` or `cuebook worker` is running.",
                )
            return msgspec.structs.replace(trigger, requested=(*trigger.requested, firing))

        return await self._replace(kind, name, tenant, add)

    def _too_often(self, trigger: T, firing: Firing) -> T:
        """Stops a trigger that would fire too often, as in a loop."""
        if not trigger.SUSPENDS:
            raise _at_limit(trigger)
        words = "It was fired too often, as in a loop."
        return msgspec.structs.replace(self._done(trigger, firing, "skipped", reason=words), suspended=words)

    async def full(self, trigger: Trigger, error: AtLimit, then: str) -> None:
        """Notifies that a trigger takes no event now, at most once an hour. `then` is what becomes of them."""
        words = f"{trigger.COMMAND.capitalize()} '{trigger.name}': {error.message} {then}"
        await self.notify(trigger, f"full.{self.now() // 3600:.0f}", words)

    async def suspended(self, trigger: Trigger) -> None:
        """Notifies that a trigger was suspended by an event."""
        await self.suspend(trigger, trigger.suspended)

    async def work(self, trigger: T) -> T:
        """Fires what is queued and requested of a trigger that this process holds; returns it as it is to be stored. Events for
        which the rate limit leaves no run wait.
        """
        limit: TooManyRuns | None = None
        if trigger.queued is not None and trigger.is_active and not await self.unfinished(trigger):
            try:
                trigger = await self.fire(msgspec.structs.replace(trigger, queued=None), trigger.queued)
            except TooManyRuns as error:
                limit = error
        waiting: list[Firing] = []
        while trigger.requested and trigger.is_active:
            if trigger.is_serial and (waiting or await self.unfinished(trigger)):
                break
            first, *rest = trigger.requested
            others = msgspec.structs.replace(trigger, requested=tuple(rest))
            if limit is not None and not first.by:
                waiting, trigger = [*waiting, first], others
                continue
            try:
                trigger = await self.fire(others, first)
            except TooManyRuns as error:
                limit, waiting, trigger = error, [*waiting, first], others
        if limit is not None:
            words = f"{trigger.COMMAND.capitalize()} '{trigger.name}': {limit.message} Its events wait."
            await self.notify(trigger, f"limited.{self.now() // 3600:.0f}", words)
        trigger = msgspec.structs.replace(trigger, requested=(*waiting, *trigger.requested))
        waits = trigger.queued is not None or limit is not None or (trigger.is_serial and trigger.requested)
        return msgspec.structs.replace(trigger, look=self.now() + LOOK_AGAIN) if waits else trigger

    async def fire(self, trigger: T, firing: Firing) -> T:
        """Fires a trigger that this process holds; returns it with what became of the firing.

        A second call with the same firing finds the run of the first, so a process may repeat it after a crash. Raises
        `TooManyRuns` for an event that has to wait.
        """
        try:
            who = await self.owner_of(trigger)
        except StoreError:
            raise
        except CuebookError as error:
            return await self.suspend(trigger, f"Its owner may no longer start runs: {error.message}", firing)
        run = self.run_id(trigger, firing.key, who)
        if await self._row(run) is not None:  # a process that fired it died before it could say so
            await leave_to_workers(self._service, run)
            return self._done(trigger, firing, run=run)
        older = "" if trigger.overlap == "parallel" else await self.unfinished(trigger)
        if older and trigger.overlap == "skip":
            return self._done(trigger, firing, "skipped", reason=f"Run {older} is unfinished.")
        if older:
            return await self._queue(trigger, firing, older, who)
        return await self._begin(trigger, firing, who)

    async def _queue(self, trigger: T, firing: Firing, older: str, who: Principal) -> T:
        queued = trigger.queued
        if queued is not None and trigger.overlap == "queue":
            return self._done(trigger, firing, "skipped", reason=f"Another firing waits for the end of run {older}.")
        if queued is not None:
            trigger = self._done(trigger, queued, "skipped", reason="A later firing replaced it.")
        if trigger.overlap == "cancel" and (queued is None or queued.key != firing.key):
            try:
                await self._service.cancel(older, f"{trigger.trigger} fired again.", who)
            except StoreError:
                raise
            except CuebookError as error:
                if await self.unfinished(trigger):
                    words = f"Run {older} is unfinished and could not be cancelled: {error.message}"
                    return self._done(trigger, firing, "skipped", reason=words)
        words = f"It starts when run {older} has ended."
        waiting = msgspec.structs.replace(firing, state="queued", reason=words, done=self.now())
        return msgspec.structs.replace(trigger, queued=waiting, look=self.now() + LOOK_AGAIN)

    async def _begin(self, trigger: T, firing: Firing, who: Principal) -> T:
        target = trigger.target
        inputs = {**target.inputs, **firing.inputs}
        try:
            playbook = await asyncio.to_thread(self._read, target)
            check_fills_no_secret(playbook, firing.inputs)
            problem = await self._check(trigger, playbook, inputs, who)
            if problem:
                return await self.suspend(trigger, problem, firing)
            key = self._key(trigger, firing.key)
            row = await self._start(playbook, target, inputs, who, key=key, trigger=trigger.trigger)
        except StoreError:
            raise
        except CuebookError as error:
            if isinstance(error, TooManyRuns) and trigger.KEEPS_ALL and not firing.by:
                raise
            return await self.failed(trigger, firing, str(error))
        await leave_to_workers(self._service, row.id)
        return self._done(trigger, firing, run=row.id)

    async def failed(self, trigger: T, firing: Firing, reason: str) -> T:
        """Records that a firing could not start its run, and notifies; the trigger fires again the next time."""
        words = f"{trigger.COMMAND.capitalize()} '{trigger.name}' could not start {trigger.target.words}: {reason}"
        await self.notify(trigger, f"failed.{firing.key}", words)
        return self._done(trigger, firing, "failed", reason=reason)

    async def refuse(self, trigger: T, key: str, reason: str) -> Firing | None:
        """Records and notifies that an event can start no run, for a process that noticed it. Raises `AtLimit` if there were too
        many lately.
        """
        at = self.now()
        firing = Firing(key, at, "failed", reason=reason, done=at)

        def refused(trigger: T) -> T:
            if trigger.firing(key):
                return trigger
            if trigger.is_full(at):
                raise _at_limit(trigger)
            return trigger.noted(key, at).recorded(firing)

        kept = await self.alter(type(trigger), trigger, refused)
        await self.failed(trigger, firing, reason)
        return kept.firing(key)

    async def suspend(self, trigger: T, reason: str, firing: Firing | None = None) -> T:
        """Stops a trigger until a person resumes it, and notifies."""
        log_event(log, "trigger.suspended", logging.WARNING, trigger=trigger.trigger, by=trigger.owner)
        key = "suspended" if firing is None else f"suspended.{firing.key}"
        fix = f"`cuebook {trigger.COMMAND} resume {trigger.name}` resumes it."
        await self.notify(trigger, key, f"{trigger.COMMAND.capitalize()} '{trigger.name}' is suspended. {reason} {fix}")
        if firing is not None:
            trigger = self._done(trigger, firing, "skipped", reason=reason)
        return msgspec.structs.replace(trigger, suspended=reason)

    async def notify(self, trigger: Trigger, key: str, text: str) -> None:
        """Notifies of a trigger, once for each key."""
        await self._service.notify(
            notice(
                trigger.tenant,
                "schedule",
                at=self.now(),
                key=f"{trigger.trigger}.{trigger.created:.3f}.{key}",
                playbook=trigger.target.name,
                owner=trigger.owner,
                text=text,
            )
        )

    # --- what a firing depends on ---

    async def owner_of(self, trigger: Trigger) -> Principal:
        """The person whom the runs of a trigger belong to. Raises if they are gone or may no longer start runs."""
        local = Principal(tenant=trigger.tenant)
        who = local if trigger.owner == local.name else await self._service.principal(trigger.owner, trigger.tenant)
        who.require("runner", "start runs")
        return who

    def run_id(self, trigger: Trigger, key: str, who: Principal) -> str:
        """The id of the run that a firing starts."""
        return id_for(who, self._key(trigger, key))

    async def unfinished(self, trigger: Trigger) -> str:
        """The latest run that the trigger started, if it has not ended."""
        row = await self._row(trigger.run) if trigger.run else None
        return "" if row is None or row.status in ENDED else row.id

    def _key(self, trigger: Trigger, key: str) -> str:
        # A trigger that is added again under an old name is another one.
        return f"{trigger.trigger}\0{trigger.created!r}\0{key}"

    async def _row(self, run: str) -> RunRow | None:
        try:
            return await self.store.run(run)
        except NotFound:
            return None

    def _done(self, trigger: T, firing: Firing, state: State = "started", *, run: str = "", reason: str = "") -> T:
        """The trigger with what became of a firing."""
        fields = {"trigger": trigger.trigger, "run": run, "by": trigger.owner}
        log_event(log, f"trigger.{state}", logging.WARNING if state == "failed" else logging.INFO, **fields)
        made = msgspec.structs.replace(firing, state=state, run=run, reason=reason, done=self.now(), inputs={})
        trigger = trigger.recorded(made)
        return msgspec.structs.replace(trigger, run=run) if run else trigger


def _at_limit(trigger: Trigger) -> AtLimit:
    return AtLimit(f"The {trigger.COMMAND} '{trigger.name}' was fired too often.", fix="Wait a minute.")


def _missing(kind: type[Trigger], name: str) -> NotFound:
    words = kind.COMMAND
    return NotFound(f"There is no {words} named '{name[:100]}'.", fix=f"`cuebook {words} list` lists all of them.")

"""Delivers messages: held back in quiet hours, tried again with increasing delays, and kept for a while afterwards.

A message is a job in the store, so it survives the process; one that was sent is kept, so it is not made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from cuebook.config.notifications import Notifications
from cuebook.formats.quiet_hours import QuietHours
from cuebook.kernel.errors import NotFound
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.notifications.channels import Channel, Recipient, Undelivered
from cuebook.service.notifications.message import MESSAGE, Message, composed
from cuebook.service.notifications.people import People, Preferences
from cuebook.system.logs import log_event

if TYPE_CHECKING:
    from cuebook.service.queries import Queries

log = logging.getLogger("cuebook")

KEPT = 24 * 3600.0
"""Seconds for which a message that was sent is kept: until then, it is not sent again."""
KEPT_FAILED = 7 * 24 * 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 900.0
_LONGEST_REST = 60.0
"""Seconds for which a channel that is down is left alone, at most."""
_DAY = 24 * 3600.0
_SPREAD = 0.2
"""The part of a pause that differs between messages, so that a receiver that is up again is not flooded."""
_LONGEST_WISH = 3600.0
"""Seconds for which a receiver may ask us to leave it alone. Between two attempts is more only if no process was there, or in
quiet hours."""


class Delivery:
    """Takes messages."""

    def __init__(
        self,
        store: Store,
        runs: Queries,
        settings: Notifications,
        channels: Mapping[str, Channel],
        people: People,
        public_url: str = "",
    ) -> None:
        self._store = store
        self._runs = runs
        self._settings = settings
        self.channels = channels
        self._people = people
        self.public_url = public_url
        self._resting: dict[str, tuple[float, int]] = {}
        """Until when each channel that is down is left alone, and how often it was down in a row."""

    async def handle(self, job: Job) -> Job | None:
        """Sends a message, if it is time to. Returns it as it is kept."""
        said, now = job.body, self._store.now()
        if said["state"] in ("sent", "failed", "moot"):
            return None  # it was kept for long enough
        run, wait = await self._concerned(job)
        if "run" in said and run is None:
            return None  # it was deleted, and so is what was to be said about it
        if "wait" in said and (wait is None or wait.state != "open"):
            return _kept(job, now, "moot")
        person = str(said.get("to", ""))
        preferences = (await self._people.all_preferences(job.tenant)).get(person) if person else None
        if person and preferences is None:
            return _kept(job, now, "moot")
        until, _ = self._resting.get(str(said["channel"]), (now, 0))
        if now < until <= now + _LONGEST_WISH:  # many messages would each wait for it, and others for them
            return msgspec.structs.replace(job, due=until + _spread(job.name) * _FIRST_PAUSE)
        quiet = self._quiet_until(job, preferences, now)
        if quiet is not None:
            return msgspec.structs.replace(job, due=quiet, body={**said, "state": "held", "error": ""})
        return await self._send(job, run, wait, preferences, now)

    async def refit(self) -> int:
        """Makes messages due that were postponed by a clock that was ahead; returns how many."""
        count, now = 0, self._store.now()
        for job in await self._store.jobs(MESSAGE):
            latest = {"pending": _LONGEST_WISH * (1 + _SPREAD), "held": _DAY}.get(str(job.body["state"]))
            if latest is not None and job.due is not None and job.due > now + latest:
                count += await self._store.put_job(msgspec.structs.replace(job, due=now)) is not None
        return count

    async def _send(
        self, job: Job, run: RunRow | None, wait: WaitRow | None, preferences: Preferences | None, now: float
    ) -> Job:
        name = str(job.body["channel"])
        channel = self.channels.get(name)
        try:
            if channel is None:
                raise Undelivered(f"No channel '{name}' is configured where this process runs.")
            message = self.message(job, run, wait, texts=channel.settings.texts)
            to = None if preferences is None else await self._recipient(job, channel, preferences)
            reference = await channel.send(message, now, to)
        except Undelivered as problem:
            if problem.down:
                self._rest(name, problem.after, now)
            return self._failed(job, problem, now)
        self._resting.pop(name, None)
        log_event(log, "message.sent", **_fields(job))
        return _kept(job, now, "sent", reference)

    def _rest(self, channel: str, wish: float | None, now: float) -> None:
        until, times = self._resting.get(channel, (now, 0))
        if until <= now:  # otherwise another message has found that out at the same time
            pause = min(_FIRST_PAUSE * 2.0**times, _LONGEST_REST)
            self._resting[channel] = now + max(pause, min(wish or 0.0, _LONGEST_WISH)), min(times + 1, 20)

    def message(self, job: Job, run: RunRow | None, wait: WaitRow | None, *, texts: bool) -> Message:
        """The message, in which every secret that this process knows is masked as well."""
        return self._runs.masked(composed(job, self.public_url, run, wait, texts=texts))

    async def _concerned(self, job: Job) -> tuple[RunRow | None, WaitRow | None]:
        run, wait = None, None
        try:
            if "run" in job.body:
                run = await self._store.run(str(job.body["run"]))
            if "wait" in job.body:
                wait = await self._store.wait(str(job.body["wait"]))
        except NotFound:  # it was deleted
            pass
        return run, wait

    async def _recipient(self, job: Job, channel: Channel, preferences: Preferences) -> Recipient:
        person, settings = str(job.body["to"]), channel.settings
        if settings.kind == "email":
            if not preferences.address:
                raise Undelivered(f"{person} has not set an e-mail address.", final=True)
            return Recipient(person, preferences.address)
        account = await self._people.account_of(job.tenant, person, settings.name)
        if not account:
            raise Undelivered(f"{person} has not linked a Slack account.", final=True)
        return Recipient(person, account)

    def _quiet_until(self, job: Job, preferences: Preferences | None, now: float) -> float | None:
        rules = self._settings.rules(str(job.body.get("playbook", "")))
        if job.body["what"] in (rules.quiet_except or ()):
            return None
        hours, zone = rules.quiet_hours or "", rules.time_zone or "UTC"
        if preferences is not None:
            hours, zone = preferences.quiet_hours or hours, preferences.time_zone or zone
        found = QuietHours.parse(hours) if hours else None
        return None if found is None else found.until(now, zone)

    def _failed(self, job: Job, problem: Undelivered, now: float) -> Job:
        attempts = int(job.body["attempts"]) + 1
        # Only the time counts in which a process tried: a machine that slept over a weekend may have no network at first.
        slept = max(0.0, now - float(job.body.get("tried") or now) - _LONGEST_WISH)
        first = float(job.body.get("first") or now) + slept
        body = {
            **job.body,
            "attempts": attempts,
            "error": problem.why,
            "state": "pending",
            "first": first,
            "tried": now,
        }
        pause = _pause(job.name, attempts, problem.after)
        if problem.final or now + pause - first > self._settings.give_up_after:
            log_event(log, "message.failed", logging.WARNING, **_fields(job))  # the message itself says why
            return _kept(msgspec.structs.replace(job, body=body), now, "failed")
        log_event(log, "message.retried", **_fields(job))
        return msgspec.structs.replace(job, due=now + pause, body=body)


def _pause(name: str, attempts: int, wish: float | None) -> float:
    """Seconds until the next attempt."""
    pause = min(_FIRST_PAUSE * 2.0 ** min(attempts - 1, 20), _LONGEST_PAUSE)
    pause *= 1 + _SPREAD * _spread(f"{name} {attempts}")
    return max(pause, min(wish or 0.0, _LONGEST_WISH))


def _spread(text: str) -> float:
    """A number from 0 to 1 that differs between messages."""
    return crc32(text.encode()) % 1000 / 1000


def _kept(job: Job, now: float, state: str, reference: Mapping[str, Any] = {}) -> Job:
    """A message that is not sent any more, until it is forgotten."""
    body = {**job.body, "state": state, "ended": now, **({"reference": dict(reference)} if reference else {})}
    if state != "failed":
        body["error"] = ""
        body.pop("text", None)  # it is not needed any more
    return msgspec.structs.replace(job, due=now + (KEPT_FAILED if state == "failed" else KEPT), body=body)


def _fields(job: Job) -> dict[str, Any]:
    names = ("channel", "to", "what", "run", "wait")
    return {name: job.body[name] for name in names if job.body.get(name)}

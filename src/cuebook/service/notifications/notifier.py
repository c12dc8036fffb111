"""`Notifier`: the notifications of a store, for the process that sends them and for the people who ask about them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from cuebook.config.notifications import Notifications
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.notices import NOTICE
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.run import id_from
from cuebook.service.notifications.channels import Channel, Recipient, Undelivered
from cuebook.service.notifications.channels.channel import Reveal
from cuebook.service.notifications.delivery import Delivery
from cuebook.service.notifications.message import MESSAGE, Message, message_id
from cuebook.service.notifications.people import CODE, People
from cuebook.service.notifications.planner import Planner

if TYPE_CHECKING:
    from cuebook.service.notifications.slack_requests import SlackRequests
    from cuebook.service.service import Service

STATES = ("pending", "held", "sent", "failed", "moot")
_SHOWN = 50


class MessageState(msgspec.Struct, frozen=True):
    """What became of a message so far."""

    id: str
    channel: str
    to: str
    event: str
    run: str
    wait: str
    playbook: str
    state: str
    attempts: int
    error: str
    since: float
    due: float | None
    """When it is tried again, or forgotten."""


class ChannelState(msgspec.Struct, frozen=True):
    name: str
    kind: str
    configured: bool
    """Whether this process can send over it."""
    counts: dict[str, int]
    """Messages by state."""
    oldest: float | None
    """Since when the oldest message waits to be delivered."""
    error: str
    """The last error of a message that was not delivered."""


class Status(msgspec.Struct, frozen=True):
    channels: tuple[ChannelState, ...]
    planned: int
    """Notices that no process has looked at yet, or waits that will be mentioned again."""
    overdue: bool
    """Whether something has been due for minutes: then no process delivers."""
    messages: tuple[MessageState, ...]
    """The messages that are not delivered, the oldest first."""


class Notifier:
    """Plans and delivers messages, and answers questions about them."""

    def __init__(
        self,
        store: Store,
        service: Service,
        settings: Notifications,
        channels: Mapping[str, Channel],
        reveal: Reveal,
        public_url: str = "",
    ) -> None:
        self._store = store
        self.reveal = reveal
        self.service = service
        self.settings = settings
        self.channels = channels
        self.public_url = public_url
        self.people = People(store, service, settings)
        self.planner = Planner(store, service, settings, self.people)
        self.delivery = Delivery(store, service, settings, channels, self.people, public_url)

    @cached_property
    def slack(self) -> SlackRequests:
        """Answers the requests that Slack makes."""
        from cuebook.service.notifications.slack_requests import SlackRequests

        return SlackRequests(self, self._store)

    @property
    def handlers(self) -> dict[str, Callable[[Job], Awaitable[Job | None]]]:
        """Who does the jobs of each kind."""
        from cuebook.service.notifications.slack_requests import SEEN, UPDATE

        slack = self.slack
        return {
            NOTICE: self.planner.handle,
            MESSAGE: self.delivery.handle,
            UPDATE: slack.update,
            CODE: _forget,
            SEEN: _forget,
        }

    async def send_now(self, seconds: float) -> Status:
        """Does what is due, for at most so many seconds; the rest stays for later."""
        runner, kinds = self.service.job_runner(self.handlers), list(self.handlers)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (due := await self._store.next_due(kinds)) is not None and due <= self._store.now():
                    await runner.once()
                    await runner.settled()
        await runner.settled()
        return await self.status(Principal())

    async def test(self, name: str, who: Principal, to: str = "") -> dict[str, str]:
        """Sends a message over one channel, or over all of them. Returns why each one failed; empty if it was sent."""
        who.require("admin", "test notifications")
        if name and name not in self.channels:
            words = ", ".join(self.channels) or "none"
            raise BadInput(f"There is no channel '{name}'.", fix=f"Configured channels: {words}.")
        now = self._store.now()
        results: dict[str, str] = {}
        for one in [name] if name else list(self.channels):
            message = Message(
                id=f"msg_{id_from(f'test {one} {now}')}",
                event="test",
                at=now,
                title="This is a test of a channel for notifications",
                text=f"Sent by {who.name}. There is nothing to do.",
                link=self.public_url,
                to=to,
            )
            try:
                await self.channels[one].send(message, now, await self._test_recipient(one, to, who) if to else None)
                results[one] = ""
            except Undelivered as problem:
                results[one] = problem.why
        return results

    async def _test_recipient(self, channel: str, person: str, who: Principal) -> Recipient:
        settings = self.channels[channel].settings
        if not settings.is_personal:
            raise Undelivered("This channel does not reach one person.")
        preferences = (await self.people.all_preferences(who.tenant)).get(person)
        if settings.kind == "email":
            if preferences is None or not preferences.address:
                raise Undelivered(f"{person} has not set an e-mail address.")
            return Recipient(person, preferences.address)
        account = await self.people.account_of(who.tenant, person, channel)
        if not account:
            raise Undelivered(f"{person} has not linked a Slack account.")
        return Recipient(person, account)

    async def retry(self, channel: str, who: Principal) -> int:
        """Sends the messages again that were given up, of one channel or of all. Returns how many."""
        who.require("admin", "send messages again")
        count, now = 0, self._store.now()
        for job in await self._store.jobs(MESSAGE, who.tenant):
            if job.body["state"] == "failed" and channel in ("", job.body["channel"]):
                body = {**job.body, "state": "pending", "attempts": 0, "first": now}
                again = msgspec.structs.replace(job, due=now, body=body)
                count += await self._store.put_job(again) is not None
        if count:
            await self.service.record_act("notify.retry", channel, who, {"messages": count})
        return count

    async def status(self, who: Principal) -> Status:
        """What is pending, held back and failed: of everyone for an admin, otherwise a person's own."""
        who.require("viewer", "see messages")
        jobs = await self._store.jobs(MESSAGE, who.tenant)
        if not who.may("admin"):
            jobs = [job for job in jobs if job.body.get("to") == who.name]
        notices = await self._store.jobs(NOTICE, who.tenant) if who.may("admin") else []
        now = self._store.now()
        late = [job for job in (*jobs, *notices) if job.due is not None and job.due < now - _OVERDUE]
        names = dict.fromkeys([*self.settings.channels, *(str(job.body["channel"]) for job in jobs)])
        left = sorted((_state(job) for job in jobs if job.body["state"] not in ("sent", "moot")), key=_age)
        return Status(
            tuple(self._channel(name, [job for job in jobs if job.body["channel"] == name]) for name in names),
            len(notices),
            bool([job for job in late if job.body.get("state") not in ("sent", "moot", "failed")]),
            tuple(left[:_SHOWN]),
        )

    def _channel(self, name: str, jobs: list[Job]) -> ChannelState:
        settings = self.settings.channels.get(name)
        counts = Counter(str(job.body["state"]) for job in jobs)
        left = [job for job in jobs if job.body["state"] in ("pending", "held")]
        wrong = [job for job in jobs if job.body["error"]]
        return ChannelState(
            name,
            "" if settings is None else settings.kind,
            settings is not None,
            {state: counts[state] for state in STATES},
            min((float(job.body["since"]) for job in left), default=None),
            max(wrong, key=lambda job: float(job.body.get("tried", 0))).body["error"] if wrong else "",
        )


_OVERDUE = 120.0


async def _forget(job: Job) -> None:
    """A code that is too old, or a request that could not be repeated any more."""


def _age(one: MessageState) -> float:
    return one.since


def _state(job: Job) -> MessageState:
    said = job.body
    return MessageState(
        message_id(job),
        str(said["channel"]),
        str(said.get("to", "")),
        str(said["what"]),
        str(said.get("run", "")),
        str(said.get("wait", "")),
        str(said.get("playbook", "")),
        str(said["state"]),
        int(said["attempts"]),
        str(said["error"]),
        float(said["since"]),
        job.due,
    )

"""A store whose clock the test moves, real runs on it, and channels that reach servers of the test."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cuebook.config.notifications import ChannelSettings, Notifications, Rules
from cuebook.gate.roles import Principal, Role
from cuebook.kernel.notices import NOTICE, marks_of, notice
from cuebook.kernel.ports import Job, Store
from cuebook.service.job_runner import JobRunner
from cuebook.service.notifications.channels import Channel
from cuebook.service.notifications.channels.channel import Recipient, Undelivered
from cuebook.service.notifications.channels.slack import Slack
from cuebook.service.notifications.channels.webhook import Webhook
from cuebook.service.notifications.message import MESSAGE, Message
from cuebook.service.notifications.notifier import Notifier
from cuebook.service.service import Service
from tests.support.programs import begin, performers, program_of

KEY = "the-key-that-signs-messages"
SECRETS = {"env:HOOK": KEY, "env:SLACK_TOKEN": "xoxb-the-token", "env:SLACK_SIGNING": "the-signing-secret"}
URL = "https://cuebook.example.com"


def moment(text: str, zone: str = "UTC", fold: int = 0) -> float:
    """A moment on the clock of a zone, as in `2026-03-29 02:30`."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


async def reveal(handle: str) -> str:
    return SECRETS[handle]


class Kept:
    """A channel that keeps what it gets, and refuses it while it is down."""

    def __init__(self, name: str = "kept", *, down: bool = False, kind: Any = "command", **more: Any) -> None:
        self.settings = ChannelSettings(name, "test", kind, **more)
        self.down = down
        self.final = False
        self.unreachable = False
        self.after: float | None = None
        self.tries: list[float] = []
        self.got: list[Message] = []
        self.recipients: list[Recipient | None] = []

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        self.tries.append(now)
        if self.down:
            raise Undelivered("It is down.", after=self.after, final=self.final, down=self.unreachable)
        self.got.append(message)
        self.recipients.append(to)
        return {}

    @property
    def titles(self) -> list[str]:
        return [one.heading for one in self.got]


def webhook(url: str, name: str = "ops", **more: Any) -> Webhook:
    return Webhook(ChannelSettings(name, "test", "webhook", url=url, secret="env:HOOK", **more), reveal)


def slack(api: str, name: str = "team", **more: Any) -> Slack:
    given = {"token": "env:SLACK_TOKEN", "signing_secret": "env:SLACK_SIGNING", "to": ("C123",), **more}
    return Slack(ChannelSettings(name, "test", "slack", api=api, **given), reveal)


class Notified:
    """One process that plans and delivers, at a moment that the test chooses."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *channels: Channel,
        now: float = 1_800_000_000.0,
        usual: Rules | None = None,
        **settings: Any,
    ) -> None:
        self.store = store
        self.set(now)
        self.service = Service(
            store,
            performers(folder),
            programs=program_of,
            listen_every=0.02,
            clock=lambda: self.now,
            notifies=True,
            outboxes=[marks_of(settings["run_marks"])] if "run_marks" in settings else [],
        )
        by_name = {one.settings.name: one for one in channels}
        self.settings = Notifications(
            {name: one.settings for name, one in by_name.items()}, usual or Rules(), **settings
        )
        self.notifier = Notifier(store, self.service, self.settings, by_name, reveal, URL)
        self.runner = JobRunner(store, self.notifier.handlers)

    def set(self, now: float) -> None:
        self.now = now
        self.store.now = lambda: self.now  # type: ignore[method-assign]

    async def look(self, now: float | None = None) -> None:
        """Does everything that is due, at this moment or now."""
        if now is not None:
            self.set(now)
        kinds = list(self.notifier.handlers)
        while (due := await self.store.next_due(kinds)) is not None and due <= self.now:
            await self.runner.once()
            await self.runner.settled()

    async def until_nothing_is_due(self, before: float) -> None:
        """Moves the clock from one job to the next, up to a moment."""
        while (due := await self.store.next_due(list(self.notifier.handlers))) is not None and due < before:
            await self.look(max(due, self.now))

    async def say(self, what: Any = "failed", key: str = "one", **more: Any) -> None:
        given = {"playbook": "tea.md", "owner": "local", "text": "It broke.", **more}
        await self.service.notify(notice("local", what, at=self.now, key=key, **given))

    async def waits(self, program: str = "undoing", run: str = "run") -> str:
        """Starts a run that waits for a person; returns the id of the wait."""
        await self.service.drive(await begin(self.service._engine, program, run))
        (wait,) = await self.store.waits(run=run)
        return wait.id

    async def messages(self) -> list[Job]:
        return await self.store.jobs(MESSAGE)

    async def notices(self) -> list[Job]:
        return await self.store.jobs(NOTICE)

    async def states(self) -> list[str]:
        return sorted(str(job.body["state"]) for job in await self.messages())

    async def user(self, name: str, *roles: Role) -> Principal:
        await self.service.add_user(name, roles or ("viewer",))
        return await self.service.principal(name)
